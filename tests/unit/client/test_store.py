"""Reading a store: one version for a batch, other replicas when one fails, newer routing when things have moved."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import closing, suppress

import pytest

from anew.client.store import Scanned
from anew.codec.avro import encode_datum, parse_schema
from anew.core.errors import Failed, InvalidRequest, Refused, Unreachable
from tests.unit.client.fleet import Fleet, a_fleet

_KEYS = [f"key-{number}" for number in range(12)]
_WIDER = (
    '{"type": "record", "name": "Value", "fields": [{"name": "text", "type": "string"},'
    ' {"name": "stars", "type": "int", "default": 5}]}'
)


def _texts(version: int) -> dict[str, str]:
    return {key: f"{key} of {version}" for key in _KEYS}


@pytest.fixture
def fleet() -> Fleet:
    """Three nodes; version 1 with twelve keys in four partitions, each on two nodes."""
    made = a_fleet()
    made.serve(1, _texts(1))
    return made


def _expect_all_of(fleet: Fleet, version: int) -> None:
    found = fleet.store().get_many(_KEYS)
    assert [cell.value["text"] for cell in found if cell is not None] == list(_texts(version).values())


# -- one batch, one version ------------------------------------------------------------------------------------------


def test_a_batch_over_several_nodes_keeps_its_order(fleet: Fleet) -> None:
    """Answers come in the order of the keys, absent and repeated ones in their places, all of one version."""
    keys = [_KEYS[5], "absent", *_KEYS, _KEYS[5]]
    found = fleet.store().get_many(keys)
    assert len({node for node, _, _ in fleet.asked}) > 1, "the keys lie on several nodes"
    assert [None if cell is None else cell.value["text"] for cell in found] == [_texts(1).get(key) for key in keys]
    assert {(cell.version, cell.written_at) for cell in found if cell is not None} == {(1, 10)}
    assert fleet.store().get_many([]) == []
    assert fleet.store().get("absent") is None


def test_a_batch_is_split_but_still_of_one_version(fleet: Fleet) -> None:
    """More keys than one request takes are asked in several, each of the same version."""
    keys = [f"many-{number}" for number in range(9_000)]
    assert fleet.store().get_many(keys) == [None] * 9_000
    assert len(fleet.asked) > len(fleet.nodes)
    assert {version for _, version, _ in fleet.asked} == {1}


@pytest.mark.parametrize("swapped_before_request", [1, 2, 3])
def test_a_swap_in_the_middle_of_a_batch_does_not_mix_versions(fleet: Fleet, swapped_before_request: int) -> None:
    """When nodes drop the old version between two requests of a batch, all of it is read again from the new one."""

    def swap(*_asked: object) -> None:
        if len(fleet.asked) == swapped_before_request:
            fleet.serve(2, _texts(2))
            fleet.drop(1)

    store = fleet.store()
    fleet.before = swap
    found = store.get_many(_KEYS)
    assert {cell.version for cell in found if cell is not None} == {2}
    assert [cell.value["text"] for cell in found if cell is not None] == list(_texts(2).values())
    first_of_two = [version for _, version, _ in fleet.asked].index(2)
    assert {version for _, version, _ in fleet.asked[first_of_two:]} == {2}


def test_one_node_that_lacks_the_version_sends_the_whole_batch_on(fleet: Fleet) -> None:
    """A single ``version_gone`` makes the client ask for routing; what other nodes answered already is thrown away."""
    store = fleet.store()
    store.get("key-0")
    fleet.serve(2, _texts(2))
    fleet.nodes["node-3"].held.pop(1)
    fleet.nodes["node-3"].gone.add(1)
    before = fleet.routings
    found = store.get_many(_KEYS)
    assert {cell.version for cell in found if cell is not None} == {2}
    assert {cell.value["text"] for cell in found if cell is not None} == set(_texts(2).values())
    assert fleet.routings == before + 1


def test_a_swap_is_noticed_by_the_next_read(fleet: Fleet) -> None:
    """A node's answer tells of a newer current version; the read itself stays whole, the next one is of the new."""
    store = fleet.store()
    store.get("key-0")
    fleet.serve(2, _texts(2))
    assert [cell.version for cell in store.get_many(_KEYS) if cell is not None] == [1] * 12
    assert [cell.version for cell in store.get_many(_KEYS) if cell is not None] == [2] * 12


# -- replicas that fail ----------------------------------------------------------------------------------------------


