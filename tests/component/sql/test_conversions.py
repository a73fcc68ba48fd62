"""Changed types: a query of a stale file answers as it will after the refresh, or both refuse."""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anew.core.errors import AnewError, Failed, InvalidRequest
from anew.core.tables.columns import TYPES, arrow_type, parse_columns
from anew.core.tables.config import SegmentConfig, segment_config
from anew.core.tables.settings import TableSettings
from anew.segments.tables.rebuild import RebuildJob, rebuild_file
from anew.segments.tables.shape import shaped
from anew.sql.query import QueryEngine
from anew.sql.views import SegmentFile, TableView
from tests.component.sql.tables import LIMITS

_INTS = [0, 1, -1, 7, 127, 2**15 - 1, -(2**15)]
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.25, 0.1, 100.0, float("nan"), float("inf"), float("-inf"), 1e10]
_DECIMAL_TYPES = ("decimal(5,1)", "decimal(18,4)", "decimal(38,0)", "decimal(38,30)")
_DECIMALS = ["0", "1", "-1", "0.5", "1.2", "99.9", "-99.9", "100", "1.25"]
_TEXTS = [
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "+1",
        "007",
        " 1",
        "1 ",
        "1.0",
        "1.5",
        "1.25",
        "1e2",
        "1e400",
        "0x10",
        "1_000",
        "\u0661",
    ),
    *("nan", "inf", "-inf", "Infinity", "true", "TRUE", "false", "t", "yes", "32768", "9223372036854775808"),
    *("2020-02-29", "2019-02-29", "0001-01-01", "9999-12-31", "10000-01-01", "-0001-01-01", " 2020-01-01", "20200101"),
    *("2020-01-01 12:34:56", "2020-01-01T12:34:56.789", "2020-01-01 00:00:00Z", "2020-01-01T00:00:00+05:30"),
    *("2020-01-01 00:00:00.1234567", "2020-01-01 24:00:00", "1969-12-31 23:59:59.999999", "\\xAA", "é", "\x00"),
    "12345678901234567890123456789012345678",
]
_DAYS = [0, -1, 18_321, 2_932_896, 2_932_897, -719_162, -719_163, -719_529, 100_000_000, 2_000_000_000]
_MOMENTS = [
    *(0, 1, -1, 86_400_000_000, -86_400_000_000, 1_582_934_400_000_000, 1_582_934_400_000_001),
    *(253_402_300_799_999_999, 253_402_300_800_000_000, -62_135_596_800_000_001, 9_000_000_000_000_000_000),
]


def _decimals(held: Any) -> list[Decimal]:
    fits = []
    for text in [*_DECIMALS, "9" * (held.precision - held.scale), "0." + "0" * (held.scale - 1) + "1"]:
        try:
            fits.append(pa.scalar(Decimal(text), held).as_py())
        except pa.ArrowInvalid:
            continue
    return fits


EDGES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "smallint": _INTS,
    "integer": [*_INTS, 2**24 + 1, 2**31 - 1, -(2**31)],
    "bigint": [*_INTS, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    "real": [*_FLOATS, 3.4e38, 1e-45],
    "double": [*_FLOATS, 1e16, 1e-7, 123456.789, 3.5e38, 1e300, 5e-324, 2.0**63, -(2.0**63), 0.1 + 0.2],
    "varchar": _TEXTS,
    "blob": [b"", b"a", b"1", b"\xff", b"\x00", "é".encode(), b"\\xAA"],
    "date": _DAYS,
    "timestamp": _MOMENTS,
    **{kind: _decimals(arrow_type(kind)) for kind in _DECIMAL_TYPES},
}
PAIRS = [(held, wanted) for held, wanted in product(EDGES, EDGES) if held != wanted]


def _values(kind: str, values: list[Any]) -> pa.Array[Any]:
    held = arrow_type(kind)
    if kind in ("date", "timestamp"):
        return pa.array(values, pa.int32() if kind == "date" else pa.int64()).cast(held)
    return pa.array(np.array(values, np.float32) if kind == "real" else values, held)


def _config(kind: str, **column: Any) -> SegmentConfig:
    columns = parse_columns({"columns": [{"name": "x", "type": kind, **column}]})
    return segment_config(columns, TableSettings())


def _queried(path: Path, held: str, wanted: SegmentConfig, *, nulls: bool = False) -> pa.ChunkedArray[Any]:
    file = SegmentFile(str(path), {"x": held}, segment="s1", nulls=frozenset({"x"} if nulls else ()))
    engine = QueryEngine([TableView("t", wanted.columns, (file,))])
    try:
        answer: pa.ChunkedArray[Any] = engine.execute("SELECT x FROM t", LIMITS).column("x")
    finally:
        engine.close()
    return answer


