"""Loads whose base is not what its manifest promises: fetched again once, then the replica is in error (case G2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from anew.api.stores.replicas import ReplicaState
from anew.core.errors import Failed
from anew.log.interface import TopicSpec
from anew.node.loader import Job, Loader
from anew.node.stores.engine import Engine
from anew.segments.manifest import BaseRange, SubPartition
from anew.storage.replica import Replica
from anew.testing.builders import some_records
from tests.component.node.harness import World, base_rows, caught_up, config, engine_in, value_of, wait_for, world

pytestmark = pytest.mark.processes


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A world with one version of one partition."""
    with world(tmp_path) as made:
        made.version(1, {"a": "base-a", "b": "base-b"}, config=config(partitions=1))
        yield made


class HeldLoader(Loader):
    """A loader that counts loads, and lets each second one begin only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0
        self.go_on = threading.Event()

    def submit(self, job: Job[Any]) -> Future[Any]:
        """Queue the job, once it may begin."""
        self.loads += 1
        if self.loads == 1:
            return super().submit(job)
        outcome: Future[Any] = Future()

        def begin() -> None:
            self.go_on.wait(20)
            try:
                outcome.set_result(super(HeldLoader, self).submit(job).result())
            except Failed as error:
                outcome.set_exception(error)

        threading.Thread(target=begin, daemon=True).start()
        return outcome


class LoaderHere(Loader):
    """A loader that counts loads, and does them in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0

    def submit(self, job: Job[Any]) -> Future[Any]:
        """Do it at once."""
        self.loads += 1
        outcome: Future[Any] = Future()
        try:
            outcome.set_result(job.run())
        except Failed as error:
            outcome.set_exception(error)
        return outcome


def base_file(folder: Path) -> Path:
    """The version's one base file."""
    return next((folder / "deep").rglob("*.parquet"))


def flipped(path: Path) -> None:
    """Another last byte."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def states(engine: Engine) -> list[ReplicaState]:
    """The states that are reported."""
    return [replica.state for replica in engine.report().replicas]


def error_of(engine: Engine) -> str:
    """The error that is reported."""
    return str(engine.report().replicas[0].error)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (flipped, "the footer of v1/p0-s0.parquet is not what was written"),
        (Path.unlink, "p0-s0.parquet"),
    ],
    ids=["a byte", "no file"],
)
@pytest.mark.case("stores:G2")
def test_a_broken_base_is_fetched_again_once(
    words: World, tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    """It is never served: the second fetch is reported while it goes on, and after it the replica stays in error."""
    damage(base_file(tmp_path))
    loader = HeldLoader()
    with engine_in(tmp_path, loader=loader) as engine:
        engine.accept(words.desired())
        wait_for("the second fetch", lambda: loader.loads == 2)
        assert states(engine) == [ReplicaState.LOADING]
        assert error_of(engine).startswith("fetched again: ")
        assert says in error_of(engine)
        loader.go_on.set()
        wait_for("the error", lambda: states(engine) == [ReplicaState.ERROR])
        assert says in error_of(engine)
        assert engine.picture.store("words", None).version("1").replicas == {}
        holding = next(iter(engine._holdings.values()))
        assert holding.retry_at - time.monotonic() > 30, "whoever mends the file has time"
        assert loader.loads == 2
        loader.go_on.clear()
        holding.retry_at = 0.0
        wait_for("a look whether somebody did", lambda: loader.loads == 3)
        assert states(engine) == [ReplicaState.ERROR]
        loader.go_on.set()


@pytest.mark.case("stores:G2")
def test_what_broke_on_the_way_is_mended_by_the_second_fetch(words: World, tmp_path: Path) -> None:
    """A base that is whole when it is fetched again is served, and nothing is said of the first fetch any more."""
    file = base_file(tmp_path)
    whole = file.read_bytes()
    flipped(file)
    loader = HeldLoader()
    with engine_in(tmp_path, loader=loader) as engine:
        engine.accept(words.desired())
        wait_for("the second fetch", lambda: loader.loads == 2)
        file.unlink()
        file.write_bytes(whole)
        loader.go_on.set()
        wait_for("the load", lambda: caught_up(engine))
        assert value_of(engine, "a") == "base-a"
        assert engine.report().replicas[0].error is None


@pytest.mark.case("stores:G2")
def test_a_manifest_that_promises_more_is_refused(words: World, tmp_path: Path) -> None:
    """A base file with another number of rows than its manifest says is fetched twice and not served."""
    file = words.write_base("more.parquet", base_rows({"a": "x"}))
    assert file is not None
    promised = file.model_copy(update={"rows": file.rows + 1})
    del words.versions[1]
    words.seal(2, (SubPartition(partition=0, sub_partition=0, runs=((promised,),)),), config(partitions=1), {})
    loader = HeldLoader()
    loader.go_on.set()
    with engine_in(tmp_path, loader=loader) as engine:
        engine.accept(words.desired())
        wait_for("the error", lambda: states(engine) == [ReplicaState.ERROR])
        assert "more.parquet does not hold what its manifest says" in error_of(engine)
        assert loader.loads == 2


@pytest.mark.case("stores:G2")
def test_rows_that_rocksdb_lost_are_missed(words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted files that lost rows between loader and database are loaded again, and then in error."""
    created = Replica.create

    def without_files(directory: Path, memory: Any, runs: Any, base: Any) -> Replica:
        return created(directory, memory, [], base)

    monkeypatch.setattr(Replica, "create", without_files)
    loader = LoaderHere()
    with engine_in(tmp_path, loader=loader) as engine:
        engine.accept(words.desired())
        wait_for("the error", lambda: states(engine) == [ReplicaState.ERROR])
        assert "RocksDB does not hold what the base does; found: 0 entries" in error_of(engine)
        assert loader.loads == 2