def test_a_node_that_is_down_is_replaced_and_left_alone_for_a_while(fleet: Fleet) -> None:
    """The other replica answers; the silent node is not asked again until some seconds have passed."""
    fleet.nodes["node-1"].down = True
    store = fleet.store()
    for _ in range(5):
        assert None not in store.get_many(_KEYS)
    assert [node for node, _, _ in fleet.asked].count("node-1") == 1
    fleet.nodes["node-1"].down = False
    fleet.seconds.now += 3
    fleet.asked.clear()
    for _ in range(3):
        store.get_many(_KEYS)
    assert "node-1" in {node for node, _, _ in fleet.asked}


def test_without_any_replica_a_read_ends_in_time(fleet: Fleet) -> None:
    """When no replica answers, the read gives up at its deadline and says which node does not answer."""
    for node in fleet.nodes.values():
        node.down = True
    fleet.seconds.tick = 0.5
    with pytest.raises(Unreachable) as caught:
        fleet.store().get_many(_KEYS)
    assert (caught.value.code, "http://node-" in caught.value.found) == ("node_unreachable", True)


def test_a_reader_outlasts_a_long_outage(fleet: Fleet) -> None:
    """However often nobody answered, a read says so, and works again soon after one does."""
    for node in fleet.nodes.values():
        node.down = True
    fleet.seconds.tick = 20
    store = fleet.store()
    # Of a number of failures such as this two to its power is greater than any float.
    for _ in range(2_500):
        with pytest.raises(Unreachable):
            store.get("key-0")
    for node in fleet.nodes.values():
        node.down = False
    assert store.get("key-0") is not None


def test_reads_go_on_without_the_controller(fleet: Fleet) -> None:
    """With routing known, neither the controller's absence nor a node's failure on top of it stops a read."""
    store = fleet.store()
    store.get("key-0")
    fleet.controller_down = True
    fleet.seconds.now += 60
    fleet.nodes["node-2"].down = True
    assert None not in store.get_many(_KEYS)


def test_a_replica_that_is_not_there_yet_is_passed_over(fleet: Fleet) -> None:
    """Nodes that lack some of the partitions that routing names for them: each key is read where it is."""
    node_of = {name: fleet.nodes[name] for name in fleet.nodes}
    for partition, holders in fleet.routing.versions[1].replicas.items():
        node_of[holders[partition % 2]].held[1].discard(partition)
    _expect_all_of(fleet, 1)


def test_a_node_that_lost_all_of_a_version_is_passed_over(fleet: Fleet) -> None:
    """``not_here`` for the whole version sends the batch to the other replicas, after routing was asked for again."""
    fleet.nodes["node-1"].held.clear()
    _expect_all_of(fleet, 1)
    assert fleet.routings == 2


def test_a_refusal_that_asking_again_does_not_change_is_handed_on(fleet: Fleet) -> None:
    """Reads that are disabled are refused at once, as a refusal; an error inside a node is a failure."""
    for node in fleet.nodes.values():
        node.refusal = (403, Refused("reads_disabled", "no reads"))
    with pytest.raises(Refused) as refused:
        fleet.store().get("key-0")
    assert (refused.value.code, len(fleet.asked)) == ("reads_disabled", 1)
    for node in fleet.nodes.values():
        node.refusal = (500, Failed("corrupt_value", "broken"))
    with pytest.raises(Failed) as failed:
        fleet.store().get("key-0")
    assert failed.value.code == "corrupt_value"


@pytest.mark.case("rules:R16")
def test_a_store_that_was_made_anew_is_read_as_it_is_now(fleet: Fleet) -> None:
    """After a store of the same name took its place, a client with old routing reads the new one, by its key schema."""
    store = fleet.store()
    store.get("key-0")
    fleet.route(uid="uid-2", revision=0, key_schema='{"type": "string", "doc": "another"}')
    fleet.serve(5, _texts(5))
    found = store.get("key-0")
    assert found is not None
    assert (found.version, found.value) == (5, {"text": "key-0 of 5"})


# -- named versions --------------------------------------------------------------------------------------------------


def test_a_version_that_is_kept_can_be_named(fleet: Fleet) -> None:
    """A named version is read although another one is current, even one that is younger than the known routing."""
    store = fleet.store()
    store.get("key-0")
    fleet.serve(2, _texts(2))
    for version in (1, 2):
        found = store.get("key-3", version=version)
        assert found is not None
        assert (found.version, found.value) == (version, {"text": f"key-3 of {version}"})


