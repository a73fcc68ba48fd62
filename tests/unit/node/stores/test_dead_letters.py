"""Dead letters: on the disk before a position moves past them, told once, and never more on the disk than can wait."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from anew.core.feed import FeedPartition
from anew.node.stores import holding
from anew.node.stores.holding import DeadLetters

AT = FeedPartition("changes", 3)


def offsets(letters: DeadLetters) -> list[int]:
    """Of those that wait."""
    return [letter.offset for letter in letters.waiting()]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where they are kept."""
    return tmp_path / "dead-letters.jsonl"


def kept(journal: Path, *found: int) -> DeadLetters:
    """A node's letters, written down."""
    letters = DeadLetters(journal)
    for offset in found:
        letters.add("uid-1", AT, offset, "unknown schema")
    letters.keep()
    return letters


def test_what_was_kept_is_told_by_the_next_run(journal: Path) -> None:
    """A node that was killed tells after its start what it had written down."""
    kept(journal, 1, 2)
    assert offsets(DeadLetters(journal)) == [1, 2]


def test_a_line_that_a_crash_cut_does_not_swallow_the_next(journal: Path) -> None:
    """A half line is dropped; the line that is appended after a restart stands whole."""
    kept(journal, 1)
    with journal.open("a") as file:
        file.write('["uid-1", "chan')
    kept(journal, 2)
    assert offsets(DeadLetters(journal)) == [1, 2]


def test_a_line_that_a_full_disk_cut_does_not_swallow_the_next(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node lives on: what it could not keep is kept once there is room, on lines of its own."""
    letters = kept(journal, 1)

    def full(_descriptor: int) -> None:
        journal.write_bytes(journal.read_bytes()[:-9])
        raise OSError(errno.ENOSPC, "No space left on device")

    letters.add("uid-1", AT, 2, "unknown schema")
    with monkeypatch.context() as patch:
        patch.setattr("anew.node.stores.holding.os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            letters.keep()
    letters.keep()
    assert offsets(DeadLetters(journal)) == [1, 2]


def test_told_ones_leave_no_file(journal: Path) -> None:
    """The journal goes when a report has carried all, and what was told is not added again."""
    letters = kept(journal, 1, 2)
    letters.reported(letters.waiting())
    assert not journal.exists()
    letters.add("uid-1", AT, 1, "unknown schema")
    assert letters.waiting() == ()


def test_one_that_was_added_but_not_yet_kept_is_kept_with_the_rewritten_ones(journal: Path) -> None:
    """A report between adding and keeping loses nothing."""
    letters = kept(journal, 1)
    told = letters.waiting()
    letters.add("uid-1", AT, 2, "unknown schema")
    letters.reported(told)
    letters.keep()
    assert offsets(DeadLetters(journal))[-1:] == [2]


def test_the_journal_stays_in_bounds_while_some_always_wait(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is always one that waits, and the file does not grow with those that were told."""
    monkeypatch.setattr(holding, "MAX_DEAD_LETTERS", 4)
    letters = kept(journal, 0)
    for offset in range(1, 60):
        told = letters.waiting()
        letters.add("uid-1", AT, offset, "unknown schema")
        letters.keep()
        letters.reported(told)
        assert offsets(letters) == [offset]
        assert len(journal.read_text().splitlines()) <= 2 * 4 + 1
    assert offsets(DeadLetters(journal))[-1:] == [59]