def _cut(words: World, part: BaseRange) -> BaseRange:
    words.log.truncate_below(part.at, part.pieces[0][0] + 1)
    return part


def _overwritten(words: World, part: BaseRange) -> BaseRange:
    words.log.append(part.at, some_records(1))
    return part.model_copy(update={"pieces": ((part.pieces[0][0], part.pieces[-1][1] + 1),)})


def _counted_wrong(words: World, part: BaseRange) -> BaseRange:
    return part.model_copy(update={"rows": part.rows + 1})


def _made_again(words: World, part: BaseRange) -> BaseRange:
    words.log.delete_topic(part.topic, part.topic_uid)
    words.log.create_topic(TopicSpec(part.topic, "another", 1))
    return part


@pytest.mark.case("stores:G7", "rules:R23")
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_cut, "was truncated"),
        (_overwritten, "holds other records than those that were sealed"),
        (_counted_wrong, "EOP of words_v2/0@0-4 does not say what its manifest says"),
        (_made_again, "is not the one that was asked for"),
    ],
    ids=["truncated", "foreign records", "another count", "another topic"],
)
def test_a_broken_range_is_fetched_again_once(
    words: World, tmp_path: Path, damage: Callable[[World, BaseRange], BaseRange], says: str
) -> None:
    """What lies in the version topic is not what was sealed: read twice, never served, the reason is reported."""
    _in_topic(words, damage)
    loader = HeldLoader()
    loader.go_on.set()
    with engine_in(tmp_path, loader=loader) as engine:
        engine.accept(words.desired())
        wait_for("the error", lambda: states(engine) == [ReplicaState.ERROR])
        assert says in error_of(engine)
        assert loader.loads == 2


@pytest.mark.case("stores:G6")
def test_a_range_is_loaded_and_served(words: World, tmp_path: Path) -> None:
    """A base that went through the log is served like any other, what was written on top of it included."""
    _in_topic(words, lambda _, part: part)
    words.write("b", "written-b")
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        assert value_of(engine, "a") == "base-a"
        wait_for("the write", lambda: value_of(engine, "b") == "written-b")


def _in_topic(words: World, damage: Callable[[World, BaseRange], BaseRange]) -> None:
    del words.versions[1]
    frozen = config(partitions=1, transport="log")
    part = damage(words, words.append_base(2, frozen, {"a": "base-a", "b": "base-b"}))
    words.current = 2
    words.seal(2, (SubPartition(partition=0, sub_partition=0, runs=((part,),)),), frozen, {})
