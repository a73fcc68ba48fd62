"""One replica takes the place of another one only when it has come up to it: to readers nothing ever goes back."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from anew.api.stores.replicas import ReplicaState
from anew.core.errors import Failed, Unreachable
from anew.core.feed import PositionMap
from anew.core.partition import XxHash64Partitioner
from anew.log.embedded import EmbeddedLog
from anew.log.interface import Log, LogRead, Offsets, TailLost, TopicPartition, topic_partition
from anew.node.stores.engine import Engine
from anew.storage.replica import Replica
from anew.storage.rocks import RocksError
from tests.component.node.harness import World, caught_up, clock, config, engine_in, key_of, value_of, wait_for, world

pytestmark = pytest.mark.processes

_PLACE = XxHash64Partitioner(4)


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A version of one partition, of which the feed has deleted a key and written another one."""
    with world(tmp_path) as made:
        made.version(1, {"deleted": "base", "written": "base"}, config=config(partitions=1))
        made.write("deleted", None)
        made.write("written", "new")
        yield made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (0.02, 0.05))
    monkeypatch.setattr("anew.node.stores.engine._RETRY_SECONDS", (0.05, 0.1))


class SlowLog:
    """A log that does not answer below an offset of a feed partition until it is let go."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.held: PositionMap = PositionMap()
        self.damaged: int | None = None
        self.is_silent = False
        self.asked = threading.Event()
        self.after_loss: list[Callable[[], object]] = []

    def read(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """Read, unless it is held."""
        if any(each.partition == at.partition and offset < until for each, until in self.held.items()):
            self.asked.set()
            raise Unreachable("log_unreachable", "the log is away")
        if at.partition == self.damaged and self._log.offsets(at).end > offset:
            raise Failed("log_corrupt", "a partition of the log is damaged")
        try:
            return self._log.read(at, offset, max_records, end)
        except TailLost:
            while self.after_loss:
                self.after_loss.pop()()
            raise

    def offsets(self, at: TopicPartition) -> Offsets:
        """Ask, unless it is silent."""
        if self.is_silent:
            raise Unreachable("log_unreachable", "the log is away")
        return self._log.offsets(at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def _is_served(engine: Engine) -> bool:
    return (value_of(engine, "deleted"), value_of(engine, "written")) == (None, "new")


def _break_its_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever does not lie beside another one can apply nothing more."""
    apply = Replica.apply

    def unable(replica: Replica, *given: Any) -> None:
        if not str(replica.directory).endswith("-beside"):
            raise RocksError("Corruption: block checksum mismatch")
        apply(replica, *given)

    monkeypatch.setattr(Replica, "apply", unable)


def _places(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "node" / "replicas").glob("*/v1/*/*"))


