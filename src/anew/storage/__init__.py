"""Serving replicas: RocksDB instances, SST files made from base files, application of feeds."""