def _refreshed(path: Path, target: Path, wanted: SegmentConfig) -> pa.ChunkedArray[Any]:
    target.unlink(missing_ok=True)
    rebuild_file(path, target, RebuildJob(wanted))
    column: pa.ChunkedArray[Any] = pq.read_table(target).column("x")
    return column


def _bits(column: Any) -> list[Any]:
    """Values that are equal only where nothing tells them apart: not NaN, whose kinds nobody promises."""
    array = column.combine_chunks()
    if pa.types.is_floating(array.type):
        return [None if v is None else "nan" if v != v else np.float64(v).tobytes() for v in array.to_pylist()]
    if pa.types.is_temporal(array.type):
        return list(array.cast(pa.int32() if pa.types.is_date(array.type) else pa.int64()).to_pylist())
    return list(array.to_pylist())


def test_every_type_has_edge_values() -> None:
    """The table of edge values names every type that a schema may have."""
    assert set(TYPES) <= set(EDGES)
    assert any(kind.startswith("decimal") for kind in EDGES)


@pytest.mark.case("tables:C3")
@pytest.mark.parametrize(("held", "wanted"), PAIRS, ids=[f"{held}-{wanted}" for held, wanted in PAIRS])
def test_a_stale_file_answers_as_after_its_refresh(held: str, wanted: str, tmp_path: Path) -> None:
    """For each value of each type: the answer before the refresh is that after it, or both refuse and name it alike."""
    config, path, fitting = _config(wanted), tmp_path / "held.parquet", tmp_path / "fitting.parquet"
    values = _values(held, EDGES[held])
    refused = {row: error for row in range(len(values)) if (error := _refusal(values[row : row + 1], config))}
    fits = [row for row in range(len(values)) if row not in refused]
    pq.write_table(pa.table({"id": range(len(values)), "x": values}), path)
    pq.write_table(pa.table({"x": values.take(pa.array(fits, pa.int64()))}), fitting)
    columns = (*parse_columns({"columns": [{"name": "id", "type": "bigint"}]}), *config.columns)
    engine = QueryEngine(
        [TableView("t", columns, (SegmentFile(str(path), {"id": "bigint", "x": held}, segment="s1"),))]
    )
    for row, error in refused.items():
        with pytest.raises(InvalidRequest) as query:
            engine.execute(f"SELECT x FROM t WHERE id = {row}", LIMITS)
        if error.code == "bad_value":
            assert f"in row {min(refused)} of the segment s1" in query.value.message
            assert query.value.found == f"{refused[min(refused)].found} in the column x"
    if fits:
        chosen = ", ".join(str(row) for row in fits)
        before = engine.execute(f"SELECT x FROM t WHERE id IN ({chosen}) ORDER BY id", LIMITS).column("x")
        after = _refreshed(fitting, tmp_path / "made.parquet", config)
        assert before.type == after.type
        assert _bits(before) == _bits(after)
    engine.close()


def _refusal(value: Any, config: SegmentConfig) -> Failed | None:
    """Why a refresh refuses a value."""
    try:
        shaped(pa.table({"x": value}), config)
    except Failed as error:
        return error
    return None


@pytest.mark.parametrize(
    ("held", "values", "wanted"),
    [
        ("double", [1.25], "decimal(5,1)"),
        ("double", [0.1 + 0.2], "decimal(5,1)"),
        ("real", [1.25], "decimal(5,1)"),
        ("double", [1e5], "decimal(5,1)"),
        ("decimal(18,4)", [Decimal("1.25")], "decimal(5,1)"),
        ("varchar", ["1.25"], "decimal(5,1)"),
        ("varchar", ["1.5"], "integer"),
        ("varchar", ["1e400"], "double"),
        ("timestamp", [1], "date"),
        ("date", [2_000_000_000], "timestamp"),
        ("date", [2_000_000_000], "varchar"),
        ("timestamp", [9_000_000_000_000_000_000], "varchar"),
    ],
)
def test_what_loses_something_is_refused(held: str, values: list[Any], wanted: str, tmp_path: Path) -> None:
    """A conversion never rounds, cuts or wraps around in silence."""
    path = tmp_path / "held.parquet"
    pq.write_table(pa.table({"x": _values(held, values)}), path)
    with pytest.raises(Failed, match="does not fit its type, in row 0"):
        _refreshed(path, tmp_path / "made.parquet", _config(wanted))


def test_floats_that_a_decimal_holds_are_converted(tmp_path: Path) -> None:
    """A double that a decimal gives back exactly becomes that decimal."""
    path = tmp_path / "held.parquet"
    given, texts = [1.5, -0.0, 123456.7, None, 0.1], ["1.5", "0.0", "123456.7", None, "0.1"]
    pq.write_table(pa.table({"x": pa.array(given)}), path)
    after = _refreshed(path, tmp_path / "made.parquet", _config("decimal(7,1)"))
    assert [None if value is None else str(value) for value in after.to_pylist()] == texts


