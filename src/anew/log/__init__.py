"""Topics of partitioned, offset-addressed records: the interface, and the embedded implementation on SQLite."""
