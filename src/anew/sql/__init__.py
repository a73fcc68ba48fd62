"""SQL over Arrow data and segment files: the one door to DuckDB."""
