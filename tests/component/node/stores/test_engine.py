"""The engine with real RocksDB, a real log and a real deep store."""

from __future__ import annotations

import os
import shutil
import signal
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from anew.api.location import LogLocation
from anew.api.models import DesiredState, NodeReport
from anew.api.stores.replicas import ReplicaState
from anew.core.admission import UNKNOWN_SCHEMA
from anew.core.errors import Unreachable
from anew.core.feed import FeedPartition, PositionMap
from anew.log.embedded import EmbeddedLog
from anew.log.interface import LogRead, TopicPartition, topic_partition
from anew.log.open import open_log
from anew.log.topics import TopicDirectories
from anew.node.keeping import read_desired, save_desired
from anew.node.loader import Loader
from anew.node.process import ControllerLink
from anew.node.stores.engine import Engine
from anew.segments.manifest import SubPartition
from tests.component.node.harness import (
    PARTITIONS,
    World,
    base_rows,
    caught_up,
    clock,
    config,
    engine_in,
    value_of,
    wait_for,
    world,
)

pytestmark = pytest.mark.processes


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A world without versions yet."""
    with world(tmp_path) as made:
        yield made


def error_of(engine: Engine) -> str:
    """The errors that the replicas report."""
    return "; ".join(replica.error for replica in engine.report().replicas if replica.error is not None)


@pytest.mark.case("stores:G1", "rules:R4")
def test_a_base_is_loaded_and_feeds_go_on_top(words: World, tmp_path: Path) -> None:
    """Values of the base are served, and a nearline write, update or delete shows on top of them."""
    words.version(1, {"a": "base-a", "b": "base-b", "c": "base-c"})
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        assert [value_of(engine, key) for key in "abcd"] == ["base-a", "base-b", "base-c", None]
        words.write("a", "new-a")
        words.write("b", None)
        words.write("d", "new-d")
        wait_for("the feed", lambda: value_of(engine, "d") == "new-d" and value_of(engine, "b") is None)
        wait_for("the update", lambda: value_of(engine, "a") == "new-a")
        assert value_of(engine, "c") == "base-c"


@pytest.mark.case("stores:C9")
def test_an_empty_partition_serves_not_found(words: World, tmp_path: Path) -> None:
    """A version without any record is loaded and answers that a key is absent."""
    words.version(1, {})
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        assert value_of(engine, "a") is None
        assert [replica.rows for replica in engine.report().replicas] == [0] * PARTITIONS


@pytest.mark.case("stores:C5")
def test_a_tombstone_in_the_base_hides_an_older_write(words: World, tmp_path: Path) -> None:
    """A put that says it was written before the delete in the base stays without effect."""
    words.version(1, {"a": None, "b": "base-b"})
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        words.write("a", "late", written_ms=40)
        words.write("a", None, written_ms=41)
        words.write("b", "seen")
        wait_for("the feed", lambda: value_of(engine, "b") == "seen" and caught_up(engine))
        assert value_of(engine, "a") is None
        words.write("a", "newer", written_ms=60)
        wait_for("the newer write", lambda: value_of(engine, "a") == "newer")


@pytest.mark.case("stores:G4", "rules:R5")
def test_a_restart_goes_on_where_the_data_are(words: World, tmp_path: Path) -> None:
    """After a restart the replica is not loaded again, goes on from its saved position, and misses nothing."""
    words.version(1, {"a": "base-a"})
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        words.write("a", "one")
        wait_for("the first write", lambda: caught_up(engine) and value_of(engine, "a") == "one")
        identities = {path: path.read_text() for path in (tmp_path / "node/replicas").rglob("IDENTITY")}
    words.write("a", "two")
    for path in (tmp_path / "deep").rglob("*.parquet"):
        path.unlink()
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the second write", lambda: caught_up(engine) and value_of(engine, "a") == "two")
        assert {path: path.read_text() for path in identities} == identities


@pytest.mark.case("rules:R4")
def test_a_load_without_its_marker_is_thrown_away(words: World, tmp_path: Path) -> None:
    """A directory that a crash left before the marker was written is replaced by a fresh load."""
    version = words.version(1, {"a": "base-a", "b": "base-b"})
    for partition in range(PARTITIONS):
        left = tmp_path / "node/replicas/u1/v1" / f"p{partition}-s0" / version.manifest.checksum[:16]
        left.mkdir(parents=True)
        (left / "CURRENT").write_text("half written")
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        assert (value_of(engine, "a"), value_of(engine, "b")) == ("base-a", "base-b")


@pytest.mark.case("rules:R1")
def test_records_below_the_start_are_never_applied(words: World, tmp_path: Path) -> None:
    """A record below a version's start stays without effect on it, though another version applies it."""
    offset = words.write("a", "before")
    ends = {
        at: words.log.offsets(TopicPartition("words_rt", "t1", at.partition)).end for at in words.feed.feed_partitions()
    }
    words.version(1, {})
    words.version(2, {}, start=PositionMap(ends))
    assert offset == 0
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        words.write("b", "after")
        wait_for("both versions", lambda: caught_up(engine) and value_of(engine, "b", "2") == "after")
        wait_for("the version that applies it", lambda: value_of(engine, "a", "1") == "before")
        assert value_of(engine, "a", "2") is None


