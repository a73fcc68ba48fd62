"""Queries on a node: one set of builds each, pruned, fetched where others host them, and within limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from anew.api.tables.segments import DesiredTable
from anew.node.tables.hosting import ServedFile
from tests.component.node.tables.asking import Asker, Between, asker, query_processes
from tests.component.node.tables.harness import (
    COLUMNS,
    PLAIN,
    SORTED,
    WIDER,
    Rig,
    damage,
    flipped,
    plain_answer,
    raised,
    rig,
    rows,
    segment,
    table,
)
from tests.component.segments_tables.rows import config_of

pytestmark = pytest.mark.processes

ALL = "SELECT count(*), sum(id), min(city), max(fare) FROM trips"


@pytest.fixture(scope="module")
def pool() -> Iterator[Between]:
    """The processes that run queries."""
    with query_processes() as made:
        yield made


@pytest.fixture
def node(tmp_path: Path) -> Rig:
    """A node with an empty disk."""
    return rig(tmp_path)


@pytest.fixture
def asks(node: Rig, pool: Between) -> Asker:
    """Who asks the node."""
    return asker(node, pool)


def trips(node: Rig, *firsts: int, hosted: bool = True) -> DesiredTable:
    """A table of a segment of 40 rows from each of these ids on."""
    built = [node.build(rows(first)) for first in firsts]
    return table(*(segment(build, f"s{at}", hosted=hosted) for at, build in enumerate(built)))


def source(*firsts: int) -> pa.Table:
    """The rows of such a table."""
    return pa.concat_tables([rows(first) for first in firsts])


@pytest.mark.case("tables:E1")
def test_a_query_reads_what_it_began_with(node: Rig, asks: Asker) -> None:
    """All segments are swapped after a query chose its files: it answers from the old builds, the next from the new."""
    node.settle(trips(node, 0, 100, 200))
    old = node.files()
    new = trips(node, 1_000, 2_000, 3_000)
    asks.pool.then.append(lambda: node.settle(new))
    assert asks.rows(ALL) == plain_answer(source(0, 100, 200), ALL)
    assert asks.pool.then == []
    assert {path for path in old if path.suffix == ".parquet"} <= node.files()
    assert asks.rows(ALL) == plain_answer(source(1_000, 2_000, 3_000), ALL)
    node.work()
    assert not old & node.files()


@pytest.mark.case("tables:E1")
def test_a_swap_between_the_look_and_the_hold_is_looked_at_again(
    node: Rig, asks: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that went before a query could hold them are not read: it chooses again, from the new builds."""
    node.settle(trips(node, 0, 100))
    new, look, looks = trips(node, 1_000, 2_000), node.host.files_of, list[int]()

    def files_of(wanted: DesiredTable) -> list[ServedFile]:
        found = look(wanted)
        looks.append(len(found))
        if len(looks) == 1:
            node.settle(new)
        return found

    monkeypatch.setattr(node.host, "files_of", files_of)
    assert asks.rows(ALL) == plain_answer(source(1_000, 2_000), ALL)
    assert looks == [2, 2]


