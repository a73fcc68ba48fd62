"""Stores on Spark: the scans of bases, logs and input files, the merge, and what writes versions."""
