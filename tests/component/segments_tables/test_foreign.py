"""Files of other programs: right when they come in, or refused by file, column and row."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anew.core.errors import AnewError, Failed, InvalidRequest
from anew.core.tables.columns import TYPES, Column
from anew.core.tables.segment import Contents
from anew.rebuild.tables.importing import examined
from anew.segments.tables.foreign import examine
from anew.segments.tables.rebuild import RebuildJob, rebuild_file
from anew.sql.query import QueryEngine
from anew.sql.views import SegmentFile, TableView
from tests.component.segments_tables.rows import EVERY_TYPE, config_of
from tests.component.sql.tables import LIMITS

_DAY_US = 86_400_000_000
_JULIAN_EPOCH = 2_440_588


def _file(folder: Path, column: Any, **options: Any) -> Path:
    path = folder / "theirs.parquet"
    pq.write_table(pa.table({"id": range(len(column)), "x": column}), path, **options)
    return path


def _queried(path: Path, contents: Contents, wanted: tuple[Column, ...], where: str = "true") -> pa.Table:
    types = {name: stats.type for name, stats in contents.columns.items()}
    engine = QueryEngine([TableView("t", wanted, (SegmentFile(str(path), types, segment="theirs", foreign=True),))])
    answer = engine.execute(f"SELECT * FROM t WHERE {where} ORDER BY id", LIMITS)
    engine.close()
    return answer


def _int96(values: list[int | None]) -> pa.Array[Any]:
    """Rows that a file holds as INT96; pyarrow writes those from ns, so that only near times can be made with it."""
    return pa.array([None if v is None else v * 1_000 for v in values], pa.int64()).cast(pa.timestamp("ns"))


def _patched(path: Path, near_us: int, far_us: int) -> None:
    """Put another time in the place of one of an uncompressed INT96 column, also one that ns in 64 bits do not hold."""

    def coded(moment_us: int) -> bytes:
        day, of_day = divmod(moment_us, _DAY_US)
        return (of_day * 1_000).to_bytes(8, "little") + (day + _JULIAN_EPOCH).to_bytes(4, "little")

    content = path.read_bytes()
    assert content.count(coded(near_us)) == 1
    path.write_bytes(content.replace(coded(near_us), coded(far_us)))


@pytest.mark.parametrize(
    "held",
    [pa.int8(), pa.uint8(), pa.uint16(), pa.uint32(), pa.float16()],
    ids=str,
)
def test_narrow_types_become_those_that_hold_them(held: Any, tmp_path: Path) -> None:
    """Types that tables do not have are taken as the nearest of theirs that loses nothing, in both readers alike."""
    top = 1 if pa.types.is_floating(held) else int(np.iinfo(held.to_pandas_dtype()).max)
    path = _file(tmp_path, pa.array(np.array([0, 1, top]).astype(held.to_pandas_dtype()), held))
    kinds = {pa.int8(): "smallint", pa.uint8(): "smallint", pa.uint16(): "integer", pa.uint32(): "bigint"}
    config = config_of({"id": "bigint", "x": kinds.get(held, "real")})
    contents = examined(path, config)
    assert _queried(path, contents, config.columns).column("x").to_pylist() == [0, 1, top]
    made = rebuild_file(path, tmp_path / "made.parquet", RebuildJob(config, known=contents))
    assert made.contents.columns["x"].fingerprint == contents.columns["x"].fingerprint


@pytest.mark.parametrize("kind", [*EVERY_TYPE])
def test_every_type_of_tables_is_taken(kind: str, tmp_path: Path) -> None:
    """Extreme values and nulls of each type come in, and queries answer them."""
    column = pa.array(EVERY_TYPE[kind], Column(name="x", type=kind).arrow_type)
    path, config = _file(tmp_path, column), config_of({"id": "bigint", "x": kind})
    answer = _queried(path, examined(path, config), config.columns)
    assert answer.column("x").combine_chunks().equals(column)


@pytest.mark.parametrize(
    "held",
    [
        *(
            pa.uint64(),
            pa.time64("us"),
            pa.list_(pa.int64()),
            pa.struct([("a", pa.int8())]),
            pa.map_(pa.string(), pa.int8()),
        ),
        *(pa.decimal256(50, 2), pa.duration("us")),
    ],
    ids=str,
)
def test_types_that_tables_lack_are_refused_by_name(held: Any, tmp_path: Path) -> None:
    """A column that the table names and cannot hold is refused; one that it does not name does not matter."""
    path = _file(tmp_path, pa.nulls(2, held) if not pa.types.is_duration(held) else pa.array([1, 2]).cast(held))
    with pytest.raises(InvalidRequest) as refused:
        examined(path, config_of({"id": "bigint", "x": "bigint"}))
    if not pa.types.is_duration(held):
        assert refused.value.code == "unsupported_type"
    assert "column x of" in refused.value.message or "column x " in refused.value.message
    assert str(path) in f"{refused.value.message} {refused.value.found}"
    config = config_of({"id": "bigint"})
    contents = examined(path, config)
    assert (contents.rows, "id" in contents.columns) == (2, True)
    made = rebuild_file(path, tmp_path / "made.parquet", RebuildJob(config, known=contents))
    assert made.contents.rows == 2


def test_what_was_left_out_does_not_come_back(tmp_path: Path) -> None:
    """A column that was left out because tables cannot hold it is missing for good: its default, before and after."""
    path = _file(tmp_path, pa.array([[1], [2]]))
    contents = examined(path, config_of({"id": "bigint"}))
    later = config_of({"id": "bigint", "x": {"type": "bigint", "default": 7}})
    assert _queried(path, contents, later.columns).column("x").to_pylist() == [7, 7]
    made = rebuild_file(path, tmp_path / "made.parquet", RebuildJob(later, known=contents))
    assert made.contents.columns["x"].filled


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_whole_microseconds_in_nanoseconds_are_taken(zone: str | None, tmp_path: Path) -> None:
    """Nanoseconds as pandas writes them come in where they are whole µs, the same for queries and the refresh."""
    moments = [1_582_934_400_000_001_000, -1_000, None]
    path = _file(tmp_path, pa.array(moments, pa.int64()).cast(pa.timestamp("ns", zone)))
    config = config_of({"id": "bigint", "x": "timestamp"})
    contents = examined(path, config)
    found = _queried(path, contents, config.columns).column("x").cast(pa.int64()).to_pylist()
    assert found == [1_582_934_400_000_001, -1, None]
    assert contents.columns["x"].greatest == "2020-02-29T00:00:00.000001"
    made = rebuild_file(path, tmp_path / "made.parquet", RebuildJob(config, known=contents))
    assert made.contents.columns["x"].fingerprint == contents.columns["x"].fingerprint


@pytest.mark.parametrize("options", [{}, {"use_deprecated_int96_timestamps": True}], ids=["nanoseconds", "int96"])
def test_less_than_a_microsecond_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    """A time that microseconds do not hold is refused with file, column and row, never cut."""
    path = _file(tmp_path, pa.array([0, 1_001]).cast(pa.timestamp("ns")), **options)
    with pytest.raises(InvalidRequest, match=r"column x of .*theirs.parquet is not a whole number of .*, in row 1"):
        examined(path, config_of({"id": "bigint", "x": "timestamp"}))


@example(moment=16_725_225_600_000_001)
@example(moment=-62_135_596_800_000_000)
@example(moment=3_000_000_000_000_000_007)
@settings(deadline=None, max_examples=30)
@given(moment=st.integers((1 - _JULIAN_EPOCH) * _DAY_US, 250_000 * 366 * _DAY_US))
def test_int96_holds_times_of_any_year(moment: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """INT96 (Spark, Impala, Hive) outside of 1677 to 2262 too: the same µs in bounds, filters and the refresh."""
    near, folder = 1_582_934_400_123_456, tmp_path_factory.mktemp("int96")
    options = {"use_deprecated_int96_timestamps": True, "compression": "none", "use_dictionary": False}
    path, config = _file(folder, _int96([near, None]), **options), config_of({"id": "bigint", "x": "timestamp"})
    _patched(path, near, moment)
    contents = examined(path, config)
    assert _queried(path, contents, config.columns).column("x").cast(pa.int64()).to_pylist() == [moment, None]
    made = rebuild_file(path, folder / "made.parquet", RebuildJob(config, known=contents))
    assert made.contents.columns["x"].fingerprint == contents.columns["x"].fingerprint
    least, greatest = contents.columns["x"].least, contents.columns["x"].greatest
    if least is not None:
        assert least == greatest == (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=moment)).isoformat()  # noqa: DTZ001 - as bounds are


def test_int96_that_microseconds_do_not_hold_is_refused(tmp_path: Path) -> None:
    """A day so far away that 64 bits of microseconds do not reach it is refused, not wrapped around."""
    options = {"use_deprecated_int96_timestamps": True, "compression": "none", "use_dictionary": False}
    path = _file(tmp_path, _int96([0, 1_582_934_400_123_456]), **options)
    _patched(path, 1_582_934_400_123_456, 500_000 * 366 * _DAY_US)
    with pytest.raises(InvalidRequest, match=r"column x of .* is too far away, in row 1"):
        examined(path, config_of({"id": "bigint", "x": "timestamp"}))


@pytest.mark.parametrize("dictionary", [["x"], []], ids=["dictionary", "plain"])
@pytest.mark.parametrize("bad", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80"])
def test_texts_that_are_not_utf8_are_refused(bad: bytes, dictionary: list[str], tmp_path: Path) -> None:
    """Invalid UTF-8 in a column that the table names is refused with file, column and row; elsewhere it is left out."""
    held = pa.array([b"fine", b"also", bad])
    texts: Any = pa.Array.from_buffers(pa.string(), len(held), held.buffers())
    path = _file(tmp_path, texts, use_dictionary=dictionary)
    with pytest.raises(InvalidRequest) as refused:
        examined(path, config_of({"id": "bigint", "x": "varchar"}))
    assert refused.value.code == "not_utf8"
    assert f"the column x of {path} is not valid UTF-8, in row 2" in refused.value.message
    assert set(examined(path, config_of({"id": "bigint"})).columns) == {"id"}


@pytest.mark.parametrize(
    ("column", "wanted", "code"),
    [
        (pa.array(["1", "one"]), {"type": "bigint"}, "bad_value"),
        (pa.array([1.0, 1.5]), {"type": "bigint"}, "bad_value"),
        (pa.array([b"a", b"\xff"]), {"type": "varchar"}, "bad_value"),
        (pa.array(["a", None]), {"type": "varchar", "nullable": False}, "null_value"),
    ],
)
def test_what_no_query_could_answer_is_refused(column: Any, wanted: dict[str, Any], code: str, tmp_path: Path) -> None:
    """A value that does not become one of the table's type is refused when it comes in, with file, column and row."""
    path = _file(tmp_path, column)
    with pytest.raises(InvalidRequest, match=r"theirs.parquet: .*column x .*in row 1") as refused:
        examined(path, config_of({"id": "bigint", "x": wanted}))
    assert refused.value.code == code


