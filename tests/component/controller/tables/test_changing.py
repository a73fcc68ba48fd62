"""Making, changing and deleting tables: what is allowed, what is refused, and what becomes stale."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from anew.api.tables.requests import CreateTable, DropSegments, ReloadTable, UpdateTable
from anew.api.tables.views import TableView
from anew.catalog.change import Change, PutTable
from anew.core.errors import InvalidRequest, NotFound, Refused
from anew.core.tables.rebuild import TableRebuild
from anew.testing.table_builders import a_schema
from tests.component.controller.harness import plain, refused
from tests.component.controller.tables.tables_harness import Tables


def _create(tables: Tables, name: str = "trips", request_id: str | None = "r-1", **settings: Any) -> TableView:
    request = CreateTable(name=name, columns=a_schema(), settings=settings, request_id=request_id)
    return tables.cluster.client.create_table(request)


# -- making ----------------------------------------------------------------------------------------------------------


def test_a_new_table_has_all_settings_and_no_segments(tables: Tables) -> None:
    """Its view says what it is made of; its configuration can be asked for by hash at once."""
    view = _create(tables, sortedColumn="city", replication=1)
    assert (view.name, view.segments, view.rows, view.stale) == ("trips", 0, 0, 0)
    assert (view.config.sort, view.config.replicas) == (("city",), 1)
    assert [column.name for column in view.columns] == ["id", "city", "fare", "left_at", "came_at"]
    table = tables.table()
    assert tables.cluster.client.config(view.config_hash) == table.config
    assert tables.cluster.client.table("trips") == view
    assert [each.name for each in tables.cluster.client.tables()] == ["trips"]
    assert (tables.cluster.client.segments("trips"), view.schedule) == ([], None)


@pytest.mark.case("rules:R22")
def test_the_same_request_makes_one_table(tables: Tables) -> None:
    """Repeated, it is the same table, whatever became of it; with another body it is refused."""
    first = _create(tables)
    assert _create(tables) == first
    tables.update(sort="city")
    assert _create(tables).uid == first.uid
    assert refused(InvalidRequest, lambda: _create(tables, replicas=1)).code == "request_id_reused"
    assert refused(InvalidRequest, lambda: _create(tables, "cabs")).code == "request_id_reused"
    assert len(tables.cluster.client.tables()) == 1
    assert len([row for row in tables.cluster.client.history("trips") if row.what == "create table"]) == 1


@pytest.mark.case("rules:R22")
def test_the_same_request_twice_at_once_makes_one_table(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two handlers of one request the slower one answers with what the faster one made."""
    catalog = tables.cluster.context.catalog
    commit = catalog.commit
    views: list[TableView | None] = []

    def raced(change: Change) -> bool:
        if not views and any(isinstance(put, PutTable) for put in change.puts):
            views.append(None)
            views.append(_create(tables))
        return commit(change)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", raced)
        second = _create(tables)
    assert second == views[1]
    assert len(catalog.tables()) == 1


def test_a_taken_name_is_refused(tables: Tables) -> None:
    """A second table of one name is refused and leaves the first as it is."""
    _create(tables)
    before = tables.table()
    assert refused(Refused, lambda: _create(tables, request_id="r-2", sort="city")).code == "table_exists"
    assert refused(Refused, lambda: _create(tables, request_id=None)).code == "table_exists"
    assert tables.table() == before


@pytest.mark.parametrize(
    ("name", "settings", "code"),
    [
        ("Trips", {}, "bad_name"),
        ("trips", {"sorts": "city"}, "unknown_setting"),
        ("trips", {"replicas": 0}, "bad_setting"),
        ("trips", {"sort": "fair"}, "unknown_column"),
        ("trips", {"bucket": "day"}, "bad_setting"),
        ("trips", {"time_column": "city"}, "bad_setting"),
        ("trips", {"derived": {"fare": "id +"}}, "bad_expression"),
        ("trips", {"derived": {"fare": "random()"}}, "not_deterministic"),
        ("trips", {"row_filter": "fair > 0"}, "unknown_column"),
        ("trips", {"refresh": {"schedule": "daily"}}, "bad_schedule"),
    ],
)
def test_what_does_not_fit_makes_no_table(tables: Tables, name: str, settings: dict[str, Any], code: str) -> None:
    """A bad name, setting, column or expression is refused as such, and nothing is there afterwards."""
    error = refused(InvalidRequest, lambda: _create(tables, name, **settings))
    assert error.code == code
    assert tables.cluster.client.tables() == []
    assert _create(tables).name == "trips"