@pytest.mark.case("stores:G1")
def test_an_unsorted_base_is_refused(words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report names file and key of a base file whose keys do not ascend."""
    rows = base_rows(dict.fromkeys("abc", "x"))
    upside_down = rows.take(pa.array([2, 1, 0]))
    monkeypatch.setattr("anew.segments.basefile.check_ascending", lambda keys, last, path: keys[len(keys) - 1].as_py())
    file = words.write_base("bad.parquet", upside_down)
    assert file is not None
    sub = SubPartition(partition=0, sub_partition=0, runs=((file,),))
    words.seal(1, (sub,), config(partitions=1), {})
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the refusal", lambda: [r.state for r in engine.report().replicas] == [ReplicaState.ERROR])
        assert "bad.parquet is marked sorted but is not" in error_of(engine)
        assert b"b".hex() in error_of(engine)


@pytest.mark.case("stores:E5")
def test_a_missing_dictionary_is_named(words: World, tmp_path: Path) -> None:
    """A version whose dictionary is missing is not loaded, and the report names the dictionary."""
    words.version(1, {"a": "x"}, config=config("zstd_dict"), dictionary="v1/lost.dict")
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the refusal", lambda: error_of(engine).count("v1/lost.dict") == PARTITIONS)
        assert engine.picture.store("words", None).version("1").replicas == {}


class WatchedLog:
    """A log that gives ten records at a time, notes the reads that gave any, and can be out of reach."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self.delivered: list[tuple[int, int]] = []
        self.away = False

    def read(self, at: TopicPartition, offset: int, max_records: int, end: int | None = None) -> LogRead:
        """Read, and note what was given."""
        if self.away:
            raise Unreachable("log_unreachable", "the log is away")
        read = self._log.read(at, offset, min(max_records, 10), end)
        if read.next_offset > offset:
            self.delivered.append((at.partition, offset))
        return read

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


@pytest.mark.case("rules:R3")
def test_a_log_that_lost_its_tail_means_a_fresh_load(words: World, tmp_path: Path) -> None:
    """A position beyond the log's end: the replica is loaded again, says so, and serves what the log still has."""
    words.version(1, {"a": "base-a"})
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        words.write("a", "lost")
        wait_for("the write", lambda: caught_up(engine) and value_of(engine, "a") == "lost")
    lost = tmp_path / "node"
    kept = lost.rename(tmp_path / "kept")
    for path in (tmp_path / "log").rglob("*"):
        if path.is_file():
            path.unlink()
    words.log.close()
    kept.rename(lost)
    with world(tmp_path) as again, engine_in(tmp_path) as engine:
        again.versions, again.revision = words.versions, words.revision
        engine.accept(again.desired())
        wait_for("the reload", lambda: caught_up(engine) and value_of(engine, "a") == "base-a")
        assert "loaded again: dc-0/words_rt#1/" in error_of(engine)


@pytest.mark.case("rules:R2", "rules:R3")
def test_what_the_log_lost_before_it_was_applied_takes_nothing_along(words: World, tmp_path: Path) -> None:
    """A position below the log's begin: no reload could bring back what was applied, so that stays, and it says so."""
    words.version(1, {"a": "base-a"})
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        words.write("a", "applied")
        wait_for("the write", lambda: caught_up(engine) and value_of(engine, "a") == "applied")
    words.write("a", "lost")
    for at, end in words.ends().items():
        words.log.truncate_below(topic_partition(words.feed, at.partition), end)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the loss to be said", lambda: "truncated" in error_of(engine))
        assert value_of(engine, "a") == "applied"


def at_ends(engine: Engine, words: World) -> bool:
    """Whether every replica stands at the log's ends, which one that was just opened need not have seen."""
    ends = words.ends()
    return all(
        offset == ends.get(at, 0) for replica in engine.report().replicas for at, offset in replica.position.items()
    )


@pytest.mark.case("rules:R25")
def test_a_laggard_reads_on_its_own(words: World, tmp_path: Path) -> None:
    """Replicas that keep up share each read; one that is behind reads by itself and holds nobody up."""
    words.version(1, {})
    log = WatchedLog(EmbeddedLog(tmp_path / "log", clock=clock))
    with engine_in(tmp_path, log=log) as engine:  # type: ignore[arg-type]  # passes the rest on
        engine.accept(words.desired())
        wait_for("the first version", lambda: caught_up(engine))
        for number in range(200):
            words.write(f"k{number}", "v")
        wait_for("the records", lambda: caught_up(engine) and value_of(engine, "k199") == "v")
        words.version(2, {})
        engine.accept(words.desired())
        words.write("fresh", "now")
        wait_for("the replicas in front", lambda: value_of(engine, "fresh", "1") == "now")
        wait_for("the laggard", lambda: caught_up(engine) and value_of(engine, "fresh", "2") == "now")
        wait_for("the other one", lambda: at_ends(engine, words))
        assert len(log.delivered) > len(set(log.delivered))
        log.delivered.clear()
        words.write("shared", "once")
        wait_for("both", lambda: value_of(engine, "shared", "1") == value_of(engine, "shared", "2") == "once")
        assert len(log.delivered) == 1


def test_all_feed_partitions_are_begun_at_once(words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a node reads for a replica the log hears of all that this one reads, once, from where each is applied."""
    heard: list[dict[int, int]] = []

    def fetch_ahead(_log: EmbeddedLog, places: Mapping[TopicPartition, int], **_how: bool) -> None:
        heard.append({at.partition: offset for at, offset in places.items()})

    monkeypatch.setattr(EmbeddedLog, "fetch_ahead", fetch_ahead)
    for number in range(20):
        words.write(f"k{number}", "before")
    starts = {at.partition: 1 for at in words.feed.feed_partitions()}
    words.version(1, {}, start=PositionMap(dict.fromkeys(words.feed.feed_partitions(), 1)))
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the version", lambda: caught_up(engine))
        words.write("k0", "after")
        wait_for("the write", lambda: value_of(engine, "k0") == "after")
    assert dict(ChainMap(*heard)) == starts
    assert sum(map(len, heard)) == len(starts)
    # A replica may be loaded one round before the other.
    assert len(heard) <= PARTITIONS < len(starts)


def test_an_append_that_nobody_told_of_is_applied_all_the_same(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that dies between its commit and the hint for readers costs a moment, and no record."""
    words.version(1, {})
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        words.write("a", "told")
        wait_for("the first write", lambda: value_of(engine, "a") == "told")
        monkeypatch.setattr(TopicDirectories, "touch", lambda *_: None)
        words.write("a", "untold")
        wait_for("the second write", lambda: value_of(engine, "a") == "untold")


def test_a_log_out_of_reach_is_waited_for(words: World, tmp_path: Path) -> None:
    """While the log does not answer the node serves what it has and says so; afterwards it goes on."""
    words.version(1, {"a": "base-a"})
    log = WatchedLog(EmbeddedLog(tmp_path / "log", clock=clock))
    with engine_in(tmp_path, log=log) as engine:  # type: ignore[arg-type]  # passes the rest on
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        log.away = True
        # First: a look at the log that was under way would still bring what is written now.
        wait_for("the complaint", lambda: "the log does not answer" in error_of(engine))
        words.write("a", "later")
        assert value_of(engine, "a") == "base-a"
        log.away = False
        wait_for("the write", lambda: value_of(engine, "a") == "later")
        wait_for("the silence", lambda: error_of(engine) == "")


def test_replicas_that_have_caught_up_are_told_of_at_once(words: World, tmp_path: Path) -> None:
    """Their version goes into service without waiting for the next report that is due anyway."""
    words.version(1, {})
    log = WatchedLog(EmbeddedLog(tmp_path / "log", clock=clock))
    log.away = True
    with engine_in(tmp_path, log=log) as engine:  # type: ignore[arg-type]  # passes the rest on
        engine.accept(words.desired())
        wait_for("the load", lambda: [r.state for r in engine.report().replicas] == ["applying"] * PARTITIONS)
        wait_for("the complaint", lambda: "the log does not answer" in error_of(engine))
        engine.changed.clear()
        log.away = False
        wait_for("the news", engine.changed.is_set)


@pytest.mark.case("stores:I3")
def test_lag_is_reported_and_is_nothing_at_the_end(words: World, tmp_path: Path) -> None:
    """While a value schema is unknown the replica waits, says why and reports its lag; then the lag is 0."""
    words.version(1, {})
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the load", lambda: caught_up(engine))
        words.write("a", "x", schema_id=2)
        wait_for("the wait", lambda: any(r.lag_records for r in engine.report().replicas))
        assert "waits for a value schema" in error_of(engine)
        assert value_of(engine, "a") is None
        words.schemas = {1: '"string"', 2: '"string"'}
        engine.accept(words.desired())
        wait_for("the value", lambda: value_of(engine, "a") == "x" and caught_up(engine))
        assert [r.lag_ms for r in engine.report().replicas] == [0] * PARTITIONS
        assert error_of(engine) == ""


@pytest.mark.case("rules:R21")
def test_a_schema_that_nobody_knows_is_asked_about(words: World, tmp_path: Path) -> None:
    """The node names the record that it waits at; what is decided of it counts, and the rest goes on."""
    words.version(1, {})
    offset = words.write("a", "x", schema_id=77)
    words.write("a", "after")
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        (asked,) = wait_for("the question", lambda: engine.report().unknown_schemas)
        assert (asked.store_uid, asked.feed, asked.offset, asked.schema_id) == ("u1", words.feed.id, offset, 77)
        assert engine.report().dead_letters == ()
        words.feed = words.feed.with_settled(asked.partition, offset + 1, 1)
        engine.accept(words.desired())
        wait_for("what comes after it", lambda: value_of(engine, "a") == "after" and caught_up(engine))
        assert [letter.reason for letter in engine.report().dead_letters] == [UNKNOWN_SCHEMA]
        assert engine.report().unknown_schemas == ()


@pytest.mark.case("rules:R8", "rules:R21")
def test_a_record_in_a_wrong_partition_is_a_dead_letter(words: World, tmp_path: Path) -> None:
    """A record that lies where nobody would look for its key is not applied and is reported once."""
    words.version(1, {})
    right = words.write("a", "right")
    partition = next(at for at in range(4) if words.log.offsets(TopicPartition("words_rt", "t1", at)).end == 0)
    words.write("a", "wrong", partition=partition)
    with engine_in(tmp_path) as engine:
        engine.accept(words.desired())
        wait_for("the feed", lambda: caught_up(engine) and value_of(engine, "a") == "right")
        letters = wait_for("the dead letter", lambda: engine.report().dead_letters)
        assert [(letter.partition, letter.offset) for letter in letters] == [(partition, right)]
        engine.dead_letters.reported(letters)
        assert engine.report().dead_letters == ()


def test_what_is_no_longer_desired_is_removed(words: World, tmp_path: Path) -> None:
    """A version that left the desired state is closed and its directories go; an older state is not taken."""
    words.version(1, {"a": "1"})
    words.version(2, {"a": "2"})
    with engine_in(tmp_path) as engine:
        both = words.desired()
        engine.accept(both)
        wait_for("the load", lambda: caught_up(engine))
        del words.versions[1]
        words.current = 2
        engine.accept(words.desired())
        wait_for("the removal", lambda: not any((tmp_path / "node/replicas/u1/v1").glob("p*/*")))
        assert value_of(engine, "a") == "2"
        assert engine.accept(both) is False
        assert value_of(engine, "a") == "2"


def test_a_loader_that_dies_is_started_again(words: World, tmp_path: Path) -> None:
    """A load whose process was killed is done by a fresh one."""
    words.version(1, {"a": "x"})
    loader = Loader()
    with engine_in(tmp_path, loader=loader) as engine:
        engine.accept(words.desired())
        pid = wait_for("the process", lambda: loader.pid)
        os.kill(pid, signal.SIGKILL)
        wait_for("the load", lambda: caught_up(engine))
        assert value_of(engine, "a") == "x"


def test_the_desired_state_outlives_the_process(words: World, tmp_path: Path) -> None:
    """The kept state is read back as it was; none is None."""
    words.version(1, {})
    desired = words.desired()
    path = tmp_path / "desired.json"
    assert read_desired(path) is None
    save_desired(path, desired)
    assert read_desired(path) == desired
    path.write_text(desired.model_dump_json(), encoding="utf-8")
    assert read_desired(path) == desired, "an earlier release said nothing of the place"
    assert FeedPartition(words.feed.id, 0) in desired.stores[0].versions[0].start


def test_a_copy_of_a_node_knows_nothing_of_the_cluster_that_it_was_copied_from(words: World, tmp_path: Path) -> None:
    """The kept state names a log and a deep store; in another directory than its own it is none."""
    words.version(1, {})
    for name in ("node", "copy"):
        (tmp_path / name).mkdir()
    save_desired(tmp_path / "node" / "desired.json", words.desired())
    shutil.copy(tmp_path / "node" / "desired.json", tmp_path / "copy" / "desired.json")
    assert read_desired(tmp_path / "copy" / "desired.json") is None
    (tmp_path / "node").rename(tmp_path / "moved")
    assert read_desired(tmp_path / "moved" / "desired.json") is None


def test_feeds_are_read_where_the_log_is_now(words: World, tmp_path: Path) -> None:
    """A node whose log got another address, under the same revision, goes on there."""
    words.version(1, {"a": "base"})
    with engine_in(tmp_path) as engine:
        before = words.desired()
        engine.accept(before)
        words.write("a", "before")
        wait_for("the feed", lambda: value_of(engine, "a") == "before")
        shutil.copytree(tmp_path / "log", tmp_path / "moved")
        moved = LogLocation(kind="embedded", address=str(tmp_path / "moved"))
        engine.accept(before.model_copy(update={"log": moved}))
        words.log.close()
        words.log = open_log(moved, clock=clock)
        words.write("a", "after")
        wait_for("the feed", lambda: value_of(engine, "a") == "after")
        assert engine.applied == 2


def test_a_node_asks_anew_after_its_start(words: World, tmp_path: Path) -> None:
    """What it kept may say where the log was: the first question of a run does not say that it knows that already."""
    asked = list[int]()

    class Controller:
        """It notes what the node says that it knows."""

        def desired(self, node: str, fabric: str, after: int = -1, wait_seconds: float = 0.0) -> DesiredState | None:
            """Nothing that is newer."""
            asked.append(after)
            return None

        def report(self, request: NodeReport) -> None:
            """Nobody looks."""

    words.version(1, {})
    with engine_in(tmp_path) as engine:
        settings: Any = SimpleNamespace(directory=tmp_path, node="n1", fabric="dc-0", clock=clock)
        desired = words.desired()
        save_desired(tmp_path / "desired.json", desired)
        link = ControllerLink(Controller(), engine, settings)
        link.take_kept()
        link.poll(0.0)
        link.poll(0.0)
    assert asked == [-1, desired.revision]