@pytest.mark.parametrize("still_routed", [False, True])
def test_a_named_version_that_is_gone_is_refused_at_once(fleet: Fleet, *, still_routed: bool) -> None:
    """Whether the controller or a node says that it is gone: the read is not tried again."""
    fleet.serve(2, _texts(2))
    (fleet.forget if still_routed else fleet.drop)(1)
    store = fleet.store()
    for read in (lambda: store.get("key-0", version=1), lambda: list(store.scan(version=1))):
        fleet.asked.clear()
        with pytest.raises(Refused) as caught:
            read()
        assert (caught.value.code, len(fleet.asked)) == ("version_gone", int(still_routed))


def test_a_store_without_a_version_says_so() -> None:
    """Before the first push every read is refused with what to do."""
    store = a_fleet().store()
    for read in (lambda: store.get("key-0"), lambda: list(store.scan()), lambda: store.explain("key-0")):
        with pytest.raises(Refused) as caught:
            read()
        assert (caught.value.code, "anew push flights" in str(caught.value.hint)) == ("no_current_version", True)


# -- values ----------------------------------------------------------------------------------------------------------


def test_values_are_read_by_the_newest_schema(fleet: Fleet) -> None:
    """Rows of several schemas look alike: fields that the older ones lack have their defaults, in gets and scans."""
    fleet.route(schemas={**fleet.routing.schemas, 2: _WIDER})
    fleet.rows[1]["key-0"] = (2, 99, encode_datum(parse_schema(_WIDER), {"text": "new", "stars": 1}))
    store = fleet.store()
    new, old = store.get_many(["key-0", "key-1"])
    assert new is not None
    assert old is not None
    assert (new.value, old.value) == ({"text": "new", "stars": 1}, {"text": "key-1 of 1", "stars": 5})
    scanned = {row.key: row.value for row in store.scan()}
    assert (scanned["key-0"], scanned["key-1"]) == (new.value, old.value)
    assert store.value_schema == parse_schema(_WIDER)


def test_a_schema_that_is_younger_than_the_routing_is_asked_for(fleet: Fleet) -> None:
    """A value of an unknown schema makes the client ask for routing; all of the batch is then read by the newest."""
    store = fleet.store()
    store.get("key-0")
    fleet.route(schemas={**fleet.routing.schemas, 2: _WIDER})
    fleet.rows[1]["key-5"] = (2, 99, encode_datum(parse_schema(_WIDER), {"text": "new", "stars": 1}))
    found = store.get_many(_KEYS)
    assert {cell.value["stars"] for cell in found if cell is not None} == {1, 5}
    assert {len(cell.value) for cell in found if cell is not None} == {2}


def test_a_schema_that_cannot_be_had_is_said(fleet: Fleet) -> None:
    """With the controller away a value of an unknown schema is an error with its schema, not a guess."""
    store = fleet.store()
    store.get("key-0")
    fleet.controller_down = True
    fleet.rows[1]["key-5"] = (2, 99, b"")
    fleet.seconds.tick = 0.5
    for read in (lambda: store.get_many(_KEYS), lambda: list(store.scan())):
        with pytest.raises(Unreachable) as caught:
            read()
        assert (caught.value.code, caught.value.found) == ("unknown_schema", 2)


def test_a_key_that_does_not_fit_is_refused(fleet: Fleet) -> None:
    """A key of another type never reaches a node."""
    with pytest.raises(InvalidRequest) as caught:
        fleet.store().get(7)
    assert (caught.value.code, fleet.asked) == ("value_misfit", [])


# -- scans -----------------------------------------------------------------------------------------------------------


def test_a_scan_goes_on_at_another_replica(fleet: Fleet) -> None:
    """A node that dies between two pages: the next page comes from another replica, every record exactly once."""
    store = fleet.store()
    rows = store.scan()
    found = [next(rows)]
    fleet.nodes[fleet.asked[-1][0]].down = True
    found += list(rows)
    assert sorted(row.key for row in found) == sorted(_KEYS)
    assert {row.key: row.value["text"] for row in found} == _texts(1)
    assert {row.written_at for row in found} == {10}


def test_a_scan_stays_with_its_version(fleet: Fleet) -> None:
    """A swap in the middle changes nothing; the version is held, and held again as long as the scan goes on."""
    rows = fleet.store().scan()
    found = [next(rows)]
    assert fleet.holds == [1]
    fleet.serve(2, _texts(2))
    for row in rows:
        found.append(row)
        fleet.seconds.now += 30
    assert {row.key: row.value["text"] for row in found} == _texts(1)
    assert len(fleet.holds) > 3
    assert set(fleet.holds) == {1}


