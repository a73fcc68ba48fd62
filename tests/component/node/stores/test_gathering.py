"""What a round reads of several feed partitions is applied together, and nothing of it is lost when that breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anew.core.errors import Failed, Unreachable
from anew.core.feed import FeedPartition
from anew.log.interface import Log, LogRead, TopicPartition
from anew.node.loader import Loader
from anew.node.stores.engine import Engine
from anew.storage.portions import Portion
from anew.storage.replica import Replica
from anew.storage.rocks import Database
from tests.component.node.harness import World, caught_up, config, engine_at, value_of, wait_for, world

pytestmark = pytest.mark.processes

WORDS = [f"word-{number}" for number in range(40)]
"""Enough for each of four feed partitions and of a few partitions to have some."""
_Reject = Callable[[list[tuple[FeedPartition, int]]], None]


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A world without a version."""
    with world(tmp_path) as made:
        yield made


@dataclass(slots=True)
class _Reads:
    """How the log is read: ``events`` notes it, and it does not answer for the feed partitions that are ``away``."""

    events: list[str] = field(default_factory=list)
    away: set[int] = field(default_factory=set)


@pytest.fixture
def reads(words: World, monkeypatch: pytest.MonkeyPatch) -> _Reads:
    """The reads of the world's own log."""
    reads, read = _Reads(), words.log.read

    def noted(at: TopicPartition, *rest: Any) -> LogRead:
        reads.events.append(f"read {at.partition}")
        if at.partition in reads.away:
            raise Unreachable("log_unreachable", "the log is away")
        return read(at, *rest)

    monkeypatch.setattr(words.log, "read", noted)
    return reads


@contextmanager
def _stepped(words: World, log: Log | None = None) -> Iterator[Engine]:
    """An engine that has caught up with what there is, and goes on by hand."""
    own = Loader()
    engine = engine_at(words.folder, own, log)
    engine.accept(words.desired())
    _catch_up(engine, words)
    try:
        yield engine
    finally:
        own.close()
        engine.stop()


def _catch_up(engine: Engine, words: World) -> None:
    def arrived() -> bool:
        while engine.step():
            pass
        ends = words.ends()
        positions = [replica.position for replica in engine.report().replicas]
        return caught_up(engine) and all(ends[at] == offset for found in positions for at, offset in found.items())

    wait_for("all that there is", arrived)


def _write_all(words: World, value: str) -> None:
    for word in WORDS:
        words.write(word, value)
    assert all(words.ends().values())


def _served(engine: Engine) -> set[str | None]:
    return {value_of(engine, word) for word in WORDS}


@pytest.mark.case("rules:R5", "rules:R18")
@pytest.mark.parametrize("partitions", [1, 3], ids=str)
def test_a_replica_writes_once_what_a_round_read(
    words: World, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """Records of all four feed partitions, and the positions of all, are in one write of each replica."""
    words.version(1, {}, config=config(partitions=partitions))
    writes: list[tuple[int, int]] = []
    write = Database.write

    def counted(database: Database, keys: list[bytes], cells: list[bytes], meta: Any = (), **how: Any) -> None:
        if keys:
            writes.append((len(keys), len(meta)))
        write(database, keys, cells, meta, **how)

    with _stepped(words) as engine:
        monkeypatch.setattr(Database, "write", counted)
        _write_all(words, "new")
        assert engine.step()
        assert len(writes) == partitions
        assert sum(keys for keys, _ in writes) == len(WORDS)
        assert {positions for _, positions in writes} == {4}
        assert _served(engine) == {"new"}
        assert {replica.position for replica in engine.report().replicas} == {words.ends()}


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (4, ["read 0", "p0", "read 1", "p1", "read 2", "p2", "read 3", "p3"]),
        (2, ["read 0", "read 2", "p0", "read 1", "read 3", "p1"]),
        (3, ["read 0", "read 1", "read 2", "read 3", "p0", "p1", "p2"]),
    ],
    ids=["one by one", "two by two", "all of all"],
)
def test_a_replica_waits_for_no_feed_partition_that_is_not_its_own(
    words: World, reads: _Reads, monkeypatch: pytest.MonkeyPatch, partitions: int, expected: list[str]
) -> None:
    """It applies as soon as all is read that it reads: what was written is readable then."""
    words.version(1, {}, config=config(partitions=partitions))
    apply = Replica.apply

    def noted(replica: Replica, portions: Iterable[Portion], reject: _Reject) -> None:
        reads.events.append(replica.directory.parent.name.partition("-")[0])
        apply(replica, portions, reject)

    with _stepped(words, words.log) as engine:
        monkeypatch.setattr(Replica, "apply", noted)
        _write_all(words, "new")
        reads.events.clear()
        assert engine.step()
        assert reads.events == expected


