"""A replica may be the last that has what was acknowledged: it goes when another one is there, and one version is
never served worse for what is wrong with another."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anew.api.stores.replicas import ReplicaState
from anew.core.errors import Failed
from anew.core.partition import XxHash64Partitioner
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicPartition, topic_partition
from anew.node.stores import serving
from anew.node.stores.engine import Engine
from anew.storage.replica import Replica
from anew.storage.rocks import Database, RocksError
from tests.component.node.harness import World, caught_up, config, engine_in, key_of, value_of, wait_for, world

pytestmark = pytest.mark.processes

_PLACE = XxHash64Partitioner(4)
_RAISES = """
import pyarrow as pa

class Mine:
    def __init__(self, partitions):
        self.partitions = partitions

    def __call__(self, keys):
        if any(b"bad" in key for key in keys.to_pylist()):
            raise ValueError("no region in this key")
        return pa.array([0] * len(keys), pa.int32())
"""
_MISSING = "import a_module_of_the_client_only\n" + _RAISES


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A world without a version."""
    with world(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (0.02, 0.05))
    monkeypatch.setattr("anew.node.stores.engine._RETRY_SECONDS", (0.05, 0.1))


def _key_in(feed_partition: int, prefix: str) -> str:
    return next(name for number in range(99) if _PLACE.of(key_of(name := f"{prefix}{number}")) == feed_partition)


def test_a_damaged_replica_serves_until_another_one_is_there(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its base is lost too it may be the last copy: it stays, says so, and is replaced once that is back."""
    names = [f"k{number}" for number in range(100)]
    words.version(1, dict.fromkeys(names, "base"), config=config(partitions=1))
    apply, sick = Replica.apply, [True]

    def unable(replica: Replica, *given: Any) -> None:
        if sick[0] and not str(replica.directory).endswith("-beside"):
            raise RocksError("Corruption: block checksum mismatch")
        apply(replica, *given)

    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        (base,) = (tmp_path / "deep").rglob("*.parquet")
        lost = base.rename(tmp_path / "lost")
        monkeypatch.setattr(Replica, "apply", unable)
        words.write("k7", "new")
        told = wait_for(
            "the trouble", lambda: "cannot be loaded again" in str((r := engine.report().replicas[0]).error) and r
        )
        assert (told.state, told.lag_records > 0) == (ReplicaState.ERROR, True)
        assert {value_of(engine, name) for name in names} == {"base"}
        lost.rename(base)
        wait_for("the write", lambda: value_of(engine, "k7") == "new")
        assert value_of(engine, "k1") == "base"
        lying = (tmp_path / "node" / "replicas").glob
        wait_for("the end of the damaged one", lambda: len([*lying("*/v1/*/*")]) == 1)
        assert [path.name.endswith("-beside") for path in lying("*/v1/*/*")] == [True]
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the replica, opened where it lies", lambda: value_of(engine, "k7") == "new")


@pytest.mark.case("rules:R3")
def test_what_one_feed_partition_lost_throws_nothing_of_another_away(tmp_path: Path) -> None:
    """A tail is lost in one; of the other one the log has no longer what follows the base: the replica stays."""
    a, b = _key_in(0, "a"), _key_in(1, "b")
    log, before = tmp_path / "log", tmp_path / "log-before"
    with world(tmp_path) as words:
        words.version(1, {"x": "base"}, config=config(partitions=1))
        words.log.close()
        shutil.copytree(log, before)
    with world(tmp_path) as again:
        again.versions, again.revision = words.versions, words.revision
        with engine_in(tmp_path) as engine:
            engine.accept(again.desired())
            again.write(a, "written-a")
            again.write(b, "written-b")
            wait_for("both", lambda: (value_of(engine, a), value_of(engine, b)) == ("written-a", "written-b"))
        again.log.truncate_below(topic_partition(again.feed, 1), 1)
        again.log.close()
    for path in list(log.rglob("p-00000*")):
        path.unlink()
    for path in before.rglob("p-00000*"):
        shutil.copy(path, log / path.relative_to(before))
    with world(tmp_path) as third:
        third.versions, third.revision = words.versions, words.revision
        with engine_in(tmp_path) as engine:
            engine.accept(third.desired())
            told = wait_for("the trouble", lambda: (r := engine.report().replicas) and r[0].error_code and r[0])
            assert told.state is ReplicaState.ERROR
            assert (value_of(engine, a), value_of(engine, b)) == ("written-a", "written-b")


def test_a_picture_that_fails_once_is_made_again(words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A swap is served although the moment in which it was taken had no memory left."""
    words.version(1, {"x": "one"}, config=config(partitions=1))
    words.version(2, {"x": "two"}, config=config(partitions=1))
    words.current = 1
    picture, failed = serving.picture_of, list[int]()

    def once(*given: Any) -> Any:
        if not failed:
            failed.append(1)
            raise MemoryError("no memory is left")
        return picture(*given)

    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine) and value_of(engine, "x") == "one")
        monkeypatch.setattr("anew.node.stores.engine.picture_of", once)
        words.current = 2
        engine.accept(words.desired())
        wait_for("the swap", lambda: failed and value_of(engine, "x") == "two")


