"""Rebuild derived data from what you already hold, on Spark, while readers go on reading."""
