"""Setting records aside in a log whose records have no headers: where each was, and why, stands in its origin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anew.log.interface import APPEND_RECORDS, Log, SetAside, TopicPartition


def copy_aside(log: Log, at: TopicPartition, letters: Sequence[SetAside], to: TopicPartition) -> int:
    """See `Log.set_aside`."""
    present, rows = log.offsets(at), list[dict[str, Any]]()
    for letter in sorted(letters, key=lambda letter: letter.offset):
        if present.begin <= letter.offset < present.end:
            (record,) = log.read(at, letter.offset, 1).records.to_pylist()
            rows.append({**{name: record[name] for name in APPEND_RECORDS.names}, **_marked(at, letter, record)})
    if rows:
        log.append(to, pa.RecordBatch.from_pylist(rows, schema=APPEND_RECORDS))
    return len(rows)


def _marked(at: TopicPartition, letter: SetAside, record: dict[str, Any]) -> dict[str, Any]:
    """What differs in the copy: its time is that of the copying, and its origin says all the rest."""
    said = {
        "topic": at.topic,
        "partition": at.partition,
        "offset": letter.offset,
        "reason": letter.reason,
        "origin": record["origin"].hex(),
        "written_ms": record["written_ms"],
    }
    return {"origin": json.dumps(said).encode(), "written_ms": None}
