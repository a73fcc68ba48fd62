"""The table aggregate, segments' names and contents, and the record of a rebuild."""

from __future__ import annotations

import pytest

from anew.core.errors import InvalidRequest, Refused
from anew.core.rebuild import RebuildStatus
from anew.core.tables.config import segment_config
from anew.core.tables.rebuild import Done, SegmentOutcome, ending, refresh_view, waiting
from anew.core.tables.segment import (
    Build,
    ColumnStats,
    Contents,
    Failure,
    check_segment_name,
    may_be_the_same_rows,
    same_content,
    stale_segment,
)
from anew.core.tables.table import (
    SLOTS,
    asked_to_reload,
    assigned,
    changed,
    check_not_deleted,
    check_table_name,
    next_slots,
)
from anew.testing.table_builders import a_build, a_segment, a_table, a_table_rebuild, some_columns

_R, _ST, _L, _SA, _RP, _RM, _SK, _F = (SegmentOutcome(outcome) for outcome in SegmentOutcome)


@pytest.mark.parametrize("name", ["t", "trips_2013", "a" * 64])
def test_a_table_s_name_names_a_directory(name: str) -> None:
    """Small letters, digits and _ are allowed."""
    check_table_name(name)


@pytest.mark.parametrize("name", ["", "Trips", "1a", "_a", "a-b", "a.b", "../a", "a" * 65, "tä", "a\n"])
def test_other_names_are_refused(name: str) -> None:
    """What could be confused, or lead elsewhere, is no name."""
    with pytest.raises(InvalidRequest) as caught:
        check_table_name(name)
    assert (caught.value.code, caught.value.found) == ("bad_name", name)


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "a/b", "a b", "a" * 121, "ä", "a\n"])
def test_a_segment_s_name_leads_nowhere(name: str) -> None:
    """A segment names files: what is no plain file name is refused."""
    with pytest.raises(InvalidRequest) as caught:
        check_segment_name(name)
    assert (caught.value.code, caught.value.found) == ("bad_name", name)
    check_segment_name("trips_2013-01-31T23_p3_0.v1")


def test_slots_are_dealt_in_turn() -> None:
    """Segment after segment goes to the next slot, also over several loads, and begins again after the last."""
    table, first = next_slots(a_table(), 3)
    table, then = next_slots(table, SLOTS)
    assert (first, then[0], then[-1]) == ((0, 1, 2), 3, 2)
    assert (table.made, set(first + then)) == (SLOTS + 3, set(range(SLOTS)))
    assert next_slots(table, 0) == (table, ())


@pytest.mark.case("tables:E10")
def test_every_slot_has_as_many_nodes_as_replicas() -> None:
    """Slots are spread evenly; when a node goes only its own move, and what fits stays."""
    table = assigned(a_table(replicas=2), ("node-1", "node-2", "node-3"))
    held = [node for slot in range(SLOTS) for node in table.nodes_of(slot)]
    assert len(held) == 2 * SLOTS
    assert {held.count(node) for node in set(held)} <= {42, 43}
    after = assigned(table, ("node-1", "node-2"))
    for slot in range(SLOTS):
        assert set(after.nodes_of(slot)) == {"node-1", "node-2"}
        assert set(table.nodes_of(slot)) - {"node-3"} <= set(after.nodes_of(slot))
    assert a_table().nodes_of(0) == ()


@pytest.mark.case("tables:E5")
def test_reloads_are_counted_for_one_and_for_all() -> None:
    """What was asked of one segment and what was asked of all add up, segment by segment."""
    table = a_table()
    assert table.reload_of("a") == 0
    table = asked_to_reload(asked_to_reload(asked_to_reload(table, "a"), None), "a")
    assert (table.reload_of("a"), table.reload_of("b")) == (3, 1)


def test_a_change_keeps_what_it_does_not_name() -> None:
    """Other columns or other settings: configuration and hash follow, the rest stays; what does not fit is refused."""
    table = a_table(sort="city")
    after = changed(table, some_columns(without="fare"), {"replicas": 3})
    assert (after.settings.sort, after.settings.replicas) == (("city",), 3)
    assert after.config == segment_config(after.columns, after.settings)
    assert after.config_hash == after.config.hash != table.config_hash
    assert (after.uid, after.name, after.revision) == (table.uid, table.name, table.revision)
    assert changed(table, None, {}) == table
    with pytest.raises(InvalidRequest) as caught:
        changed(table, some_columns(without="city"), {})
    assert caught.value.code == "unknown_column"


def test_a_deleted_table_is_refused() -> None:
    """A deleted table is there only to be cleaned up."""
    check_not_deleted(a_table())
    with pytest.raises(Refused) as caught:
        check_not_deleted(a_table().model_copy(update={"deleted_at_ms": 1}))
    assert caught.value.code == "table_deleted"


# -- builds ----------------------------------------------------------------------------------------------------------


def test_a_build_without_a_hash_serves_what_was_wanted_at_its_import() -> None:
    """The hash of a copy is the build's own, else that of the configuration wanted when it was imported."""
    assert a_build(config_hash="t1-a", imported_under="t1-b").served_hash == "t1-a"
    assert a_build(imported_under="t1-b").served_hash == "t1-b"
    assert a_build().served_hash is None


