"""Ledger, errors, positions, rebuild records and cells: small values with promises."""

from __future__ import annotations

import pickle

import pytest
from pydantic import ValidationError

from anew.core.cell import decode_cell, decode_headers, encode_cell
from anew.core.errors import (
    AnewError,
    Failed,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    PartlyDone,
    Refused,
    Unreachable,
    error_from_json,
)
from anew.core.feed import NOWHERE, Feed, FeedKind, FeedPartition, PositionMap
from anew.core.ledger import MODULUS, Entry, Ledger, total_ledger
from anew.core.merge import Cell
from anew.core.rebuild import RebuildStatus, Stage, advance, end
from anew.core.stamp import BATCH, Stamp, fabric_origin
from anew.core.stores.rebuild import StoreRebuild
from anew.testing.builders import a_feed, a_rebuild, a_store
from anew.testing.clock import NOON_MS

# -- ledger ----------------------------------------------------------------------------------------------------------


def _ledger(**changes: Entry) -> Ledger:
    entries = {
        "read": Entry(count=10, hash=100),
        "superseded": Entry(count=3, hash=30),
        "deleted": Entry(count=1, hash=5),
        "skipped": Entry(count=1, hash=0),
        "written": Entry(count=5, hash=72),
        "raised": Entry(count=1, hash=7),
    }
    return Ledger(**{**entries, **changes})


@pytest.mark.case("rules:R19", "stores:J1")
def test_a_ledger_balances_in_rows_and_in_hashes() -> None:
    """Read plus what R6 raised equals everything that left, in counts and in sums of hashes."""
    ledger = _ledger()
    ledger.check()
    assert ledger.counts() == {
        "read": 10,
        "superseded": 3,
        "deleted": 1,
        "expired": 0,
        "skipped": 1,
        "written": 5,
        "combined": 0,
    }


@pytest.mark.case("rules:R19")
@pytest.mark.parametrize(
    "change",
    [
        {"written": Entry(count=4, hash=72)},
        {"written": Entry(count=5, hash=71)},
        {"raised": Entry()},
        {"superseded": Entry(count=4, hash=30), "written": Entry(count=5, hash=72)},
    ],
)
def test_a_ledger_that_does_not_balance_fails(change: dict[str, Entry]) -> None:
    """A lost row, a changed row with the right count, a forgotten raise: each is a failure with the account."""
    with pytest.raises(Failed) as caught:
        _ledger(**change).check()
    assert (caught.value.code, caught.value.found["read"]) == ("ledger_imbalance", 10)


@pytest.mark.case("rules:R19")
def test_counts_alone_would_balance_by_accident() -> None:
    """One row lost and another doubled leaves the counts right; only the hashes show it."""
    swapped = _ledger(written=Entry(count=5, hash=(72 - 11 + 13)))
    assert swapped.imbalance.count == 0
    assert not swapped.balances


def test_ledgers_of_tasks_add_up() -> None:
    """The total is the sum of the entries, hashes modulo 2**64."""
    great = Ledger(read=Entry(count=1, hash=MODULUS - 1), written=Entry(count=1, hash=MODULUS - 1))
    total = total_ledger([great, great, _ledger()])
    assert (total.read.count, total.read.hash) == (12, 98)
    assert total.balances
    assert total_ledger([]) == Ledger()


# -- errors ----------------------------------------------------------------------------------------------------------

_CLASSES = [InvalidRequest, NotFound, Refused, Unreachable, OutcomeUnknown, PartlyDone, Failed]


@pytest.mark.parametrize("kind", _CLASSES)
def test_errors_survive_json_and_pickle(kind: type[AnewError]) -> None:
    """An error that crossed HTTP or a process boundary is the same class with the same attributes."""
    error = kind("a_code", "what happened", found={"x": [1]}, expected="y", hint="do z")
    for copy in (error_from_json(error.http_status, error.to_json()), pickle.loads(pickle.dumps(error))):
        assert type(copy) is kind
        assert copy.to_json() == error.to_json()
        assert str(copy) == "what happened; found: x: 1; expected: y; hint: do z"


def test_an_error_says_only_what_it_knows() -> None:
    """Attributes that were not given are not part of the text; an answer of another shape is still an error."""
    assert str(Failed("c", "m")) == "m"
    odd = error_from_json(418, {})
    assert (type(odd), odd.code) == (Failed, "unexpected_answer")


def test_exit_codes_are_those_of_the_face() -> None:
    """Each class has its exit code and status, and the codes of the face are all there."""
    assert [(c.exit_code, c.http_status) for c in _CLASSES] == [
        (2, 422),
        (2, 404),
        (3, 409),
        (4, 503),
        (5, 504),
        (6, 207),
        (1, 500),
    ]


# -- positions -------------------------------------------------------------------------------------------------------

_A0, _A1, _B0 = FeedPartition("a#1", 0), FeedPartition("a#1", 1), FeedPartition("b#1", 0)


def test_a_position_reaches_another_partition_by_partition() -> None:
    """At or past in each partition; a missing partition is not reached, and an empty target is."""
    here = PositionMap({_A0: 5, _A1: 7})
    assert here.reaches({_A0: 5})
    assert not here.reaches({_A0: 6})
    assert not here.reaches({_B0: 0})
    assert NOWHERE.reaches(NOWHERE)
    assert here.records_to({_A0: 8, _A1: 2, _B0: 4}) == 3 + 0 + 4