def test_an_unknown_table_has_the_nearest_name(tables: Tables) -> None:
    """Whatever is asked of a table that is not there is refused with what was meant."""
    tables.create()
    client = tables.cluster.client
    acts: list[Callable[[], object]] = [
        lambda: client.table("trip"),
        lambda: client.update_table("trip", UpdateTable(settings={"sort": "id"})),
        lambda: client.delete_table("trip"),
        lambda: client.segments("trip"),
        lambda: client.reload_table("trip", ReloadTable()),
        lambda: tables.plan("trip"),
        lambda: client.rebuilds(table="trip"),
    ]
    for act in acts:
        error = refused(NotFound, act)
        assert (error.code, error.hint) == ("unknown_table", "did you mean trips?")
    assert refused(NotFound, lambda: client.config("t1-none")).code == "unknown_config"


# -- changing --------------------------------------------------------------------------------------------------------


@pytest.mark.case("tables:A3", "tables:A5", "tables:E10")
def test_only_what_decides_bytes_makes_stale(tables: Tables) -> None:
    """Settings that act at once leave segments fresh; a new sort makes all stale, and taken back, none."""
    before = tables.create()
    tables.load("a", "b")
    tables.update(replicas=2, backup_retention_seconds=5, tags="x", refresh={"forceReload": True})
    assert (tables.stale(), tables.table().config_hash) == ([], before.config_hash)
    tables.update(refresh=None)
    assert (tables.stale(), tables.table().settings.refresh.forceReload) == ([], False)
    tables.update(sort="city")
    assert (tables.stale(), tables.cluster.client.table("trips").stale) == (["a", "b"], 2)
    after = tables.update(sort=None)
    assert (tables.stale(), after.config_hash) == ([], before.config_hash)
    assert tables.plan().segments == ()


def test_a_change_that_does_not_fit_changes_nothing(tables: Tables) -> None:
    """Settings are taken all or none; a column that a setting names cannot go."""
    before = tables.create(sort="city")
    for schema, settings in (
        (None, {"replicas": 3, "sort": "fair"}),
        (a_schema(without="city"), {}),
        (a_schema(), {"row_filter": "count(*) > 0"}),
    ):
        refused(InvalidRequest, partial(tables.update, schema=schema, **settings))
    assert tables.table().settings == before.settings
    assert tables.table().columns == before.columns


_X = {"name": "x", "type": "bigint", "nullable": False}
_TAG, _PAID = {"name": "tag", "type": "blob"}, {"name": "paid", "type": "boolean"}
_INCOMPATIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "filter removed": ({"row_filter": None}, "cannot come back"),
    "filter loosened": ({"row_filter": "fare > 0"}, "cannot come back"),
    "filter replaced": ({"row_filter": "fare > 1 AND city = 'b'"}, "cannot come back"),
    "not nullable without a default": ({"schema": a_schema(_TAG, _PAID, _X)}, "no values of the new column x"),
    "time to a truth": ({"schema": a_schema(_TAG, _PAID, left_at={"type": "boolean"})}, "no value of left_at"),
    "number to a time": ({"schema": a_schema(_TAG, _PAID, id={"type": "timestamp"})}, "no value of id"),
    "bytes to a number": ({"schema": a_schema({**_TAG, "type": "bigint"}, _PAID)}, "no value of tag"),
    "truth to a decimal": ({"schema": a_schema(_TAG, {**_PAID, "type": "decimal(5,2)"})}, "no value of paid"),
}
_COMPATIBLE: dict[str, dict[str, Any]] = {
    "filter tightened": {"row_filter": "id > 0 AND city = 'a' AND fare > 0"},
    "filter spelt otherwise": {"row_filter": "(CITY = 'a') and fare > 0"},
    "column with a default": {"schema": a_schema({**_X, "default": 0})},
    "nullable column": {"schema": a_schema({**_X, "nullable": True})},
    "derived column": {"schema": a_schema(_X), "derived": {"x": "id + 1"}},
    "column removed": {"schema": a_schema(without="came_at")},
    "wider type": {"schema": a_schema(id={"type": "decimal(38,0)"})},
    "text": {"schema": a_schema(id={"type": "varchar"})},
    "narrower type": {"schema": a_schema(id={"type": "integer"})},
}


@pytest.mark.case("tables:C8")
@pytest.mark.parametrize("what", _INCOMPATIBLE)
def test_what_segments_cannot_follow_is_refused(tables: Tables, what: str) -> None:
    """Rows that a filter took out cannot come back, nor values appear from nowhere; the refusal says so."""
    tables.create(schema=a_schema(_TAG, _PAID), row_filter="fare > 0 AND city = 'a'")
    tables.load("a")
    before = tables.table()
    change, why = _INCOMPATIBLE[what]
    error = refused(InvalidRequest, lambda: tables.update(**change))
    assert (error.code, why in error.message) == ("incompatible_change", True)
    assert tables.table() == before


