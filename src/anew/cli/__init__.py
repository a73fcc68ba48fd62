"""The command line: what a person types, shown on a terminal or as JSON."""