@pytest.mark.case("rules:R5")
@pytest.mark.parametrize("most", [1, 7], ids=str)
def test_much_is_applied_before_more_is_read(words: World, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """However little a batch may have, a round brings everything, each record with its position."""
    monkeypatch.setattr("anew.storage.portions.BATCH_RECORDS", most)
    monkeypatch.setattr("anew.node.stores.gathering.BATCH_RECORDS", most)
    words.version(1, {}, config=config(partitions=3))
    with _stepped(words) as engine:
        _write_all(words, "new")
        assert engine.step()
        assert _served(engine) == {"new"}
        assert {replica.position for replica in engine.report().replicas} == {words.ends()}


@pytest.mark.case("rules:R5", "rules:R18")
def test_a_round_that_breaks_is_read_again(words: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that no list names sets one replica aside alone: the others apply, and it goes on a moment later."""
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (0.05, 0.05))
    words.version(1, {}, config=config(partitions=3))
    apply, calls = Replica.apply, [0]

    def broken_once(replica: Replica, portions: Iterable[Portion], reject: _Reject) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise RuntimeError("the disk went away")
        apply(replica, portions, reject)

    with _stepped(words) as engine:
        _write_all(words, "old")
        _catch_up(engine, words)
        monkeypatch.setattr(Replica, "apply", broken_once)
        calls[0] = 0
        _write_all(words, "new")
        engine.step()
        assert _served(engine) == {"old", "new"}
        broken = [replica for replica in engine.report().replicas if replica.error is not None]
        assert [("the disk went away" in str(r.error), r.lag_records > 0, r.lag_ms > 0) for r in broken] == [
            (True,) * 3
        ]
        _catch_up(engine, words)
        assert _served(engine) == {"new"}


def test_a_replica_that_cannot_apply_holds_up_no_other(words: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why and goes on later, from where it stands; the others have applied what the round read."""
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (0.05, 0.05))
    words.version(1, {}, config=config(partitions=3))
    apply, broken = Replica.apply, [True]

    def unable(replica: Replica, portions: Sequence[Portion], reject: _Reject) -> None:
        if broken[0] and "/p1-" in str(replica.directory):
            raise Failed("unknown_cell_format", "a cell was written by another release")
        apply(replica, portions, reject)

    with _stepped(words) as engine:
        _write_all(words, "old")
        _catch_up(engine, words)
        monkeypatch.setattr(Replica, "apply", unable)
        _write_all(words, "new")
        engine.step()
        assert _served(engine) == {"old", "new"}
        errors = {replica.partition: replica.error for replica in engine.report().replicas if replica.error}
        assert list(errors) == [1]
        assert "a cell was written by another release" in str(errors[1])
        broken[0] = False
        _catch_up(engine, words)
        assert _served(engine) == {"new"}


def test_a_feed_partition_that_does_not_answer_holds_up_no_other(words: World, reads: _Reads) -> None:
    """What was read of the others is applied in the same round; the one is read when it answers again."""
    words.version(1, {}, config=config(partitions=1))
    with _stepped(words, words.log) as engine:
        reads.away = {2}
        _write_all(words, "new")
        engine.step()
        assert _served(engine) == {None, "new"}
        (replica,) = engine.report().replicas
        assert "the log does not answer" in str(replica.error)
        assert {at.partition for at, end in words.ends().items() if replica.position[at] < end} == {2}
        reads.away = set()
        _catch_up(engine, words)
        assert _served(engine) == {"new"}


def test_a_feed_partition_that_does_not_answer_is_asked_once_a_round(
    words: World, reads: _Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions that stand at different offsets of it do not wait for it one after the other."""
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (0.05, 0.05))
    words.version(1, {}, config=config(partitions=1))
    words.version(2, {}, config=config(partitions=1))
    apply, behind = Replica.apply, [True]

    def second_stays_behind(replica: Replica, portions: Sequence[Portion], reject: _Reject) -> None:
        if behind[0] and "/v2/" in str(replica.directory):
            raise Failed("unknown_cell_format", "a cell was written by another release")
        apply(replica, portions, reject)

    with _stepped(words, words.log) as engine:
        monkeypatch.setattr(Replica, "apply", second_stays_behind)
        _write_all(words, "old")
        engine.step()
        assert [replica.position == words.ends() for replica in engine.report().replicas] == [True, False]
        _write_all(words, "new")
        behind[0], reads.away = False, {2}

        def both_apply() -> bool:
            reads.events.clear()
            engine.step()
            assert reads.events.count("read 2") <= 1
            return all(replica.state == "applying" for replica in engine.report().replicas) and "read 2" in reads.events

        wait_for("both to ask for what does not answer", both_apply)
        reads.away = set()
        _catch_up(engine, words)
        assert _served(engine) == {"new"}
