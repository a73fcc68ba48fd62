"""Everything that runs on Spark; the only place that imports it."""
