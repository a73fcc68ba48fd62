"""Which record of a batch may take its place behind, or instead of, the last one."""

from __future__ import annotations

from typing import Any

import pytest

from anew.core.errors import Refused
from anew.core.jobs.batch import NO_DIGEST, BatchRecord, behind, chained, check_next


def _record(batch: int, epoch: int = 1, **changes: Any) -> BatchRecord:
    values: dict[str, Any] = {
        "batch": batch,
        "epoch": epoch,
        "start": {"events": {0: batch * 10}},
        "end": {"events": {0: batch * 10 + 10}},
        "rows": 10,
        "planned": f"p{batch}",
        "digest": chained(NO_DIGEST, f"p{batch}"),
        "at_ms": 5,
    }
    return BatchRecord(**{**values, **changes})


def test_records_follow_one_another() -> None:
    """The next batch begins where the last one ended; the first is number 0."""
    assert check_next(None, _record(0))
    assert check_next(_record(0), _record(1))


def test_a_record_is_final() -> None:
    """The same record again is nothing: its answer may have been lost."""
    assert not check_next(_record(3), _record(3, at_ms=9))


@pytest.mark.parametrize(
    ("last", "record", "code"),
    [
        (None, _record(1), "batch_gap"),
        (_record(3), _record(5), "batch_gap"),
        (_record(3), _record(2, epoch=2), "batch_gap"),
        (_record(3), _record(4, start={"events": {0: 41}}), "batch_gap"),
        (_record(3, epoch=2), _record(3), "batch_differs"),
        (_record(3), _record(3, rows=11), "batch_differs"),
        (_record(3), _record(3, epoch=2), "batch_differs"),
    ],
)
def test_nothing_else_is_taken(last: BatchRecord | None, record: BatchRecord, code: str) -> None:
    """Gaps, and another record of a batch that is recorded, are refused, also of a later driver."""
    with pytest.raises(Refused) as caught:
        check_next(last, record)
    assert caught.value.code == code


def test_what_is_left_is_counted_over_all_partitions() -> None:
    """A partition that is not read yet counts whole; one past the end counts nothing."""
    assert behind({"a": {0: 3, 1: 12}}, {"a": {0: 10, 1: 10, 2: 4}, "b": {0: 1}}) == 12