@pytest.mark.case("tables:C8")
@pytest.mark.parametrize("what", _COMPATIBLE)
def test_what_segments_can_follow_is_taken(tables: Tables, what: str) -> None:
    """A filter that is tightened, a column with values of its own, a type that values can become."""
    before = tables.create(row_filter="fare > 0 AND city = 'a'")
    tables.load("a")
    after = tables.update(**_COMPATIBLE[what])
    assert after.config_hash != before.config_hash
    assert tables.stale() == ["a"]


def test_an_empty_table_follows_every_change(tables: Tables) -> None:
    """Without segments there is nothing that could not follow."""
    tables.create(row_filter="fare > 0")
    after = tables.update(schema=a_schema(_X, left_at={"type": "boolean", "role": "dimension"}), row_filter=None)
    assert (after.config.row_filter, after.config.by_name["x"].nullable) == (None, False)


@pytest.mark.case("tables:C3")
def test_segments_of_older_configurations_have_to_follow_too(tables: Tables) -> None:
    """A type that the present one can become, but not that of a segment which is behind, waits for its refresh."""
    tables.create()
    tables.load("a")
    tables.update(schema=a_schema(id={"type": "varchar", "nullable": False}))
    wanted = a_schema(id={"type": "timestamp", "nullable": False})
    error = refused(InvalidRequest, lambda: tables.update(schema=wanted))
    assert (error.code, error.found) == ("incompatible_change", "bigint")
    tables.refresh()
    assert tables.update(schema=wanted).config.by_name["id"].type == "timestamp"


@pytest.mark.case("tables:C8")
def test_rows_on_their_way_have_to_follow_too(tables: Tables) -> None:
    """A load that runs has filtered rows already: until it has ended the filter stays, though no segment is there."""
    tables.create(row_filter="fare > 0")
    rebuild = tables.begin(tables.load_plan())
    assert refused(InvalidRequest, lambda: tables.update(row_filter=None)).code == "incompatible_change"
    tables.cluster.client.kill_rebuild(rebuild.id)
    assert tables.update(row_filter=None).config.row_filter is None


