"""Verification of real replicas on real nodes, over HTTP: what is equal is found equal, what differs is named."""

from __future__ import annotations

import base64
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anew.api.node_http import Address, NodeClient
from anew.api.stores.verifying import PartState, VerifyStage
from anew.client.verdict import Verification
from anew.client.verify import Sources, Subject, verify
from anew.codec.compression import compressor, train_dictionary
from anew.core.errors import Failed, NotFound, Refused, Unreachable
from anew.core.feed import PositionMap
from anew.core.partition import XxHash64Partitioner
from anew.core.stores.store import Frozen
from anew.log.interface import TopicPartition, TopicSpec
from anew.node.stores.verifying import Limits
from anew.storage.replica import Replica
from anew.storage.rocks import RocksError
from anew.testing.builders import append_records
from tests.component.node.harness import World, clock, config, damage_files, key_of, place_of, wait_for, world
from tests.component.node.stores.fleet import Fleet, fleet, subject_of, verified

pytestmark = pytest.mark.processes
_ADDRESS = Address("words", "u1", 1)
_BASE = {f"k{number:03}": f"base {number}" for number in range(120)} | {"gone": None}
_ODD_AND_EVEN = """
import pyarrow as pa
class OddAndEven:
    def __init__(self, partitions):
        self.partitions = partitions

    def __call__(self, keys):
        return pa.array([key[-1] % self.partitions for key in keys.to_pylist()], pa.int32())
"""


