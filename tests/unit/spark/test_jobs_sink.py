"""What a task of a job's batch does with what the log says of its appends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from anew.api.location import LogLocation
from anew.core.errors import Failed
from anew.core.stamp import Origin, OriginKind
from anew.log.interface import Appended, TopicPartition, TopicSpec
from anew.spark.jobs import sink
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from anew.testing.clock import NOON_MS
from anew.testing.memory.log import MemoryLog, Topics

_TASK = sink.SinkTask(
    location=LogLocation(kind="embedded", address="here"),
    topic="out",
    uid="u",
    partitions=1,
    key_schema=KEY_SCHEMA,
    value_schema=VALUE_SCHEMA,
    schema_id=1,
    key_schema_id=1,
    origin=Origin(OriginKind.JOB, "clicks", 1),
    skew_limit_ms=1_000,
    clock=lambda: NOON_MS,
)


class _BrokerLog(MemoryLog):
    """A log whose clock is behind: it takes records, and says which of them readers will not."""

    def append(self, at: TopicPartition, records: pa.RecordBatch) -> Appended:
        """See `Log.append`."""
        return replace(super().append(at, records), rejected=(1,))


@pytest.mark.case("rules:R6", "rules:R26")
def test_a_batch_whose_records_readers_reject_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs again once the clocks have come together; recorded, its records would be missing without a word."""
    log = _BrokerLog(Topics(), clock=lambda: NOON_MS)
    log.create_topic(TopicSpec("out", "u", 1))
    monkeypatch.setattr(sink, "_log_of", lambda _task: log)
    values: list[Any] = [{"text": "a"}, {"text": "b"}]
    columns: list[Any] = [pa.array(["k1", "k2"]), pa.array(values), pa.array([NOON_MS, NOON_MS + 900])]
    output = sink._Output(_TASK, batch=0, epoch=1, attempt=0)
    output.add(pa.RecordBatch.from_arrays(columns, names=["key", "value", "written_at"]))
    output.flush()
    with pytest.raises(Failed) as caught:
        output.report(0)
    assert caught.value.code == "written_at_out_of_range"
    assert "1 of 2 records" in str(caught.value.found)
