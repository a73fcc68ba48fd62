"""Segments on a node: fetched, checked, made again where asked, and queried."""
