"""Real Kafka brokers on this machine, for tests and for trying out: one, or three, in KRaft mode."""
