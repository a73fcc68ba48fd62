"""Commands for tables."""
