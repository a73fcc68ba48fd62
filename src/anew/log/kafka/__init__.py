"""The log on Kafka: topics, reading and appending through librdkafka; see `anew.log.kafka.kafka_log`."""
