"""Where a generation's records go, as its driver is told."""

from __future__ import annotations

from anew.api.wire import Wire


class OutputPlace(Wire):
    """A topic that takes the records of one generation alone.

    Attributes:
        fabric: Whose log holds it.
        key_schema, value_schema: Avro texts, under these ids.
        skew_limit_ms: How far ahead of its append time a record's time may be.
    """

    fabric: str
    topic: str
    topic_uid: str
    partitions: int
    key_schema: str
    key_schema_id: int
    value_schema: str
    value_schema_id: int
    skew_limit_ms: int