@pytest.fixture
def words(tmp_path: Path) -> Iterator[World]:
    """A world without versions yet."""
    with world(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes with the same version and some writes on top of it; each test leaves them equal."""
    folder = tmp_path_factory.mktemp("pair")
    with world(folder) as words:
        words.version(1, _BASE)
        for number in range(0, 60, 2):
            words.write(f"k{number:03}", None if number % 4 else f"new {number}")
        with fleet(words, folder) as nodes:
            yield nodes


def named(found: Verification) -> set[tuple[str, str, str]]:
    """(node, key, kind) of each difference that is named."""
    return {(difference.node, difference.key, difference.kind) for difference in found.differences}


def unequal(found: Verification) -> set[str]:
    """The nodes that have a replica which differs."""
    return {replica.node for replica in found.replicas if replica.equal is False}


@pytest.mark.parametrize(
    "frozen",
    [
        config("none", 1),
        config("gzip", amplification_factor=3),
        config("zstd", 3),
        config("zstd_dict", 2, amplification_factor=2),
        config("zstd", 2, partitioner="mine:OddAndEven", partitioner_source=_ODD_AND_EVEN),
    ],
    ids=["none", "gzip and 3 sub-partitions", "3 partitions", "dictionary and 2 sub-partitions", "own partitioner"],
)
@pytest.mark.case("rules:R11", "rules:R12", "rules:R19")
def test_replicas_that_hold_base_and_feeds_are_equal(words: World, tmp_path: Path, frozen: Frozen) -> None:
    """Puts, deletes, given times, expired and rejected records: replicas equal each other and base ⊕ feeds."""
    chance, floor_ms = random.Random(7), clock() - 10_000
    samples = [key_of(f"base {number} of many that are much alike") for number in range(3_000)]
    dictionary = train_dictionary(samples, 2_000) if frozen.compression == "zstd_dict" else None
    assert dictionary is None or len(dictionary) > 0
    floors = {"ttl_floor_ms": floor_ms, "tombstone_floor_ms": floor_ms - 5_000}
    words.version(1, _BASE, config=frozen, codec=compressor(frozen.compression, dictionary), **floors)
    for _ in range(600):
        value = None if chance.random() < 0.3 else f"value {chance.random()} of many that are much alike"
        given = floor_ms + chance.randrange(-10_000, 10_000) if chance.random() < 0.5 else None
        words.write(f"k{chance.randrange(240):03}", value, written_ms=given)
    with fleet(words, tmp_path) as nodes:
        found = nodes.verify()
        letters = [node.engine.dead_letters.total for node in nodes.nodes.values()]
    assert found.error is None
    assert found.equal
    assert (found.differences, found.difference_count) == ((), 0)
    assert found.position == words.ends()
    places = {divmod(unit, frozen.amplification_factor) for unit in range(frozen.sub_partitions)}
    assert {(e.partition, e.sub_partition) for e in found.expected} == places
    assert len(found.replicas) == 2 * len(places)
    assert sum(e.rows for e in found.expected) > 120
    assert sum(e.tombstones for e in found.expected) > 20
    assert letters[0] == letters[1] > 0, "some records met nothing and were older than the tombstone floor"


def test_an_empty_version_is_equal(words: World, tmp_path: Path) -> None:
    """Nothing at all has the fingerprint of nothing, on every replica."""
    words.version(1, {})
    with fleet(words, tmp_path) as nodes:
        found = nodes.verify()
    assert found.equal
    assert {(r.rows, r.tombstones, r.fingerprint) for r in found.replicas} == {(0, 0, "0" * 16)}


@pytest.mark.case("rules:R10")
def test_a_version_with_an_end_is_compared_there(words: World, tmp_path: Path) -> None:
    """What was written behind a version's stop is not missed, though the log goes on."""
    for number in range(20):
        words.write(f"k{number}", "kept")
    stop = words.ends()
    for number in range(40):
        words.write(f"k{number}", "too late")
    words.version(1, _BASE, stop=stop)
    with fleet(words, tmp_path, ("n1",)) as nodes:
        wait_for("the stop", lambda: nodes.nodes["n1"].engine.applied == 20)
        found = nodes.verify()
    assert found.equal
    assert found.position == stop != words.ends()


def _other_value(cell: bytes | None) -> bytes:
    assert cell is not None
    return cell[:-1] + bytes([cell[-1] ^ 1])


def _other_time(cell: bytes | None) -> bytes:
    assert cell is not None
    return cell[:8] + (1).to_bytes(8, "little") + cell[16:]


@pytest.mark.parametrize(
    ("key", "change", "kind"),
    [
        ("k001", _other_value, "different"),
        ("k000", _other_time, "different"),
        ("k000", lambda _: None, "missing"),
        ("gone", lambda _: None, "missing"),
        ("k001", lambda cell: cell[:20], "different"),
        ("k001", lambda cell: b"\x09" + cell[1:], "different"),
        ("k001", lambda cell: cell[:33], "different"),
    ],
    ids=["value", "time", "lost value", "lost tombstone", "cut header", "format", "no frame"],
)
def test_a_planted_fault_is_named(
    pair: Fleet, key: str, change: Callable[[bytes | None], bytes | None], kind: str
) -> None:
    """One cell of one replica that was changed or removed is named with key, node and kind; others are equal."""
    with pair.planted("n2", [key], change):
        found = pair.verify()
    assert not found.equal
    assert named(found) == {("n2", key, kind)}
    assert found.difference_count == 1
    assert [r.equal for r in found.replicas].count(False) == 1
    assert unequal(found) == {"n2"}
    assert isinstance(found.error, Failed)
    assert found.error.code == "replicas_differ"


def test_a_key_that_should_not_be_there_is_named(pair: Fleet) -> None:
    """A cell that was put into a replica's database directly is left over; it is shown in plain words."""
    cell = pair.change("n1", "k001", lambda cell: cell)
    with pair.planted("n1", ["stray"], lambda _: cell):
        found = pair.verify()
    assert named(found) == {("n1", "stray", "left over")}
    assert found.to_json()["differences"][0]["key"] == "stray"


def test_faults_on_every_replica_show_against_base_and_feeds(pair: Fleet) -> None:
    """Replicas that are wrong in the same way equal each other, but not base ⊕ feeds."""
    with pair.planted("n1", ["k001"], lambda _: None), pair.planted("n2", ["k001"], lambda _: None):
        found = pair.verify()
    assert named(found) == {("n1", "k001", "missing"), ("n2", "k001", "missing")}


def test_all_differences_are_counted_and_some_are_named(pair: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries come page by page: of ninety changed keys ninety are counted and twenty named."""
    monkeypatch.setattr("anew.node.stores.verifying.MAX_ENTRIES", 7)
    with pair.planted("n2", [f"k{number:03}" for number in range(90)], _other_time):
        found = pair.verify()
    assert (found.difference_count, len(found.differences)) == (90, 20)
    assert {kind for _, _, kind in named(found)} == {"different"}


def test_writes_that_go_on_do_not_disturb(pair: Fleet) -> None:
    """While records are written all the time, each verification ends, is equal, and loses none of them."""
    stopped, before = threading.Event(), sum(pair.words.ends().values())
    written = 0

    def write() -> None:
        nonlocal written
        while not stopped.is_set():
            pair.words.write(f"k{written % 150:03}", f"value {written}")
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [pair.verify() for _ in range(4)]
    finally:
        stopped.set()
        writer.join()
    assert [f.error for f in found] == [None] * 4
    positions = [sum(f.position.values()) for f in found]
    assert positions == sorted(set(positions)), "each one was later in the log"
    pair.settle()
    assert pair.verify().equal
    assert sum(pair.words.ends().values()) == before + written


def test_reads_are_answered_meanwhile(pair: Fleet) -> None:
    """A reader that never pauses gets every answer while the same replicas are verified."""
    stopped, statuses = threading.Event(), set[int]()
    path = f"/v1/stores/words/versions/1/keys/{_encoded('k001')}"
    answered = 0

    def read() -> None:
        nonlocal answered
        while not stopped.is_set():
            statuses.add(pair.clients["n1"].get(path).status_code)
            answered += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        before = answered
        assert pair.verify().equal
        assert answered > before
    finally:
        stopped.set()
        reader.join()
    assert statuses == {200}


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(key_of(text)).decode().rstrip("=")


def test_checkpoints_go_when_it_is_over(pair: Fleet) -> None:
    """Nothing of a verification stays on a node's disk."""
    assert pair.verify().equal
    wait_for("the end", lambda: pair.checkpoints() == [])


def test_a_verification_that_nobody_asks_about_is_given_up(pair: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that went away leaves replicas that apply on, and after a while no checkpoint."""
    engine = pair.nodes["n1"].engine
    job = engine.verifications.begin("u1", 1).job
    engine.verifications.aim(job, pair.words.ends())
    wait_for("a checkpoint", lambda: list((engine._identity.verifying / job).rglob("CURRENT")))
    # From here on: on a busy machine a checkpoint takes longer than that, and would be given up before it is seen.
    monkeypatch.setattr(engine.verifications, "limits", Limits(hold_seconds=20, keep_seconds=0.3))
    wait_for("the end", lambda: pair.checkpoints() == [])
    with pytest.raises(NotFound, match="there is no such verification"):
        engine.verifications.view(job)
    pair.words.write("k001", "after it")
    pair.settle()


def test_checkpoints_of_a_node_that_was_killed_are_swept(words: World, tmp_path: Path) -> None:
    """What an earlier run of the node left is gone once it runs again."""
    words.version(1, _BASE)
    left = tmp_path / "n1" / "verifying" / "18c-1" / "p0-s0"
    left.mkdir(parents=True)
    (left / "000009.sst").write_bytes(b"left")
    with fleet(words, tmp_path, ("n1",)):
        assert not left.exists()


def test_replicas_that_do_not_get_there_are_let_go(words: World, tmp_path: Path) -> None:
    """A replica that waits for a schema is not reached in time, says why, and applies on; the others are equal."""
    words.version(1, _BASE)
    with fleet(words, tmp_path, ("n1",)) as nodes:
        engine = nodes.nodes["n1"].engine
        engine.verifications.limits = Limits(hold_seconds=0.5)
        words.write("k001", "of a schema that no node knows", schema_id=2)
        found = nodes.verify()
        assert isinstance(found.error, Unreachable)
        assert found.error.code == "replicas_unverified"
        stuck = [r for r in found.replicas if r.equal is None]
        assert [r.partition for r in stuck] == [place_of(config(), "k001")[0]]
        assert str(stuck[0].error).startswith("not_reached: 1 records were left after 0.5 s; waits for a value schema")
        assert [r.equal for r in found.replicas].count(True) == 1
        assert all(holding.hold is None for holding in engine._holdings.values())


@pytest.mark.parametrize("error", [RocksError("No space left on device"), KeyError("unforeseen")], ids=["disk", "bug"])
def test_a_replica_that_cannot_be_kept_is_let_go(
    words: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Whatever its checkpoint fails with is told of it alone; all apply on, and the others are compared."""
    words.version(1, _BASE)
    keep, sick = Replica.checkpoint, place_of(config(), "k001")[0]

    def unable(replica: Replica, directory: Path) -> None:
        if f"/p{sick}-" in str(replica.directory):
            raise error
        keep(replica, directory)

    monkeypatch.setattr(Replica, "checkpoint", unable)
    with fleet(words, tmp_path, ("n1",)) as nodes:
        engine = nodes.nodes["n1"].engine
        found = nodes.verify()
        assert {r.partition: r.equal for r in found.replicas} == {sick: None, 1 - sick: True}
        assert "failed: " in str(next(r.error for r in found.replicas if r.equal is None))
        assert all(holding.hold is None for holding in engine._holdings.values())
        assert engine.loops.troubles() == ()
        words.write("k001", "after it")
        nodes.settle()


def test_a_verification_that_finds_damage_says_so_and_has_it_replaced(words: World, tmp_path: Path) -> None:
    """A replica whose files cannot be read is told as damaged; its node loads it again, and the next one is equal."""
    words.version(1, dict.fromkeys(map(str, range(4_000)), "b" * 50), config=config(partitions=1))
    with fleet(words, tmp_path) as nodes:
        assert nodes.verify().equal
        damage_files(tmp_path / "n1" / "replicas")
        found = nodes.verify()
        assert [(r.node, r.equal, r.damaged) for r in found.replicas] == [("n1", None, True), ("n2", True, False)]
        assert found.error is not None
        assert (found.error.code, isinstance(found.error, Failed)) == ("replica_damaged", True)
        engine = nodes.nodes["n1"].engine
        wait_for("the load", lambda: "loaded again: " in str(engine.report().replicas[0].error), 60.0)
        assert nodes.verify().equal


def test_without_a_position_replicas_stand_only_for_a_while(pair: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that never names a position keeps replicas from applying for the deadline and no longer."""
    engine = pair.nodes["n1"].engine
    monkeypatch.setattr(engine.verifications, "limits", Limits(hold_seconds=0.6))
    job = engine.verifications.begin("u1", 1).job
    wait_for("the stand", lambda: engine.verifications.view(job).stage is VerifyStage.HELD)
    began = time.monotonic()
    pair.words.write("k001", "during it")
    key = key_of("k001")
    replica = pair.holding("n1", "k001").replica
    assert replica is not None
    live = wait_for("the write", lambda: (found := replica.get(key)) and found.body == key_of("during it") and found)
    assert time.monotonic() - began > 0.2
    assert live.schema_id == 1
    assert {p.state for p in engine.verifications.view(job).replicas} == {PartState.NOT_REACHED}
    engine.verifications.end(job)


def test_a_position_that_was_passed_is_refused(pair: Fleet) -> None:
    """A replica that stands beyond the position says where, and is not scanned."""
    engine = pair.nodes["n1"].engine
    job = engine.verifications.begin("u1", 1).job
    engine.verifications.aim(job, PositionMap(dict.fromkeys(pair.words.ends(), 0)))
    view = wait_for("the answer", lambda: (v := engine.verifications.view(job)).stage is VerifyStage.DONE and v)
    assert {p.state for p in view.replicas} == {PartState.PAST_POSITION}
    assert str(view.replicas[0].error).startswith("it stands at dc-0/words_rt#1/")
    engine.verifications.end(job)


def test_one_at_a_time_lets_replicas_stand(pair: Fleet) -> None:
    """A second verification of the version is refused while replicas stand, and possible right after."""
    client, url = NodeClient(5.0), pair.urls["n1"]
    first = client.begin_verify(url, _ADDRESS)
    with pytest.raises(Refused, match="another verification is under way"):
        pair.verify()
    client.end_verify(url, _ADDRESS, first.job)
    client.close()
    wait_for("the end", lambda: not pair.nodes["n1"].engine.verifications._jobs)
    assert pair.verify().equal


def test_a_node_that_is_down_leaves_the_others_verified(words: World, tmp_path: Path) -> None:
    """Replicas of a node that does not answer are unverified, all others are compared and shown."""
    words.version(1, _BASE)
    with fleet(words, tmp_path, ("n1",)) as nodes:
        found = verified(words, {**nodes.urls, "n2": "http://127.0.0.1:9"})
    assert [(r.node, r.equal) for r in found.replicas] == [("n1", True), ("n2", None), ("n1", True), ("n2", None)]
    assert not found.equal
    assert isinstance(found.error, Unreachable)
    assert "n2/0.0: the node does not answer" in str(found.error)


def test_a_base_file_that_changed_is_no_expectation(words: World, tmp_path: Path) -> None:
    """A base file that no longer is what its manifest says ends the verification and is named."""
    words.version(1, _BASE)
    with fleet(words, tmp_path, ("n1",)) as nodes:
        file = next((tmp_path / "deep").rglob("p0-s0.parquet"))
        other = next((tmp_path / "deep").rglob("p1-s0.parquet"))
        content = other.read_bytes()
        file.unlink()
        file.write_bytes(content)
        with pytest.raises(Failed, match=r"v1/p0-s0\.parquet does not hold what its manifest says"):
            nodes.verify()
        wait_for("the end", lambda: nodes.checkpoints() == [])


def test_the_http_face_refuses_what_it_cannot_do(pair: Fleet) -> None:
    """Each wrong request has its status and code, and the readers' paths are not touched."""
    client, root = pair.clients["n1"], "/v1/stores/words/versions/1/verify"

    def refused(method: str, path: str, **request: object) -> tuple[int, str]:
        answer = client.request(method, path, **request)  # type: ignore[arg-type]  # passed on
        return answer.status_code, answer.json()["error"]["code"]

    assert refused("POST", root, headers={"anew-store-uid": "u0"}) == (409, "other_store")
    assert refused("POST", "/v1/stores/other/versions/1/verify") == (421, "not_here")
    assert refused("POST", "/v1/stores/words/versions/9/verify") == (421, "not_here")
    assert refused("POST", "/v1/stores/words/versions/current/verify") == (422, "bad_number")
    assert refused("GET", f"{root}/none") == (404, "unknown_verification")
    assert refused("PATCH", root) == (404, "unknown_path")
    job = client.post(root).json()["job"]
    assert refused("PUT", f"{root}/{job}", json={"position": 1}) == (422, "bad_position")
    assert refused("GET", f"{root}/{job}?wait_seconds=soon") == (422, "bad_number")
    assert refused("GET", f"{root}/{job}/keys?partition=0&buckets=1,x") == (422, "bad_number")
    assert refused("GET", f"{root}/{job}/keys?partition=0&buckets=256") == (422, "bad_number")
    assert refused("GET", f"{root}/{job}/keys?partition=0&buckets=1&after=x") == (422, "bad_key")
    assert refused("GET", f"{root}/{job}/keys?partition=0&buckets=1") == (409, "not_verified")
    position = {"position": pair.words.ends().to_json()}
    assert client.put(f"{root}/{job}", json=position).status_code == 200
    assert refused("PUT", f"{root}/{job}", json={"position": {}}) == (409, "verification_aimed")
    assert client.delete(f"{root}/{job}").status_code == client.delete(f"{root}/{job}").status_code == 200
    key = client.get(f"/v1/stores/words/versions/1/keys/{_encoded('k001')}", headers={"accept": "application/json"})
    assert key.json()["found"] is True


def test_a_long_poll_ends_with_the_stage(pair: Fleet) -> None:
    """The answer comes as soon as the stage is another one, and at the end of the wait when it stays the same."""
    client, root = pair.clients["n1"], "/v1/stores/words/versions/1/verify"
    # One that was given up before is over when the applier has seen it.
    job = wait_for("a verification to begin", lambda: client.post(root).json().get("job"))
    assert client.get(f"{root}/{job}?after=asked&wait_seconds=5").json()["stage"] == "held"
    began = time.monotonic()
    assert client.get(f"{root}/{job}?after=held&wait_seconds=0.3").json()["stage"] == "held"
    assert 0.25 < time.monotonic() - began < 3
    threading.Timer(0.2, lambda: client.delete(f"{root}/{job}")).start()
    began = time.monotonic()
    assert client.get(f"{root}/{job}?after=held&wait_seconds=5").status_code == 404
    assert time.monotonic() - began < 3


def test_a_node_that_goes_away_while_keys_are_compared_still_differs(
    pair: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica whose fingerprint differs is shown as different though its keys can no longer be had."""

    def away(*_: object) -> None:
        raise Unreachable("node_unreachable", "it is gone")

    monkeypatch.setattr(NodeClient, "verify_entries", away)
    with pair.planted("n2", ["k001"], lambda _: None):
        found = pair.verify()
    assert unequal(found) == {"n2"}
    assert isinstance(found.error, Failed)
    assert [r.error for r in found.replicas if r.error] == ["its keys were not compared: it is gone"]


def test_a_position_that_comes_too_early_is_taken_again(pair: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends that replicas have passed, for whatever reason, are read once more instead of being taken for a fault."""
    ends, asked = pair.words.ends(), []

    def sometimes_old(subject: object, log: object) -> PositionMap:
        asked.append(subject)
        return PositionMap(dict.fromkeys(ends, 0)) if len(asked) == 1 else ends

    monkeypatch.setattr("anew.client.verify._ends", sometimes_old)
    found = pair.verify()
    assert found.equal
    assert len(asked) == 2


@pytest.mark.case("rules:R19", "rules:R9")
def test_replicas_at_another_position_are_not_compared(pair: Fleet) -> None:
    """A node that has not heard of a feed yet holds less for a good reason: that is unknown, not different."""
    words = pair.words
    later = words.feed.model_copy(update={"topic": "later_rt", "topic_uid": "t2"})
    words.log.create_topic(TopicSpec("later_rt", "t2", later.partitions))
    record = append_records([key_of("k001")], [key_of("of the new feed")])
    place = XxHash64Partitioner(later.partitions).of(key_of("k001"))
    words.log.append(TopicPartition("later_rt", "t2", place), record)
    known = subject_of(words, pair.urls)
    version = known.version.model_copy(update={"feeds": (words.feed.id, later.id)})
    store = known.store.model_copy(update={"feeds": (words.feed, later), "versions": (version,)})
    nodes = NodeClient(5.0)
    found = verify(Sources(lambda: Subject(store, "dc-0", pair.urls), nodes, words.log, words.deep))
    nodes.close()
    assert {replica.equal for replica in found.replicas} == {None}
    assert all(str(replica.error).startswith("it was at another position: ") for replica in found.replicas)
    assert (found.differences, isinstance(found.error, Unreachable)) == ((), True)
