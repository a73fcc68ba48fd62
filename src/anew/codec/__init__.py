"""The door to fastavro and zstandard: schemas, datums, Arrow columns and value compression as pure functions."""
