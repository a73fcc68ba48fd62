"""Parquet segment files of tables: shaping rows, writing, reading back, and proving what a file already is."""
