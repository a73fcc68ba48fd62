"""Logs, catalogs and RocksDB instances in memory: they keep the contracts, for tests where disks are in the way."""