def _broken_by_a_reader(rows: Generator[Scanned]) -> None:
    with closing(rows), suppress(KeyError):
        raise KeyError(next(rows).key)


def _dropped(rows: Generator[Scanned]) -> None:
    next(rows)
    del rows
    gc.collect()


@pytest.mark.parametrize(
    "end",
    [
        lambda rows: list(rows),
        lambda rows: next(rows) and rows.close(),
        _broken_by_a_reader,
        _dropped,
    ],
    ids=["read to its end", "closed", "broken off", "dropped"],
)
def test_a_scan_that_ends_lets_go_of_its_version(fleet: Fleet, end: Callable[[Generator[Scanned]], object]) -> None:
    """However a scan ends its hold ends with it, and that of another scan of the same version stays."""
    ids = iter(["one", "two"])
    store = fleet.store(new_id=lambda: next(ids))
    other = store.scan()
    next(other)
    rows = store.scan()
    next(rows)
    assert fleet.held == {"one": 1, "two": 1}
    waiting = [rows]
    del rows
    end(waiting.pop())
    assert fleet.held == {"one": 1}
    other.close()
    assert fleet.held == {}


def test_a_scan_that_never_began_holds_nothing(fleet: Fleet) -> None:
    """A version is held from the first row that is asked for."""
    fleet.store(new_id=lambda: "one").scan().close()
    assert (fleet.held, fleet.holds) == ({}, [])


def test_a_scan_goes_on_without_the_controller(fleet: Fleet) -> None:
    """A version that cannot be held is read all the same."""
    store = fleet.store()
    store.get("key-0")
    fleet.controller_down = True
    assert sorted(row.key for row in store.scan()) == sorted(_KEYS)


def test_explain_shows_every_replica(fleet: Fleet) -> None:
    """An absent key is what a replica knows of it, not an error; a replica that does not answer says why."""
    holders = fleet.holders(1, "absent")
    fleet.nodes[holders[1]].down = True
    shown = fleet.store().explain("absent")
    assert shown["version"] == 1
    first, second = shown["replicas"]
    assert (first["node"], first["found"], "error" in first) == (holders[0], False, False)
    assert (second["node"], "does not answer" in second["error"]) == (holders[1], True)


@pytest.mark.parametrize("code", ["internal_error", "storage_broken", "unexpected_answer", "out_of_memory"])
def test_a_node_that_fails_over_a_read_is_passed_over(fleet: Fleet, code: str) -> None:
    """Keys, batches and scans go on to the next replica, whatever the node fails over."""
    fleet.nodes["node-1"].refusal = (500, Failed(code, "the node failed over the request"))
    store = fleet.store()
    assert None not in store.get_many(_KEYS)
    assert all(store.get(key) is not None for key in _KEYS)
    assert len(list(store.scan())) == len(_KEYS)


def test_each_replica_is_asked_once_and_then_its_error_is_told(fleet: Fleet) -> None:
    """Where every replica fails over a read, the read ends with the error, without asking for as long as it may."""
    for node in fleet.nodes.values():
        node.refusal = (500, Failed("storage_broken", "a block is bad"))
    store, began = fleet.store(), len(fleet.asked)
    with pytest.raises(Failed) as caught:
        store.get("key-0")
    asked = [node for node, *_ in fleet.asked[began:]]
    assert (caught.value.code, len(asked) <= len(set(asked)) + 1) == ("storage_broken", True)


def test_who_was_not_asked_yet_is_asked_before_who_failed(fleet: Fleet) -> None:
    """A node that was silent a moment ago may answer again; one that failed over this very request has had its turn."""
    store = fleet.store()
    for silent in list(fleet.nodes):
        fleet.nodes[silent].down = True
        assert None not in store.get_many(_KEYS)
        fleet.nodes[silent].down = False
        for other in fleet.nodes.keys() - {silent}:
            fleet.nodes[other].refusal = (500, Failed("storage_broken", "a block is bad"))
        for key in (key for key in _KEYS if silent in fleet.holders(1, key)):
            assert store.get(key) is not None
        for node in fleet.nodes.values():
            node.refusal = None
        fleet.seconds.now += 60


def test_what_is_wrong_with_a_request_is_asked_of_nobody_else(fleet: Fleet) -> None:
    """An answer about the request itself ends it."""
    for node in fleet.nodes.values():
        node.refusal = (422, InvalidRequest("bad_key", "the key is not one"))
    store = fleet.store()
    with pytest.raises(InvalidRequest):
        store.get("key-0")
    assert len(fleet.asked) == 1
