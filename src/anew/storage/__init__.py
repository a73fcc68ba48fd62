"""The door to RocksDB: sorted files made from base files, and one instance per replica."""