def test_a_column_of_nulls_alone_fits_every_type(tmp_path: Path) -> None:
    """A column without any value, as pandas writes it, is one of nulls of whatever type the table wants."""
    path = _file(tmp_path, pa.nulls(2))
    for kind in TYPES:
        config = config_of({"id": "bigint", "x": kind})
        assert _queried(path, examined(path, config), config.columns).column("x").null_count == 2


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """SQL knows no difference between upper and lower case: which of two columns is meant cannot be told."""
    path = tmp_path / "theirs.parquet"
    pq.write_table(pa.table({"id": [1], "x": [1], "X": [2]}), path)
    with pytest.raises(InvalidRequest) as refused:
        examined(path, config_of({"id": "bigint", "x": "bigint"}))
    assert refused.value.code == "duplicate_column"
    assert set(examined(path, config_of({"id": "bigint"})).columns) == {"id"}


class _Keys(pe.KmsClient):
    """Keys that are kept nowhere: the file is only to be unreadable."""

    def __init__(self, _configuration: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> Any:
        return key_bytes.hex().encode()

    def unwrap_key(self, wrapped_key: Any, master_key_identifier: str) -> Any:
        return bytes.fromhex(wrapped_key.decode())


def _encrypted(path: Path, *, plaintext_footer: bool) -> None:
    table = pa.table({"id": [1, 2], "x": [1, 2]})
    factory = pe.CryptoFactory(_Keys)
    settings = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["x"]}, plaintext_footer=plaintext_footer)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


