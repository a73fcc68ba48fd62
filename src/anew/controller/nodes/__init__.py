"""Nodes: what each is to hold of everything, what it reports, and taking one out of service."""
