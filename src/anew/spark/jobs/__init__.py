"""Stream jobs on Spark: the source that reads topics, and the tasks that append what a function made of them."""