def _unreadable(path: Path, how: str) -> None:
    pq.write_table(pa.table({"id": [1, 2], "x": [1, 2]}), path)
    content = path.read_bytes()
    match how:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_bytes(b"id,x\n1,2\n")
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "footer":
            path.write_bytes(content[:-40] + b"\xff" * 28 + content[-12:])
        case "encrypted":
            _encrypted(path, plaintext_footer=False)
        case _:
            _encrypted(path, plaintext_footer=True)


@pytest.mark.parametrize("how", ["empty", "text", "cut", "footer", "encrypted", "encrypted column"])
def test_files_that_cannot_be_read_are_refused(how: str, tmp_path: Path) -> None:
    """A file that is not Parquet, cut, damaged or encrypted is refused with its name, never with a traceback."""
    path = tmp_path / "theirs.parquet"
    _unreadable(path, how)
    with pytest.raises(InvalidRequest) as refused:
        examined(path, config_of({"id": "bigint", "x": "bigint"}))
    assert refused.value.code == "not_parquet"
    assert str(path) in refused.value.message
    assert "\n" not in str(refused.value)
    if how == "encrypted column":
        assert "column x" in refused.value.message


@pytest.mark.parametrize("seed", range(40))
def test_damaged_bytes_never_end_in_a_traceback(seed: int, tmp_path: Path) -> None:
    """A file with bytes that were changed is right in all that the table names, or refused by name."""
    chance = np.random.default_rng(seed)
    path, config = tmp_path / "theirs.parquet", config_of({"id": "bigint", "x": "varchar"})
    rows = pa.table({"id": range(500), "x": [f"text {number % 7}" for number in range(500)]})
    pq.write_table(rows, path, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    for place in chance.integers(0, len(content), 3):
        content[place] ^= int(chance.integers(1, 256))
    path.write_bytes(content)
    try:
        contents = examined(path, config)
    except AnewError as error:
        refused = error
    else:
        assert _queried(path, contents, config.columns).num_rows == contents.rows
        return
    assert isinstance(refused, InvalidRequest)
    assert str(path) in str(refused)


def test_a_refresh_names_the_column_that_is_damaged(tmp_path: Path) -> None:
    """A page that is damaged later fails the refresh with the file and the column."""
    path, config = tmp_path / "ours.parquet", config_of({"id": "bigint", "x": "varchar"})
    rows = pa.table({"id": range(500), "x": [f"text {number}" for number in range(500)]})
    pq.write_table(rows, path, compression="gzip")
    known = examine(path, config)
    chunk = pq.read_metadata(path).row_group(0).column(1)
    content = bytearray(path.read_bytes())
    first = (chunk.dictionary_page_offset or chunk.data_page_offset) + 40
    content[first : first + 40] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(Failed) as failed:
        rebuild_file(path, tmp_path / "made.parquet", RebuildJob(config, known=known))
    assert failed.value.code == "segment_unreadable"
    assert "the column x of a file" in failed.value.message
    assert str(path) in str(failed.value.found)


def test_statistics_that_leave_values_out_are_refused(tmp_path: Path) -> None:
    """A file whose statistics are not those of its values would lose rows to filters: it is refused by column."""
    path = _file(tmp_path, pa.array([5, 6, 7], pa.int64()), compression="none", use_dictionary=False)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:footer] + content[footer:].replace((5).to_bytes(8, "little"), (6).to_bytes(8, "little")))
    statistics: Any = pq.read_metadata(path).row_group(0).column(1).statistics
    assert statistics.min == 6
    with pytest.raises(InvalidRequest) as refused:
        examined(path, config_of({"id": "bigint", "x": "bigint"}))
    assert refused.value.code == "wrong_statistics"
    assert f"column x of {path}" in refused.value.message
    assert "no row with 5" in str(refused.value.found)