def test_choosing_sees_what_it_needs_of_a_segment() -> None:
    """The row by which a stale segment is judged says the same as the segment."""
    segment = a_segment("s", "t1-a", slot=7, created_at_ms=5)
    stale = stale_segment(segment)
    assert (stale.name, stale.build, stale.bytes, stale.rows) == ("s", "build-of-s", 1_000, 10)
    assert (stale.config_hash, stale.slot, stale.created_at_ms, stale.failed_hash) == ("t1-a", 7, 5, None)
    failed = segment.model_copy(update={"failure": Failure(config_hash="t1-b", error="x", at_ms=1)})
    assert stale_segment(failed).failed_hash == "t1-b"
    columns = {name: ColumnStats(type="bigint", nulls=0, fingerprint=0, filled=name == "b") for name in "ab"}
    assert Contents(rows=1, columns=columns).filled == {"b"}


def _holding(
    fingerprint: int, rows: int = 1, kind: str = "bigint", of_rows: int | None = 8, **changes: object
) -> Build:
    stats = ColumnStats(type=kind, nulls=0, fingerprint=fingerprint)
    contents = Contents(rows=rows, columns={"id": stats}, row_fingerprint=of_rows)
    return a_build(config_hash="t1-a", contents=contents).model_copy(update=changes)


@pytest.mark.case("tables:D6")
def test_content_is_compared_by_configuration_and_fingerprint() -> None:
    """The same rows in the same configuration are the same, in other bytes too; anything else is not."""
    one = _holding(5, sha256="x")
    assert same_content(one, _holding(5, sha256="y"))
    for other in (
        _holding(6, sha256="y"),
        _holding(5, sha256="y", rows=2),
        _holding(5, sha256="y", kind="integer"),
        _holding(5, sha256="y", of_rows=9),
        _holding(5, sha256="y", of_rows=None),
        _holding(5, sha256="y", config_hash="t1-b"),
        _holding(5, sha256="x", config_hash="t1-b"),
        _holding(5, sha256="y", config_hash=None),
    ):
        assert not same_content(one, other)
    assert not same_content(_holding(5, sha256="x", of_rows=None), _holding(5, sha256="y", of_rows=None))
    imported = _holding(5, sha256="x", config_hash=None)
    assert same_content(imported, imported.model_copy(update={"id": "other"}))
    assert not same_content(imported, imported.model_copy(update={"sha256": "y"}))


def _contents(of_rows: int | None, **columns: tuple[str, int]) -> Contents:
    stats = {name: ColumnStats(type=kind, nulls=0, fingerprint=found) for name, (kind, found) in columns.items()}
    return Contents(rows=1, columns=stats, row_fingerprint=of_rows)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (_contents(7, a=("bigint", 1), b=("varchar", 2)), True),
        (_contents(8, a=("bigint", 1), b=("varchar", 2)), False),
        (_contents(None, a=("bigint", 1), b=("varchar", 2)), True),
        (_contents(7, a=("bigint", 1), b=("varchar", 3)), False),
        (_contents(8, a=("bigint", 1), b=("blob", 3)), True),
        (_contents(8, a=("bigint", 1)), True),
        (_contents(8, a=("bigint", 1), b=("varchar", 2), c=("date", 9)), True),
        (_contents(8, a=("bigint", 4), c=("date", 9)), False),
    ],
    ids=["same", "rows", "unknown", "column", "type", "fewer", "more", "shared"],
)
def test_files_of_different_configurations_agree_in_what_they_share(other: Contents, *, expected: bool) -> None:
    """Columns of one name and type hold the same; where there are no others, the rows do as well."""
    one = _contents(7, a=("bigint", 1), b=("varchar", 2))
    assert may_be_the_same_rows(one, other) is expected
    assert may_be_the_same_rows(other, one) is expected


# -- rebuilds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ((), RebuildStatus.SUCCEEDED),
        ((_R, _ST, _L, _SA, _RP, _SK), RebuildStatus.SUCCEEDED),
        ((_SK,), RebuildStatus.SUCCEEDED),
        ((_F, _R), RebuildStatus.PARTLY),
        ((_F, _SK), RebuildStatus.PARTLY),
        ((_F, _F), RebuildStatus.FAILED),
    ],
)
def test_a_rebuild_ends_as_its_segments_did(outcomes: tuple[SegmentOutcome, ...], status: RebuildStatus) -> None:
    """Well where none failed, badly where all did, partly in between."""
    done = [Done(segment=f"s{number}", outcome=outcome) for number, outcome in enumerate(outcomes)]
    assert ending(done) is status


def test_the_view_of_a_refresh_names_every_segment_once() -> None:
    """Done, stamped, skipped and failed ones are told apart; what the plan left is skipped with its reason."""
    segments = [a_segment(name) for name in "abcdefg"]
    rebuild = a_table_rebuild(a_table(), "r-1", *segments)
    plan = rebuild.plan.model_copy(update={"skipped": {"z": "the run is full"}, "drift": ("a",)})
    rebuild = rebuild.model_copy(update={"plan": plan})
    done = [
        Done(segment=name, outcome=outcome, why=f"why {name}")
        for name, outcome in zip("abcdefg", (_R, _ST, _L, _SA, _SK, _F, _RP), strict=True)
    ]
    assert refresh_view(rebuild, done) == {
        "rebuild": "r-1",
        "chosen": ["a", "b", "c", "d", "e", "f", "g"],
        "refreshed": ["a", "c", "g"],
        "removed": [],
        "stamped": ["b", "d"],
        "skipped": [{"segment": "e", "reason": "why e"}, {"segment": "z", "reason": "the run is full"}],
        "drift": ["a"],
        "failed": [{"segment": "f", "error": "why f"}],
    }
    assert [planned.segment for planned in waiting(rebuild, done[:2])] == ["c", "d", "e", "f", "g"]
    assert waiting(rebuild, done) == []