def test_the_misfit_is_named_with_its_segment_and_row(tmp_path: Path) -> None:
    """Of several files, the error names the segment and the row in which the value lies, whatever DuckDB read first."""
    rows = 5_000
    pq.write_table(pa.table({"x": ["1"] * rows}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": ["1"] * (rows - 1) + ["one"]}), tmp_path / "b.parquet")
    files = tuple(SegmentFile(str(tmp_path / f"{n}.parquet"), {"x": "varchar"}, segment=f"seg_{n}") for n in "ab")
    engine = QueryEngine([TableView("t", _config("bigint").columns, files)])
    with pytest.raises(InvalidRequest) as refused:
        engine.execute("SELECT sum(x) FROM t", LIMITS)
    assert f"the column x does not fit its type, in row {rows - 1} of the segment seg_b" in refused.value.message
    assert "'one'" in refused.value.found
    assert engine.execute("SELECT count(*) AS n FROM t", LIMITS).to_pydict() == {"n": [2 * rows]}
    engine.close()


@pytest.mark.parametrize("held", ["bigint", "varchar"])
def test_nulls_answer_as_after_the_refresh(held: str, tmp_path: Path) -> None:
    """A column that may have nulls no longer has its default for them, or refuses: in queries as in the refresh."""
    path, target = tmp_path / "held.parquet", tmp_path / "made.parquet"
    pq.write_table(pa.table({"x": pa.array([None, "5"]).cast(arrow_type(held))}), path)
    filled = _config("bigint", nullable=False, default=3)
    assert _queried(path, held, filled, nulls=True).to_pylist() == [3, 5]
    assert _refreshed(path, target, filled).to_pylist() == [3, 5]
    strict = _config("bigint", nullable=False)
    with pytest.raises(AnewError, match="has a null and may have none, in row 0"):
        _refreshed(path, target, strict)
    with pytest.raises(AnewError, match="has a null and may have none, in row 0 of the segment s1"):
        _queried(path, held, strict, nulls=True)


@pytest.mark.parametrize("kind", ["real", "double"])
@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("isnan(d)", [0]),
        ("d > 2", [0]),
        ("d <> 1", [0]),
        ("d >= 1", [0, 1, 2]),
        ("d = 'nan'", [0]),
        ("NOT d <= 5", [0]),
        ("d BETWEEN 0 AND 2", [1, 2]),
        ("d IN (7, 'nan'::DOUBLE)", [0]),
        ("d IS DISTINCT FROM 1", [0]),
    ],
)
def test_filters_find_nan(kind: str, condition: str, ids: list[int], tmp_path: Path) -> None:
    """Statistics in a footer leave NaN out; a filter finds the row all the same."""
    path = tmp_path / "nan.parquet"
    columns = parse_columns({"columns": [{"name": "id", "type": "bigint"}, {"name": "d", "type": kind}]})
    pq.write_table(pa.table({"id": [0, 1, 2], "d": pa.array([np.nan, 1.0, 1.0], arrow_type(kind))}), path)
    engine = QueryEngine([TableView("t", columns, (SegmentFile(str(path), {"id": "bigint", "d": kind}),))])
    answer = engine.execute(f"SELECT id FROM t WHERE {condition} ORDER BY id", LIMITS)
    engine.close()
    assert answer.column("id").to_pylist() == ids


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_of_other_programs_are_read(unit: str, zone: str | None, tmp_path: Path) -> None:
    """Whole microseconds are read from a foreign file in whatever unit and zone it has them, beside one of our own."""
    moments, per_second = [0, 1_582_934_400], {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    given = pa.array([moment * per_second for moment in moments]).cast(pa.timestamp(unit, zone))
    far = pa.array([8_000_000_000_000_000_000]).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"x": given}), tmp_path / "foreign.parquet")
    pq.write_table(pa.table({"x": far}), tmp_path / "own.parquet")
    files = tuple(
        SegmentFile(str(tmp_path / f"{name}.parquet"), {"x": "timestamp"}, foreign=name == "foreign")
        for name in ("foreign", "own")
    )
    engine = QueryEngine([TableView("t", _config("timestamp").columns, files)])
    answer = engine.execute("SELECT x FROM t ORDER BY x", LIMITS).column("x")
    assert answer.cast(pa.int64()).to_pylist() == [
        *(moment * 1_000_000 for moment in moments),
        8_000_000_000_000_000_000,
    ]
    late = engine.execute("SELECT x FROM t WHERE x > TIMESTAMP '2020-01-01' ORDER BY x", LIMITS).column("x")
    engine.close()
    assert str(late[0]) == "2020-02-29 00:00:00"
    assert len(late) == 2