def test_a_partitioner_that_cannot_be_loaded_is_one_version_s_trouble(words: World, tmp_path: Path) -> None:
    """Its replicas say so, also after a restart; every other version is served."""
    words.version(1, {"x": "base"}, config=config(partitions=1))
    words.current = 1
    desired = words.desired()
    (store,) = desired.stores
    own = config(partitions=1, partitioner="mine:Mine", partitioner_source=_MISSING)
    other = store.model_copy(
        update={"uid": "u2", "name": "others", "versions": (store.versions[0].model_copy(update={"config": own}),)}
    )
    both = desired.model_copy(update={"stores": (other, store), "revision": desired.revision + 1})
    for _ in range(2):
        with engine_in(tmp_path) as engine:
            engine.accept(both)
            wait_for("the other store", lambda: value_of(engine, "x") == "base")
            told = wait_for(
                "the trouble", lambda: [r for r in engine.report().replicas if r.store_uid == "u2" and r.error]
            )
            assert "a_module_of_the_client_only" in str(told[0].error)
            assert engine.loops.troubles() == ()


def test_a_partitioner_that_fails_over_a_key_stalls_its_own_version_alone(words: World, tmp_path: Path) -> None:
    """The version in service goes on past a key that a kept one cannot place; that one says why it stands still."""
    own = config(partitions=1, partitioner="mine:Mine", partitioner_source=_RAISES)
    words.version(1, {"x": "base"}, config=own)
    words.version(2, {"x": "base"}, config=config(partitions=1))
    words.current = 2
    later = _key_in(_PLACE.of(key_of("bad-key")), "later")
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        words.write("bad-key", "v")
        words.write(later, "acknowledged")
        wait_for("the write behind it", lambda: value_of(engine, later) == "acknowledged")
        assert value_of(engine, "bad-key") == "v"
        told = wait_for("the trouble", lambda: [r for r in engine.report().replicas if r.version == 1 and r.error])
        assert (told[0].state, "no region in this key" in str(told[0].error)) == (ReplicaState.ERROR, True)
        healthy = next(r for r in engine.report().replicas if r.version == 2)
        assert (healthy.state, healthy.error) == (ReplicaState.APPLYING, None)


def _acknowledged(words: World, tmp_path: Path) -> None:
    """A node has loaded a version and applied a write, and ended."""
    words.version(1, {"x": "base"}, config=config(partitions=1))
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        words.write("x", "acknowledged")
        wait_for("the write", lambda: value_of(engine, "x") == "acknowledged")