@pytest.mark.case("tables:C8")
def test_rows_that_came_meanwhile_have_to_follow_too(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that is committed while a change is considered makes the change be considered again."""
    tables.create(row_filter="fare > 0")
    catalog = tables.cluster.context.catalog
    commit, waiting = catalog.commit, ["a"]

    def raced(change: Change) -> bool:
        if waiting and change.operation.what == "update table":
            tables.load(waiting.pop())
        return commit(change)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", raced)
        error = refused(InvalidRequest, lambda: tables.update(row_filter=None))
    assert (error.code, tables.table().config.row_filter) == ("incompatible_change", "fare > 0")


@pytest.mark.case("tables:C8")
def test_a_filter_that_took_out_no_row_yet_is_taken_back(tables: Tables) -> None:
    """While all segments are of the time before it, it is changed and removed; nodes make their copies again."""
    before = tables.create()
    tables.load("a", "b")
    tables.update(row_filter="fare >= 100")
    assert tables.update(row_filter="fare >= 50").config.row_filter == "fare >= 50"
    tables.cluster.client.kill_rebuild(tables.begin(tables.plan()).id)
    assert tables.update(row_filter=None).config_hash == before.config_hash
    assert (tables.stale(), {each.reload for each in tables.desired("node-1").segments}) == ([], {2})


@pytest.mark.case("tables:C8")
def test_a_filter_stays_as_soon_as_a_refresh_works_with_it(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a beginning that a change has not yet seen, to the last segment that lacks rows: it is refused."""
    tables.create()
    tables.load("a", "b")
    tables.update(row_filter="fare >= 100")
    catalog = tables.cluster.context.catalog
    commit, begun = catalog.commit, list[TableRebuild]()

    def raced(change: Change) -> bool:
        if not begun and change.operation.what == "update table":
            begun.append(tables.begin(tables.plan()))
        return commit(change)

    def is_refused() -> bool:
        return refused(InvalidRequest, lambda: tables.update(row_filter=None)).code == "incompatible_change"

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", raced)
        assert is_refused()
    (rebuild,) = begun
    assert is_refused()
    tables.commit(rebuild, tables.refreshed(rebuild, "a"))
    tables.cluster.client.kill_rebuild(rebuild.id)
    assert is_refused()
    tables.cluster.client.drop_segments("trips", DropSegments(segments=("a",)))
    assert tables.update(row_filter=None).config.row_filter is None


def test_two_changes_at_once_are_both_made(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that loses the compare-and-swap is made again on what the other one left."""
    tables.create()
    catalog = tables.cluster.context.catalog
    commit, waiting = catalog.commit, ["city"]

    def raced(change: Change) -> bool:
        if waiting:
            tables.update(sort=waiting.pop())
        return commit(change)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit", raced)
        tables.update(row_group_rows=2_000)
    settings = tables.table().settings
    assert (settings.sort, settings.row_group_rows) == (("city",), 2_000)


@pytest.mark.case("tables:E5")
def test_a_reload_reaches_the_nodes_and_nothing_else(tables: Tables) -> None:
    """Nodes are told how often copies were asked for, one by one and all; nothing becomes stale or fresh by it."""
    tables.create(replicas=2)
    tables.load("a", "b")
    tables.update(sort="city")
    client = tables.cluster.client
    client.reload_table("trips", ReloadTable(segment="a"))
    client.reload_table("trips", ReloadTable())
    assert {each.name: each.reload for each in tables.desired("node-1").segments} == {"a": 2, "b": 1}
    assert tables.stale() == ["a", "b"]
    error = refused(NotFound, lambda: client.reload_table("trips", ReloadTable(segment="aa")))
    assert (error.code, error.hint) == ("unknown_segment", "did you mean a?")


# -- deleting --------------------------------------------------------------------------------------------------------


def test_dropped_segments_are_gone_at_once(tables: Tables) -> None:
    """All that are named or none; named twice is dropped once; a name that is not there has the nearest."""
    tables.create(replicas=2)
    tables.load("jan_1", "feb_1", "mar_1")
    client = tables.cluster.client
    error = refused(NotFound, lambda: client.drop_segments("trips", DropSegments(segments=("jan_1", "feb_2"))))
    assert (error.code, error.hint, len(client.segments("trips"))) == ("unknown_segment", "did you mean feb_1?", 3)
    view = client.drop_segments("trips", DropSegments(segments=("jan_1", "feb_1", "jan_1")))
    assert (view.segments, view.rows) == (1, 10)
    assert [segment.name for segment in tables.desired("node-1").segments] == ["mar_1"]


@pytest.mark.case("rules:R16")
def test_a_deleted_table_s_name_comes_back_as_another(tables: Tables) -> None:
    """The new table has another identity, and no segment, rebuild, file or copy of the old one."""
    old = tables.create(replicas=2, sort="city")
    tables.load("a")
    stored = tables.files()
    assert plain(tables.cluster.client.delete_table("trips")) == {"deleted": "trips"}
    assert refused(NotFound, lambda: tables.cluster.client.table("trips")).code == "unknown_table"
    desired = tables.cluster.client.desired("node-1", "dc-0")
    assert desired is not None
    assert desired.tables == ()
    new = tables.create(replicas=2)
    assert (new.uid != old.uid, new.made, new.settings.sort) == (True, 0, ())
    assert tables.cluster.client.table("trips").segments == 0
    assert tables.cluster.client.rebuilds(table="trips") == []
    tables.load("a")
    assert len(tables.files()) == 2
    assert all(path.startswith(f"tables/{new.uid}/") for path in tables.files() if path not in stored)
    assert [table.uid for table in tables.cluster.context.catalog.deleted_tables()] == [old.uid]


def test_a_table_in_work_is_not_deleted(tables: Tables) -> None:
    """While a rebuild runs the deletion is refused and says which; afterwards it is not."""
    tables.create()
    tables.load("a")
    tables.update(sort="city")
    rebuild = tables.begin(tables.plan())
    error = refused(Refused, lambda: tables.cluster.client.delete_table("trips"))
    assert (error.code, error.found, error.hint) == ("rebuild_running", rebuild.id, f"anew rebuild kill {rebuild.id}")
    tables.cluster.client.kill_rebuild(rebuild.id)
    tables.cluster.client.delete_table("trips")
    assert tables.cluster.client.tables() == []


@pytest.mark.case("rules:R22")
def test_who_did_what_is_on_record(tables: Tables) -> None:
    """Each change of a table is a line of history with its actor."""
    tables.create()
    tables.update(sort="city")
    tables.load("a")
    tables.refresh()
    tables.cluster.client.delete_table("trips")
    rows = tables.cluster.client.history("trips")
    done = [(row.what, row.actor) for row in reversed(rows)]
    assert done[0] == ("create table", "tester")
    assert done[1] == ("assign segments", "controller")
    assert ("update table", "tester") in done
    assert done.index(("begin table_load", "tester")) < done.index(("load", "driver"))
    assert done[-1] == ("delete table", "tester")
