"""How ``anew write`` ends where the log takes no more: by what is on disk, not by what was tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.cli.reads import _stopped
from anew.client.writer import Writer
from anew.core.errors import AnewError, OutcomeUnknown, PartlyDone, Refused, Unreachable
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicSpec
from anew.testing.builders import a_feed
from anew.testing.clock import ManualClock
from tests.unit.client.fleet import a_fleet

_FEED = a_feed(partitions=1)
_ERRORS = (Unreachable("log_full", "full"), Refused("topic_closed", "closed"), OutcomeUnknown("append_unknown", "lost"))


def _writer(directory: Path, records: int) -> Writer:
    log = EmbeddedLog(directory, clock=ManualClock(), durable=False)
    log.create_topic(TopicSpec(_FEED.topic, _FEED.topic_uid, 1))
    writer = Writer(a_fleet(feed=_FEED).routing, log)
    for number in range(records):
        writer.put(f"key-{number}", {"text": ""})
    return writer


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: error.code)
@pytest.mark.parametrize("buffered", [0, 7])
def test_what_is_on_disk_is_counted(tmp_path: Path, error: AnewError, buffered: int) -> None:
    """Some is on disk: exit 6, or 5 where an outcome is unknown, with how many of how many."""
    writer = _writer(tmp_path, 4_000 + buffered)
    ended = _stopped(writer, 12_000, error)
    assert ended.message == f"4,000 of 12,000 records are on disk: {error.message}"
    assert (ended.code, ended.exit_code) == (error.code, 5 if isinstance(error, OutcomeUnknown) else 6)
    assert ended.found["on_disk"] == 4_000


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: error.code)
def test_where_nothing_is_on_disk_the_error_says_it(tmp_path: Path, error: AnewError) -> None:
    """Its own exit code, because nothing was changed, or nobody knows."""
    assert _stopped(_writer(tmp_path, 9), 9, error) is error


def test_rejected_records_are_not_counted(tmp_path: Path) -> None:
    """Records that readers reject leave a write that is done in part, also when nothing else was written."""
    error = PartlyDone("written_at_out_of_range", "readers reject 1 of 1 records")
    ended = _stopped(_writer(tmp_path, 0), 1, error)
    assert (ended.exit_code, ended.message.startswith("0 of 1 records")) == (6, True)
