"""Guided tours that run the product on public example data."""