@pytest.mark.case("rules:R3")
def test_another_incarnation_is_another_feed() -> None:
    """A position in a topic says nothing about the topic that was made again under its name."""
    assert not PositionMap({FeedPartition("dc-0/s_rt#1", 0): 900}).reaches({FeedPartition("dc-0/s_rt#2", 0): 0})


def test_a_position_survives_json() -> None:
    """Partitions are text there, numbers here; another shape is refused."""
    here = PositionMap({_B0: 1, _A1: 7, _A0: 5})
    assert here.to_json() == {"a#1": {"0": 5, "1": 7}, "b#1": {"0": 1}}
    assert PositionMap.from_json(here.to_json()) == here
    assert hash(PositionMap.from_json(here.to_json())) == hash(here)
    assert here.with_offset(_A0, 6).merged({_B0: 9}).to_json() == {"a#1": {"0": 6, "1": 7}, "b#1": {"0": 9}}
    with pytest.raises(ValueError, match="object of feeds"):
        PositionMap.from_json([1])


# -- rebuilds --------------------------------------------------------------------------------------------------------


def test_a_rebuild_goes_forward_only() -> None:
    """Stages advance with the time that each took; going back is refused, staying changes nothing."""
    built = advance(a_rebuild(a_store()), Stage.BUILD, NOON_MS + 1_500)
    assert (built.stage, built.timings, built.stage_since_ms) == (Stage.BUILD, {"begin": 1.5}, NOON_MS + 1_500)
    assert advance(built, Stage.BUILD, NOON_MS + 9_000) == built
    with pytest.raises(Refused) as caught:
        advance(built, Stage.BEGIN, NOON_MS + 9_000)
    assert caught.value.code == "stage_backwards"


def test_a_rebuild_ends_once() -> None:
    """The first ending stays, and nothing advances after it."""
    killed = end(a_rebuild(a_store()), RebuildStatus.KILLED, "why", NOON_MS + 10)
    assert (killed.ended, killed.error, killed.ended_at_ms, killed.stage) == (True, "why", NOON_MS + 10, Stage.BEGIN)
    assert end(killed, RebuildStatus.SUCCEEDED, None, NOON_MS + 20) == killed
    with pytest.raises(Refused) as caught:
        advance(killed, Stage.BUILD, NOON_MS + 20)
    assert caught.value.code == "rebuild_ended"
    assert end(a_rebuild(a_store()), RebuildStatus.SUCCEEDED, None, NOON_MS).stage is Stage.DONE


def test_records_refuse_fields_that_they_do_not_know() -> None:
    """A document of a later format is not read as if it were this one."""
    document = a_rebuild(a_store()).model_dump()
    with pytest.raises(ValidationError):
        StoreRebuild.model_validate({**document, "of_a_later_release": 1})


# -- cells -----------------------------------------------------------------------------------------------------------


def test_the_cell_format_is_what_it_was() -> None:
    """The bytes of a put, a tombstone and a batch record are those that earlier releases wrote."""
    origin = fabric_origin("dc-0").encoded
    put = Cell(Stamp(0x0102030405060708, origin, True, 3, 23, 77), b"body", 5)
    assert encode_cell(put).hex() == (
        "0102050005000000080706050403020103000000170000004d000000000000000264632d30626f6479"
    )
    tombstone = Cell(Stamp(9, origin, False, 1, 0, 1), None)
    assert encode_cell(tombstone).hex() == (
        "01010500000000000900000000000000010000000000000001000000000000000264632d30"
    )
    batch = Cell(Stamp(0, BATCH.encoded), b"", 1)
    assert encode_cell(batch).hex() == ("010001000100000000000000000000000000000000000000000000000000000000")
    assert [decode_cell(encode_cell(cell)) for cell in (put, tombstone, batch)] == [put, tombstone, batch]


def test_an_empty_value_is_no_tombstone() -> None:
    """A value of no bytes comes back as such, not as a delete."""
    found = decode_cell(encode_cell(Cell(Stamp(1), b"", 2)))
    assert (found.value, found.tombstone) == (b"", False)


def test_cells_of_another_format_are_refused() -> None:
    """A version that this release does not know, or too few bytes, is never read as a cell."""
    encoded = encode_cell(Cell(Stamp(1), b"x", 2))
    for read in (decode_cell, lambda cell: decode_headers([encoded, cell])):
        with pytest.raises(Failed) as caught:
            read(b"\x02" + encoded[1:])
        assert (caught.value.code, caught.value.found) == ("unknown_cell_format", "format version 2")
    with pytest.raises(Failed) as short:
        decode_cell(encoded[:31])
    assert (short.value.code, short.value.found) == ("corrupt_cell", 31)


def test_a_feed_says_its_kind_only_where_it_is_a_new_one() -> None:
    """Nodes and clients of the release before know no kinds, and read feeds of nearline writes as they did."""
    feed = a_feed()
    assert "kind" not in feed.model_dump_json()
    other = feed.model_copy(update={"kind": FeedKind.GENERATION})
    assert Feed.model_validate_json(other.model_dump_json()) == other
    assert Feed.model_validate_json(feed.model_dump_json()).kind is FeedKind.RT
