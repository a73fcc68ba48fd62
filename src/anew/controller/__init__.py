"""The service in front of the catalog: decides what each node should hold and runs the life cycle."""