@pytest.mark.parametrize("said", ["IO error: While open a file: Too many open files", "Corruption: bad MANIFEST"])
def test_what_cannot_be_opened_once_is_not_thrown_away(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """The log has no longer what it holds: it is kept, says so, and serves as soon as it can be opened."""
    _acknowledged(words, tmp_path)
    words.log.truncate_below(topic_partition(words.feed, _PLACE.of(key_of("x"))), 1)
    sick = [True]

    def opened(*given: Any, **named: Any) -> Any:
        if sick[0]:
            raise RocksError(said)
        return Database(*given, **named)

    monkeypatch.setattr("anew.storage.replica.Database", opened)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        told = wait_for("the trouble", lambda: (r := engine.report().replicas) and r[0].error_code and r[0])
        assert said.partition(":")[0] in str(told.error)
        wait_for("further tries", lambda: next(iter(engine._holdings.values())).failures > 8)
        assert value_of(engine, "x") != "base"
        sick[0] = False
        wait_for("what it holds", lambda: value_of(engine, "x") == "acknowledged")


def test_what_cannot_be_opened_is_loaded_again_beside(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has all that follows the base: another one takes its place, which is then tidied up."""
    _acknowledged(words, tmp_path)
    (manifest,) = (tmp_path / "node" / "replicas").rglob("MANIFEST-*")
    manifest.write_bytes(b"nothing of RocksDB")
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the write", lambda: value_of(engine, "x") == "acknowledged")
        assert len([*(tmp_path / "node" / "replicas").glob("*/v1/*/*")]) == 1


def test_of_two_that_lie_there_none_goes_for_one_that_cannot_be_opened(words: World, tmp_path: Path) -> None:
    """One lies beside what cannot be opened, and the log has no longer what follows the base: it serves, both stay."""
    _acknowledged(words, tmp_path)
    words.log.truncate_below(topic_partition(words.feed, _PLACE.of(key_of("x"))), 1)
    (whole,) = (tmp_path / "node" / "replicas").glob("*/v1/*/*")
    beside = whole.rename(whole.with_name(f"{whole.name}-beside"))
    whole.mkdir()
    (whole / "CURRENT").write_text("MANIFEST-000001\n")
    (whole / "MANIFEST-000001").write_bytes(b"nothing of RocksDB")
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("what it holds", lambda: value_of(engine, "x") == "acknowledged")
        assert (whole.exists(), beside.exists()) == (True, True)


@pytest.mark.case("rules:R3")
def test_a_feed_partition_that_cannot_be_read_holds_up_no_other(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of the same replica are read on as they come, and not once in its pause."""
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (3600.0, 3600.0))
    words.version(1, {"x": "base"}, config=config(partitions=1))
    a, b = _key_in(0, "a"), _key_in(1, "b")
    read = EmbeddedLog.read

    def damaged(log: EmbeddedLog, at: TopicPartition, *given: Any, **named: Any) -> Any:
        if at.partition == 0 and log.offsets(at).end > 0:
            raise Failed("log_corrupt", "a partition of the log is damaged")
        return read(log, at, *given, **named)

    monkeypatch.setattr(EmbeddedLog, "read", damaged)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        words.write(a, "unread")
        wait_for("the trouble", lambda: engine.report().replicas[0].error_code == "log_corrupt")
        for text in ("first", "second", "third"):
            words.write(b, text)
            wait_for("the write", partial(_is_served, engine, b, text))


def test_what_one_replica_cannot_read_keeps_no_other_from_what_lies_before(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stands at a damaged record; another one, of a newer version, is read up to it at once."""
    monkeypatch.setattr("anew.node.stores.feeds._BACKOFF_SECONDS", (3600.0, 3600.0))
    words.version(1, {"x": "base"}, config=config(partitions=1))
    key = _key_in(0, "a")
    read = EmbeddedLog.read

    def damaged(log: EmbeddedLog, at: TopicPartition, offset: int, most: int, end: int | None = None) -> Any:
        if at.partition == 0 and offset >= 1 and log.offsets(at).end > 1:
            raise Failed("log_corrupt", "a partition of the log is damaged")
        return read(log, at, offset, 1 if at.partition == 0 else most, end)

    monkeypatch.setattr(EmbeddedLog, "read", damaged)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        words.write(key, "before")
        wait_for("the write", lambda: caught_up(engine) and value_of(engine, key) == "before")
        words.write(key, "damaged")
        wait_for("the trouble", lambda: engine.report().replicas[0].error_code == "log_corrupt")
        words.version(2, {"x": "base"}, config=config(partitions=1))
        engine.accept(words.desired())

        def reached() -> list[int]:
            newer = [replica for replica in engine.report().replicas if replica.version == 2]
            return [offset for replica in newer for at, offset in replica.position.items() if at.partition == 0]

        # It answers no reads before it was at the end.
        wait_for("what lies before", lambda: reached() == [1])


def test_a_replica_whose_positions_are_damaged_is_loaded_again(words: World, tmp_path: Path) -> None:
    """RocksDB opens it, and cannot read where it stands: that is as broken as one that it cannot open."""
    _acknowledged(words, tmp_path)
    for _ in range(2):
        # What is in the write-ahead log is written into sorted files at the next start.
        with engine_in(tmp_path) as engine:
            engine.accept(words.desired())
            wait_for("the replica", lambda: caught_up(engine) and value_of(engine, "x") == "acknowledged")
    files = (tmp_path / "node" / "replicas").rglob("*.sst")
    positions = [path for path in sorted(files) if b"position/" in path.read_bytes()][-1]
    content = bytearray(positions.read_bytes())
    content[8] ^= 0x40
    positions.write_bytes(content)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("another one", lambda: caught_up(engine) and value_of(engine, "x") == "acknowledged")


def test_what_can_be_opened_again_serves_and_not_the_base_that_was_loaded_meanwhile(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many files were open for a while; what was written since the base is served as soon as anything is."""
    _acknowledged(words, tmp_path)
    monkeypatch.setattr("anew.node.stores.opening._OPEN_ATTEMPTS", 1)
    is_sick = [True]

    def opened(directory: str, *given: Any, **named: Any) -> Any:
        if is_sick[0] and not directory.endswith("-beside"):
            raise RocksError("IO error: While open a file: Too many open files")
        return Database(directory, *given, **named)

    monkeypatch.setattr("anew.storage.replica.Database", opened)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("a load", lambda: any(holding.load is not None for holding in engine.holdings()))
        is_sick[0] = False
        first = wait_for("an answer", lambda: (found := value_of(engine, "x")) in ("base", "acknowledged") and found)
        assert first == "acknowledged"
        wait_for("one of the two", lambda: caught_up(engine) and value_of(engine, "x") == "acknowledged")


def _is_served(engine: Engine, key: str, text: str) -> bool:
    return value_of(engine, key) == text


def test_a_replica_that_leaves_leaves_no_directory(words: World, tmp_path: Path) -> None:
    """Nor do those that a run before has left empty: each would be looked into with every change, for ever."""
    words.version(1, {"x": "base"})
    replicas = tmp_path / "node" / "replicas"
    (replicas / "u9" / "v3" / "p0-s0").mkdir(parents=True)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        assert not (replicas / "u9").exists()
        words.versions.pop(1)
        words.revision += 1
        engine.accept(words.desired())
        wait_for("the end of it", lambda: [*replicas.iterdir()] == [])
