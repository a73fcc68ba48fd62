"""Tables on Spark: segments rebuilt, made out of input files, and read."""
