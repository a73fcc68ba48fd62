"""Drivers of refreshes, loads and imports of tables."""
