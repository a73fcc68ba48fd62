"""The driver's part of a generation of a stream job: its code, and the batches that it runs."""