def _begin_to_replace(
    engine: Engine, words: World, log: SlowLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk breaks, and another one lies beside it that can read nothing of what it has."""
    engine.accept(words.desired())
    wait_for("the feed", lambda: caught_up(engine) and _is_served(engine))
    log.held = words.ends()
    _break_its_disk(monkeypatch)
    words.write("written", "newer")
    wait_for("the load", lambda: len(_places(tmp_path)) == 2 and log.asked.is_set())


@pytest.mark.case("rules:R3")
def test_readers_never_go_back_while_a_replica_is_loaded_again(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the other one has read what this one had, what was deleted stays deleted; then that one goes on."""
    log = SlowLog(words.log)
    with engine_in(tmp_path, log=cast(Log, log)) as engine:
        _begin_to_replace(engine, words, log, tmp_path, monkeypatch)
        told = wait_for("the report", lambda: "lies beside it" in str((r := engine.report().replicas[0]).error) and r)
        assert (told.state, told.lag_records > 0) == (ReplicaState.ERROR, True)
        assert _is_served(engine)
        engine.accept(words.desired())
        log.held = PositionMap()
        wait_for("the write", lambda: value_of(engine, "written") == "newer")
        assert value_of(engine, "deleted") is None
        wait_for("health", lambda: caught_up(engine) and engine.report().replicas[0].arrived)
        wait_for("the end of the damaged one", lambda: len(_places(tmp_path)) == 1)


def test_a_restart_goes_on_where_one_comes_up_to_another(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lie there: the one that is to be replaced serves at once, and the other one takes its place later."""
    log = SlowLog(words.log)
    with engine_in(tmp_path, log=cast(Log, log)) as engine, monkeypatch.context() as patch:
        _begin_to_replace(engine, words, log, tmp_path, patch)
    log = SlowLog(EmbeddedLog(tmp_path / "log", clock=clock))
    log.held = words.ends()
    with engine_in(tmp_path, log=cast(Log, log)) as engine:
        engine.accept(words.desired())
        wait_for("what it had", lambda: _is_served(engine))
        assert log.asked.wait(20.0)
        assert _tells(engine, "checksum mismatch", "lies beside it")
        log.held = PositionMap()
        wait_for("the write", lambda: value_of(engine, "written") == "newer")
        assert value_of(engine, "deleted") is None
        wait_for("the end of the other one", lambda: len(_places(tmp_path)) == 1)


def test_a_base_alone_answers_no_reads(words: World, tmp_path: Path) -> None:
    """A replica that was just loaded is read once it was at the ends, also after a restart: deleted stays deleted."""
    log = SlowLog(words.log)
    log.held = words.ends()
    with engine_in(tmp_path, log=cast(Log, log)) as engine:
        engine.accept(words.desired())
        assert log.asked.wait(20.0)
        assert (value_of(engine, "deleted"), value_of(engine, "written")) == ("not_here", "not_here")
        report = engine.report().replicas[0]
        assert (report.state, report.fresh, report.arrived) == (ReplicaState.APPLYING, True, False)
    log = SlowLog(EmbeddedLog(tmp_path / "log", clock=clock))
    log.held = words.ends()
    with engine_in(tmp_path, log=cast(Log, log)) as engine:
        engine.accept(words.desired())
        assert log.asked.wait(20.0)
        assert value_of(engine, "deleted") == "not_here"
        log.held = PositionMap()
        wait_for("the feed", lambda: value_of(engine, "deleted") != "not_here")
        assert _is_served(engine)
        report = engine.report().replicas[0]
        assert (report.fresh, report.arrived) == (False, True)
    # What has been there once is read at once, however far behind it is.
    log = SlowLog(EmbeddedLog(tmp_path / "log", clock=clock))
    words.log = EmbeddedLog(tmp_path / "log", clock=clock)
    log.is_silent = True
    with engine_in(tmp_path, log=cast(Log, log)) as engine:
        engine.accept(words.desired())
        wait_for("what it had", lambda: _is_served(engine))


@pytest.mark.case("rules:R3")
def test_of_two_that_lie_there_the_further_one_goes_on_alone_where_the_log_has_no_more(
    words: World, tmp_path: Path
) -> None:
    """The fresh one could not read what it lacks: the other one serves and applies, and stays."""
    fresh_log = SlowLog(words.log)
    fresh_log.held = words.ends()
    with engine_in(tmp_path, log=cast(Log, fresh_log)) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: fresh_log.asked.is_set())
    (first,) = (tmp_path / "node" / "replicas").glob("*/v1/*/*")
    first.rename(tmp_path / "fresh")
    # The node has closed its log.
    words.log = EmbeddedLog(tmp_path / "log", clock=clock)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the feed", lambda: caught_up(engine) and _is_served(engine))
    first.rename(first.with_name(f"{first.name}-beside"))
    (tmp_path / "fresh").rename(first)
    topic = topic_partition(words.feed, _PLACE.of(key_of("deleted")))
    words.log.truncate_below(topic, words.log.offsets(topic).end)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("what it had", lambda: _is_served(engine))
        words.write("written", "newer")
        wait_for("the write", lambda: value_of(engine, "written") == "newer")
        wait_for("the end of the fresh one", lambda: _places(tmp_path) == [f"{first.name}-beside"])
        wait_for("health", lambda: caught_up(engine))


def test_what_breaks_in_the_other_one_too_is_told_and_changes_nothing(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both fail over the same record: the first one serves on, with both reasons in its report."""
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the feed", lambda: caught_up(engine) and _is_served(engine))

        def unable(replica: Replica, *_given: Any) -> None:
            if str(replica.directory).endswith("-beside"):
                raise Failed("unforeseen", "the other one fails too")
            raise RocksError("Corruption: block checksum mismatch")

        monkeypatch.setattr(Replica, "apply", unable)
        words.write("written", "newer")
        wait_for("both reasons", lambda: _tells(engine, "checksum mismatch", "the other one fails too"))
        assert _is_served(engine)
        words.versions.pop(1)
        engine.accept(words.desired())
        wait_for("the end of both", lambda: _places(tmp_path) == [])


@pytest.mark.case("rules:R3")
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_tail_that_the_log_has_lost_is_not_forgiven_once_the_log_has_grown(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    """What was written in the place of the lost records is applied, although the log grew as soon as it answered."""
    names = [name for number in range(99) if _PLACE.of(key_of(name := f"k{number}")) == 0][:6]
    with world(tmp_path) as before:
        before.version(1, dict.fromkeys(names, "base"), config=config(partitions=1))
        before.log.close()
        shutil.copytree(tmp_path / "log", tmp_path / "log-before")
    with world(tmp_path) as words, engine_in(tmp_path) as engine:
        words.versions, words.revision = before.versions, before.revision
        engine.accept(words.desired())
        for name in names[:3]:
            words.write(name, "lost")
        wait_for("the feed", lambda: caught_up(engine) and value_of(engine, names[2]) == "lost")
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "log-before").rename(tmp_path / "log")
    with world(tmp_path) as words:
        words.versions, words.revision = before.versions, before.revision
        words.write(names[3], "in its place")
        log = SlowLog(EmbeddedLog(tmp_path / "log", clock=clock))
        log.is_silent = is_restarted
        log.after_loss = [partial(words.write, name, "in its place") for name in reversed(names[3:])]
        with engine_in(tmp_path, log=cast(Log, log)) as engine:
            engine.accept(words.desired())
            wait_for("the loss", lambda: not log.after_loss)
            if not is_restarted:
                wait_for("what was written", partial(_has, engine, names))
        if is_restarted:
            with engine_in(tmp_path) as engine:
                engine.accept(words.desired())
                wait_for("what was written", partial(_has, engine, names))


def _has(engine: Engine, names: list[str]) -> bool:
    """Whether what was lost is gone, and what was written in its place is there."""
    wanted = ["base"] * 3 + ["in its place"] * 3
    return caught_up(engine) and [value_of(engine, name) for name in names] == wanted


def test_a_feed_partition_that_cannot_be_read_keeps_no_replica_from_taking_over(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has all that the one before has takes its place, and reads on what can be read."""
    a, b = (next(f"z{n}" for n in range(99) if _PLACE.of(key_of(f"z{n}")) == at) for at in (0, 3))
    log = SlowLog(words.log)
    with engine_in(tmp_path, log=cast(Log, log)) as engine:
        engine.accept(words.desired())
        wait_for("the feed", lambda: caught_up(engine) and _is_served(engine))
        log.damaged = 3
        words.write(b, "never read")
        wait_for("the trouble", lambda: _tells(engine, "damaged"))
        _break_its_disk(monkeypatch)
        words.write(a, "new")
        wait_for("the write", lambda: value_of(engine, a) == "new")
        assert _is_served(engine)
        assert _tells(engine, "damaged")


def _tells(engine: Engine, *reasons: str) -> bool:
    error = "; ".join(str(replica.error) for replica in engine.report().replicas)
    return all(reason in error for reason in reasons)
