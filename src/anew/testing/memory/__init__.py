"""Logs, catalogs and RocksDB instances in memory: conforming to the contracts, for tests where disks would be in the way."""
