"""What breaks in one replica, feed partition or moment stays there: the others go on, and it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anew.api.models import DesiredState, NodeReport
from anew.api.stores.replicas import ReplicaState
from anew.core.errors import Failed
from anew.core.partition import XxHash64Partitioner
from anew.log.interface import topic_partition
from anew.node.process import ControllerLink
from anew.node.stores.engine import Engine
from anew.storage.memory import NodeMemory
from anew.storage.replica import Replica
from anew.storage.rocks import RocksError
from tests.component.node.harness import (
    World,
    caught_up,
    clock,
    config,
    damage_files,
    engine_in,
    key_of,
    value_of,
    wait_for,
    world,
)

pytestmark = pytest.mark.processes


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A world without a version."""
    with world(tmp_path) as made:
        yield made


@contextmanager
def _large(words: World, tmp_path: Path) -> Iterator[tuple[Engine, list[str]]]:
    """An engine with a replica whose files can be damaged, and its keys, each with the same value."""
    names = [f"k{number}" for number in range(4_000)]
    words.version(1, dict.fromkeys(names, "b" * 50), config=config(partitions=1))
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        yield engine, names


def _damaged() -> tuple[list[int], Callable[..., None]]:
    """What stands in for `Replica.apply` where a block is bad, and how often it was tried."""
    tries = [0]

    def unable(_replica: Replica, *_given: Any) -> None:
        tries[0] += 1
        raise RocksError("Corruption: a bad block")

    return tries, unable


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RocksError("Corruption: bad block"),
        MemoryError(),
        KeyError("unforeseen"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_replica_that_cannot_apply_holds_up_no_other(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The others apply; it says why, is never without lag meanwhile, and goes on once it can."""
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (0.05, 0.1))
    words.version(1, {"a": "base"}, config=config(partitions=2))
    places = {XxHash64Partitioner(2).of(key_of(name)): name for name in ("k1", "k2", "k3", "k4", "k5", "k6")}
    apply, broken = Replica.apply, [True]

    def unable(replica: Replica, *given: Any) -> None:
        if broken[0] and "/p0-" in str(replica.directory):
            raise error
        apply(replica, *given)

    monkeypatch.setattr(Replica, "apply", unable)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        for name in places.values():
            words.write(name, "new")
        wait_for("the healthy replica", lambda: value_of(engine, places[1]) == "new")

        def told() -> list[tuple[ReplicaState, bool, bool]]:
            return [
                (r.state, r.lag_records > 0, r.lag_ms > 0)
                for r in engine.report().replicas
                if r.error and not r.partition
            ]

        wait_for("the report", lambda: told() and told()[0][1:] == (True, True))

        def healthy() -> bool:
            found = next(r for r in engine.report().replicas if r.partition == 1)
            assert (found.state, found.error) == (ReplicaState.APPLYING, None)
            return found.lag_records == 0

        # What was written can be read a moment before the position says so.
        wait_for("the healthy one's report", healthy)
        broken[0] = False
        wait_for("the mended replica", lambda: value_of(engine, places[0]) == "new")
        wait_for("its report", lambda: all(not r.lag_records for r in engine.report().replicas))


def test_a_replica_that_fails_again_is_told_to_fail_since_the_first_time(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry is no progress: it stays in error from its first failure to its first success, however often it tries."""
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (0.02, 0.05))
    words.version(1, {"a": "base"}, config=config(partitions=1))
    apply, broken, tries = Replica.apply, [True], [0]

    def unable(replica: Replica, *given: Any) -> None:
        tries[0] += 1
        if broken[0]:
            raise KeyError("nobody foresaw this")
        apply(replica, *given)

    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        monkeypatch.setattr(Replica, "apply", unable)
        words.write("a", "new")
        first = wait_for("the failure", lambda: (r := engine.report().replicas[0]).error and r)
        seen = []
        while tries[0] < 6:
            seen.append(engine.report().replicas[0])
        assert {(r.state, r.error_code, bool(r.error)) for r in seen} == {(ReplicaState.ERROR, first.error_code, True)}
        assert [r.stuck_ms for r in seen] == sorted(r.stuck_ms for r in seen)
        broken[0] = False
        wait_for("the write", lambda: value_of(engine, "a") == "new")
        wait_for("health", lambda: (r := engine.report().replicas[0]).state is ReplicaState.APPLYING and not r.error)
        assert engine.report().replicas[0].stuck_ms == 0


def test_a_replica_that_breaks_again_is_not_loaded_again_and_again(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time it is loaded again; what comes again after that waits for longer each time, and is told."""
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (0.02, 0.05))
    words.version(1, {"a": "base"}, config=config(partitions=1))
    (tries, unable), discarded, discard = _damaged(), [0], Replica.discard

    def counted(replica: Replica) -> None:
        discarded[0] += 1
        discard(replica)

    monkeypatch.setattr(Replica, "discard", counted)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        monkeypatch.setattr(Replica, "apply", unable)
        words.write("a", "new")
        wait_for("many tries", lambda: tries[0] > 12)
        assert discarded[0] == 1
        assert value_of(engine, "a") == "base"
        assert engine.report().replicas[0].state is ReplicaState.ERROR
        # The pause is over: the next failure has it loaded again.
        next(iter(engine.holdings())).reloaded_at -= 3_000
        wait_for("the second load", lambda: discarded[0] == 2)
        assert value_of(engine, "a") == "base"


@pytest.mark.case("rules:R3")
def test_what_the_log_has_no_more_is_not_thrown_away(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged replica of which the log has not all that follows its base may be the last copy: it serves on."""
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (0.02, 0.05))
    words.version(1, {"a": "base"}, config=config(partitions=1))
    tries, unable = _damaged()

    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        words.write("a", "written")
        wait_for("the write", lambda: value_of(engine, "a") == "written")
        for at, end in words.ends().items():
            words.log.truncate_below(topic_partition(words.feed, at.partition), end)
        monkeypatch.setattr(Replica, "apply", unable)
        words.write("a", "newer")
        wait_for("many tries", lambda: tries[0] > 8)
        assert value_of(engine, "a") == "written"
        assert engine.report().replicas[0].state is ReplicaState.ERROR


def test_a_replica_outlives_a_full_disk_at_its_start(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be opened for want of room is told, kept, and opened once there is some; nothing is loaded again."""
    monkeypatch.setattr("anew.node.stores.engine._RETRY_SECONDS", (0.05, 0.1))
    words.version(1, {"a": "base"}, config=config(partitions=1))
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        words.write("a", "new")
        wait_for("the write", lambda: value_of(engine, "a") == "new")
    for at, end in words.ends().items():
        # Were it loaded again, this would be lost.
        words.log.truncate_below(topic_partition(words.feed, at.partition), end)
    full = [True]
    opening = Replica.open_existing

    def opened(directory: Path, memory: NodeMemory, manifest: str) -> Replica | None:
        if full[0]:
            raise Failed("storage_broken", "RocksDB cannot open a replica", found="No space left on device")
        return opening(directory, memory, manifest)

    monkeypatch.setattr(Replica, "open_existing", opened)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        told = wait_for("the trouble", lambda: (r := engine.report().replicas) and r[0].error_code and r[0])
        assert (told.state, told.error_code) == (ReplicaState.PENDING, "disk_full")
        full[0] = False
        wait_for("the replica", lambda: value_of(engine, "a") == "new")


def test_damage_that_only_readers_meet_loads_the_replica_again(words: World, tmp_path: Path) -> None:
    """Where nothing is written a read that fails is told, and the replica replaced; one bad moment is no verdict."""
    with _large(words, tmp_path) as (engine, names):
        (holding,) = engine.holdings()
        assert holding.replica is not None
        holding.replica._doubt = lambda: None
        wait_for("a second look", lambda: holding.replica is not None and not holding.replica.is_in_doubt)
        assert (holding.state, holding.reloads) == (ReplicaState.APPLYING, 0)
        damage_files(tmp_path / "node" / "replicas")
        assert "storage_broken" in {value_of(engine, name) for name in names}
        wait_for("the load", lambda: "loaded again: " in str(engine.report().replicas[0].error), 60.0)
        assert {value_of(engine, name) for name in names} == {"b" * 50}
        assert engine.report().replicas[0].state is ReplicaState.APPLYING


def test_a_damaged_block_loads_the_replica_again(words: World, tmp_path: Path) -> None:
    """A replica whose own disk was damaged is discarded and loaded from the base; what was written since is there."""
    with _large(words, tmp_path) as (engine, names):
        damage_files(tmp_path / "node" / "replicas")
        for name in names[::40]:
            words.write(name, "new")
        # The damaged one answers from its memory until then.
        wait_for("the load", lambda: str(engine.report().replicas[0].error).startswith("loaded again: "), 60.0)
        wait_for("what was written", lambda: [value_of(engine, name) for name in names[:80:40]] == ["new", "new"])
        assert value_of(engine, names[1]) == "b" * 50


def test_a_replica_that_leaves_lends_its_schemas_to_nobody(words: World, tmp_path: Path) -> None:
    """A record that the store's newest schemas and feeds let in is applied, whatever a version that leaves knew."""
    words.version(1, {"a": "base"})
    words.version(2, {"a": "base"})
    words.current = 2
    partition = XxHash64Partitioner(4).of(key_of("a"))
    with engine_in(tmp_path) as engine:
        engine._identity = SimpleNamespace(  # type: ignore[assignment]  # one that lets a replica go slowly
            **{
                name: getattr(engine._identity, name)
                for name in ("node", "fabric", "url", "directory", "started_at_ms")
            },
            replicas=engine._identity.replicas,
            loading=engine._identity.loading,
            verifying=engine._identity.verifying,
            removal_grace_seconds=60.0,
        )
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        bad = words.write("a", "x", schema_id=9)
        words.write("a", "2")
        wait_for("the wait", lambda: engine.report().unknown_schemas)
        ends = words.ends()
        words.schemas = {1: words.schemas[1], 2: '["null","string"]'}
        (at,) = [at for at in ends if at.partition == partition]
        words.feed = words.feed.with_settled(partition, ends[at], 2)
        words.versions.pop(1)
        engine.accept(words.desired())
        wait_for("the acknowledged write", lambda: value_of(engine, "a") == "2")
        assert [(d.partition, d.offset) for d in engine.report().dead_letters] == [(partition, bad)]


def test_a_letter_outlives_the_process(words: World, tmp_path: Path) -> None:
    """A rejection that no report has carried yet is told by the next run, although the position has moved past it."""
    words.version(1, {"a": "base"})
    partition = (XxHash64Partitioner(4).of(key_of("a")) + 1) % 4
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        offset = words.write("a", "x", partition=partition)
        wait_for("the letter", engine.dead_letters.waiting)
    with engine_in(tmp_path) as engine:
        assert [(d.partition, d.offset) for d in engine.dead_letters.waiting()] == [(partition, offset)]
        engine.dead_letters.reported(engine.dead_letters.waiting())
    with engine_in(tmp_path) as engine:
        assert engine.dead_letters.waiting() == ()


class _Asked:
    """A controller that gives out the world's newest state, and counts."""

    def __init__(self, words: World) -> None:
        self.words, self.polls = words, 0

    def desired(self, node: str, fabric: str, after: int = -1, wait_seconds: float = 0.0) -> DesiredState | None:
        self.polls += 1
        state = self.words.desired()
        return state if state.revision > after else None

    def report(self, request: NodeReport) -> None:
        """Nobody looks."""


def test_a_disk_that_is_full_for_a_moment_ends_no_poll(words: World, tmp_path: Path) -> None:
    """The node takes newer states all the same, and keeps the newest once there is room."""
    words.version(1, {"a": "1"})
    with engine_in(tmp_path) as engine:
        settings: Any = SimpleNamespace(directory=tmp_path, node="n1", fabric="dc-0", clock=clock)
        (tmp_path / "desired.json.new").symlink_to("/dev/full")
        asked = _Asked(words)
        link = ControllerLink(asked, engine, settings)
        link.start()
        try:
            wait_for("the trouble", lambda: [t.loop for t in engine.loops.troubles()] == ["desired state"])
            assert "No space left" in engine.loops.troubles()[0].error
            words.version(2, {"a": "2"})
            words.current = 2
            wait_for("the newer state", lambda: value_of(engine, "a") == "2")
            (tmp_path / "desired.json.new").unlink()
            wait_for("health", lambda: not engine.loops.troubles())
            wait_for("the kept state", lambda: '"current":2' in (tmp_path / "desired.json").read_text())
        finally:
            link.stop()