@pytest.mark.case("tables:E1", "tables:F3")
@pytest.mark.parametrize("counts", [(120,), (80, 40), (10, 50, 30, 30), (60, 60)])
def test_rows_that_a_load_dealt_otherwise_are_seen_once(
    node: Rig, asks: Asker, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of a load a node has taken over, in whichever order, each query sees every row once."""
    old, expected = trips(node, 0, 40, 80), plain_answer(rows(0, 120), ALL)
    node.settle(old)
    firsts = [sum(counts[:at]) for at in range(len(counts))]
    built = [node.build(rows(first, count)) for first, count in zip(firsts, counts, strict=True)]
    new = table(*(segment(build, f"s{at}", redealt=True) for at, build in enumerate(built)))
    node.host.accept(node.desired(new))
    assert asks.rows(ALL) == expected
    while node.host.step():
        assert asks.rows(ALL) == expected
    # A query that looked before the host took the new ones over.
    monkeypatch.setattr(node.host, "tables", lambda: {"trips": old})
    assert asks.rows(ALL) == expected


def test_files_that_went_behind_the_back_are_told(node: Rig, asks: Asker) -> None:
    """A query whose file somebody removed ends with `not_ready`, and holds nothing afterwards."""
    wanted = trips(node, 0)
    node.settle(wanted)
    node.path(wanted).unlink()
    raised("not_ready", lambda: asks.rows(ALL))
    assert not node.host.is_read(node.path(wanted))


@pytest.mark.case("tables:E5", "tables:E9")
def test_local_rebuilds_there_and_back_are_never_mixed_up(node: Rig, asks: Asker) -> None:
    """Queries between reloads see each copy as it is, also when a configuration comes back."""
    build = node.build(rows(0))
    order = "SELECT id, city, fare FROM trips"
    for number, config in enumerate((PLAIN, SORTED, PLAIN, SORTED, WIDER)):
        node.settle(table(segment(build, reload=number), config=config))
        assert node.report().config_hash == config.hash
        found = asks.rows(order)
        assert sorted(found) == sorted(plain_answer(rows(0), order))
        assert ([row[1] for row in found] == sorted(row[1] for row in found)) == (config is SORTED)


@pytest.mark.case("tables:E7")
def test_a_new_column_answers_for_old_segments_at_once(node: Rig, asks: Asker) -> None:
    """Its default stands for what old segments lack, in select, filter and order; newer segments have their values."""
    node.settle(table(segment(node.build(rows(0)))))
    tipped = rows(100).append_column("tip", pa.array([number % 3 for number in range(40)], pa.int64()))
    old = node.host.tables()["trips"].segments[0]
    node.settle(table(old, segment(node.build(tipped, WIDER), "s1"), config=WIDER))
    assert [report.config_hash for report in node.host.report()] == [PLAIN.hash, WIDER.hash]
    whole = pa.concat_tables([rows(0).append_column("tip", pa.array([7] * 40, pa.int64())), tipped])
    for sql in (
        "SELECT tip, count(*) FROM trips GROUP BY tip ORDER BY tip",
        "SELECT id, tip FROM trips WHERE tip = 7 ORDER BY id",
        "SELECT id FROM trips WHERE tip < 2 ORDER BY tip DESC, id",
        "SELECT id, tip FROM trips ORDER BY tip DESC, id LIMIT 45",
        "SELECT sum(tip) FROM trips WHERE id BETWEEN 35 AND 105",
        "SELECT count(*) FROM trips WHERE tip > 7",
    ):
        assert asks.rows(sql) == plain_answer(whole, sql), sql


@pytest.mark.case("tables:E7")
def test_a_changed_default_answers_as_after_the_refresh(node: Rig, asks: Asker) -> None:
    """A column that holds nothing but an older default answers with the new one, also where statistics prune."""
    build = node.build(rows(0), WIDER)
    assert build.contents.filled == {"tip"}
    wanted = config_of({**COLUMNS, "tip": {"type": "bigint", "default": 9}})
    node.settle(table(segment(build), config=wanted, skip_segment_preprocess=True))
    whole = rows(0).append_column("tip", pa.array([9] * 40, pa.int64()))
    for sql in ("SELECT count(*) FROM trips WHERE tip = 9", "SELECT id, tip FROM trips WHERE tip > 7 ORDER BY id"):
        assert asks.rows(sql) == plain_answer(whole, sql), sql


@pytest.mark.case("tables:C3", "tables:E7")
def test_changed_types_answer_as_after_the_refresh(node: Rig, asks: Asker) -> None:
    """Through the query process: values as the refresh writes them, and a misfit named with segment and row."""
    built = node.build(rows(0))
    texts = config_of({**COLUMNS, "fare": "varchar"})
    node.settle(table(segment(built), config=texts, skip_segment_preprocess=True))
    found = [fare for (fare,) in asks.rows("SELECT fare FROM trips WHERE fare IS NOT NULL ORDER BY id LIMIT 4")]
    assert found == ["0.25", "0.5", "0.75", "1"]
    exact = config_of({**COLUMNS, "fare": "decimal(5,1)"})
    node.settle(table(segment(built), config=exact, revision=2, skip_segment_preprocess=True))
    error = raised("bad_query", lambda: asks.rows("SELECT sum(fare) FROM trips"))
    assert "the column fare does not fit its type, in row 1 of the segment s0" in error.message
    assert "0.25" in str(error.found)


def test_segments_of_other_nodes_are_fetched_once(node: Rig, asks: Asker) -> None:
    """What others host comes from the deep store with the first query, and from the cache afterwards."""
    here, there = trips(node, 0).segments[0], trips(node, 100, 200, hosted=False).segments
    node.settle(table(here, *(each.model_copy(update={"name": f"r{at}"}) for at, each in enumerate(there))))
    expected = plain_answer(source(0, 100, 200), ALL)
    assert asks.rows(ALL) == expected
    assert asks.reads(ALL) == ["trips: 3 of 3 segments read, 0 pruned, 2 not here"]
    assert asks.cached == {each.build.id for each in there}
    for each in (here, *there):
        node.deep.delete(each.build.path)
    assert asks.rows(ALL) == expected


def test_a_segment_that_is_not_here_yet_is_fetched_for_the_query(node: Rig, asks: Asker) -> None:
    """A node that is to host a segment, and could not load it yet, answers all the same."""
    node.loader.holds = True
    node.settle(trips(node, 0))
    assert node.report().build is None
    assert asks.rows(ALL) == plain_answer(rows(0), ALL)


def test_more_segments_than_the_cache_holds_can_be_read_at_once(node: Rig, pool: Between) -> None:
    """The cache's bound does not take from a query what it needs; afterwards the bound holds."""
    wanted = trips(node, *range(0, 1_000, 100), hosted=False)
    most = 2 * max(each.build.bytes for each in wanted.segments)
    asks = asker(node, pool, cache_bytes=most)
    node.settle(wanted)
    assert asks.rows(ALL) == plain_answer(source(*range(0, 1_000, 100)), ALL)
    assert 0 < sum(path.stat().st_size for path in (node.folder / "cache").iterdir()) <= most


def test_the_cache_is_cleaned_of_what_no_table_wants(node: Rig, asks: Asker) -> None:
    """A new desired state takes replaced builds, and those of dropped tables, out of the cache, without any query."""
    one, two = trips(node, 0, hosted=False), trips(node, 100, hosted=False)
    other = table(two.segments[0], name="other", uid="u2")
    node.settle(one, other)
    assert (asks.rows(ALL), asks.rows("SELECT count(*) FROM other")) == (plain_answer(rows(0), ALL), [(40,)])
    assert asks.cached == {one.segments[0].build.id, two.segments[0].build.id}
    newer = trips(node, 500, hosted=False)
    node.settle(newer, other)
    assert asks.cached == {two.segments[0].build.id}
    node.settle(newer)
    assert asks.cached == set()
    assert asks.rows(ALL) == plain_answer(rows(500), ALL)


@pytest.mark.case("tables:E4")
def test_a_segment_that_changed_in_the_deep_store_is_refused_where_it_is_read(node: Rig, asks: Asker) -> None:
    """A query that would read it fails by the checksum; one that does not need it is answered."""
    wanted = trips(node, 0, 100, hosted=False)
    node.settle(wanted)
    harmed = node.in_deep_store(wanted.segments[1].build)
    damage(harmed, flipped(harmed.read_bytes()))
    error = raised("checksum_mismatch", lambda: asks.rows(ALL))
    assert error.expected == wanted.segments[1].build.sha256
    few = "SELECT count(*), sum(id) FROM trips WHERE id < 50"
    assert asks.rows(few) == plain_answer(rows(0), few)


@pytest.mark.parametrize("hosted", [True, False])
def test_explain_tells_what_was_pruned(node: Rig, asks: Asker, *, hosted: bool) -> None:
    """Segments whose statistics exclude every row are left out, never fetched, and told; the answer is the same."""
    wanted = trips(node, 0, 100, 200, 300, hosted=hosted)
    node.settle(wanted)
    few = "SELECT id, city FROM trips WHERE id BETWEEN 130 AND 210 ORDER BY id"
    told = f"trips: 2 of 4 segments read, 2 pruned, {0 if hosted else 2} not here"
    plan = [row[0] for row in asks.rows(f"EXPLAIN {few}")]
    groups = f"{told}; 2 of their 2 row groups may match"
    assert (plan[0], "READ_PARQUET" in "".join(plan[1:])) == (groups, True)
    assert asks.reads(few) == [told]
    assert asks.rows(few) == plain_answer(source(0, 100, 200, 300), few)
    assert asks.cached == (set() if hosted else {each.build.id for each in wanted.segments[1:3]})
    none = "SELECT count(*) FROM trips WHERE id > 400"
    assert (asks.reads(none), asks.rows(none)) == (
        ["trips: 0 of 4 segments read, 4 pruned, 0 not here"],
        [(0,)],
    )


@pytest.mark.case("tables:C4")
def test_explain_tells_which_row_groups_may_match(node: Rig, asks: Asker) -> None:
    """What the file is sorted by rules out row groups, another column does not; nor does what a footer cannot say."""
    sorted_by_id = config_of(COLUMNS, sort="id", row_group_rows=1_000)
    node.settle(table(segment(node.build(rows(0, 3_000), sorted_by_id)), config=sorted_by_id))

    def told(condition: str) -> str:
        return str(asks.rows(f"EXPLAIN SELECT count(*) FROM trips WHERE {condition}")[0][0]).partition("; ")[2]

    assert told("id BETWEEN 1500 AND 1600") == "1 of their 3 row groups may match"
    assert told("id >= 1500") == "2 of their 3 row groups may match"
    assert told("city = 'city 3'") == "3 of their 3 row groups may match"
    assert told("id % 2 = 0") == "3 of their 3 row groups may match"


def test_each_table_is_told(node: Rig, asks: Asker) -> None:
    """A join says of each of its tables what it read; names are found however they are spelled."""
    other = table(segment(node.build(rows(20))), name="Other", uid="u2")
    node.settle(trips(node, 0, 100), other)
    sql = "SELECT count(*) FROM TRIPS a JOIN other b ON a.id = b.id WHERE b.id < 1000 AND a.id < 50"
    assert asks.rows(sql) == [(20,)]
    assert asks.reads(sql) == [
        "trips: 1 of 2 segments read, 1 pruned, 0 not here",
        "Other: 1 of 1 segments read, 0 pruned, 0 not here",
    ]


def test_a_table_that_is_not_known_is_refused(node: Rig, asks: Asker) -> None:
    """The refusal names what there is, and what was probably meant; what one may not read is not looked into."""
    node.settle(trips(node, 0))
    error = raised("unknown_table", lambda: asks.rows("SELECT * FROM tripz"))
    assert (error.found, error.expected, "trips" in str(error.hint)) == ("tripz", "trips", True)

    def refuse(name: str) -> None:
        raise LookupError(name)

    with pytest.raises(LookupError, match="trips"):
        asks.queries.answer("SELECT 1 FROM Trips", refuse)


@pytest.mark.parametrize(
    ("limits", "sql", "code"),
    [
        ({"rows": 39}, "SELECT id FROM trips", "too_many_rows"),
        ({"seconds": 0.3}, "SELECT count(*) FROM trips a, range(100000000000) b, range(1000) c", "query_timeout"),
        ({"memory_bytes": 50_000_000}, "SELECT list(i) FROM trips, range(100000000) r(i)", "query_out_of_memory"),
    ],
)
def test_a_query_beyond_a_limit_is_stopped(
    node: Rig, asks: Asker, limits: dict[str, float], sql: str, code: str
) -> None:
    """Rows, seconds and memory end a query with the limit's own code; the next one is answered, and no file is held."""
    wanted = trips(node, 0)
    node.settle(wanted)
    limited = asks.limited(**limits)
    raised(code, lambda: limited.rows(sql))
    assert not node.host.is_read(node.path(wanted))
    assert limited.rows("SELECT count(id) FROM trips") == [(40,)]
    assert asks.rows("SELECT count(id) FROM trips") == [(40,)]
