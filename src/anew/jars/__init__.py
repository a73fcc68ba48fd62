"""Jars that Maven fetches once for a machine: a Kafka broker, and Spark's Kafka connector."""
