"""What makes a segment stale: the canonical configuration, its hash, and every difference between two of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anew.core.errors import InvalidRequest
from anew.core.settings import Takes
from anew.core.tables.columns import parse_columns
from anew.core.tables.config import FORMAT, Reason, SegmentConfig, differences, segment_config
from anew.core.tables.settings import TABLE_SETTINGS, TableSettings
from anew.core.tables.table import changed
from anew.testing.table_builders import a_schema, a_segment_config, a_table

_TIP = {"name": "tip", "type": "double", "default": 0.5}
_Said = dict[str, Any]


def _with(schema: _Said | None = None, **settings: Any) -> SegmentConfig:
    return a_segment_config(schema, **settings)


def _format(number: int) -> SegmentConfig:
    return _with().model_copy(update={"format": number})


_MOD: _Said = {"partition_column": "id", "partition_function": "modulo", "partition_count": 4}
_XX: _Said = {"partition_column": "id", "partition_count": 4}
_CHANGES: dict[str, tuple[SegmentConfig, SegmentConfig, str]] = {
    "column added": (_with(), _with(a_schema(_TIP)), "column added: tip (double)"),
    "column removed": (_with(), _with(a_schema(without="fare")), "column removed: fare (double)"),
    "type": (_with(), _with(a_schema(fare={"type": "real"})), "type of fare: double → real"),
    "type of a decimal": (
        _with(a_schema(fare={"type": "decimal(9,2)"})),
        _with(a_schema(fare={"type": "decimal(9,3)"})),
        "type of fare: decimal(9,2) → decimal(9,3)",
    ),
    "default": (
        _with(a_schema(fare={"default": 0})),
        _with(a_schema(fare={"default": 1})),
        "default of fare: 0.0 → 1.0",
    ),
    "default given": (_with(), _with(a_schema(city={"default": "x"})), "default of city: none → x"),
    "role": (_with(), _with(a_schema(fare={"role": "dimension"})), "role of fare: metric → dimension"),
    "nullable": (_with(), _with(a_schema(fare={"nullable": False})), "nullable of fare: on → off"),
    "time column set": (_with(), _with(time_column="left_at"), "time column: none → left_at"),
    "time column changed": (
        _with(time_column="left_at"),
        _with(time_column="came_at"),
        "time column: left_at → came_at",
    ),
    "sort set": (_with(), _with(sort="city"), "sort: none → city"),
    "sort changed": (_with(sort="city,id"), _with(sort="id,city"), "sort: city, id → id, city"),
    "partition set": (_with(), _with(**_MOD), "partition: none → column id, function modulo, count 4"),
    "partition column": (
        _with(**_XX),
        _with(**{**_XX, "partition_column": "city"}),
        "partition: column id, function xxhash64, count 4 → column city, function xxhash64, count 4",
    ),
    "partition function": (
        _with(**_XX),
        _with(**_MOD),
        "partition: column id, function xxhash64, count 4 → column id, function modulo, count 4",
    ),
    "partition count": (
        _with(**_MOD),
        _with(**{**_MOD, "partition_count": 8}),
        "partition: column id, function modulo, count 4 → column id, function modulo, count 8",
    ),
    "bloom added": (_with(), _with(bloom="city"), "bloom of city: none → 0.01"),
    "bloom removed": (_with(bloom="city"), _with(), "bloom of city: 0.01 → none"),
    "bloom fpp": (_with(bloom={"city": 0.1}), _with(bloom={"city": 0.2}), "bloom of city: 0.1 → 0.2"),
    "dictionary off": (_with(), _with(dictionary={"city": "off"}), "dictionary of city: on → off"),
    "dictionary on": (_with(dictionary={"city": "off"}), _with(), "dictionary of city: off → on"),
    "codec of a column": (_with(), _with(codecs={"city": "gzip"}), "codec of city: zstd:3 → gzip:6"),
    "level of a column": (
        _with(codecs={"city": "gzip:1"}),
        _with(codecs={"city": "gzip:9"}),
        "codec of city: gzip:1 → gzip:9",
    ),
    "row group size": (_with(), _with(row_group_rows=1_000), "row group rows: 131072 → 1000"),
    "page index": (_with(), _with(page_index="false"), "page index: on → off"),
    "derived added": (_with(), _with(derived={"fare": "id * 2"}), "derived of fare: none → id * 2"),
    "derived removed": (_with(derived={"fare": "id * 2"}), _with(), "derived of fare: id * 2 → none"),
    "derived changed": (
        _with(derived={"fare": "id * 2"}),
        _with(derived={"fare": "id * 3"}),
        "derived of fare: id * 2 → id * 3",
    ),
    "row filter set": (_with(), _with(row_filter="fare > 0"), "row filter: none → fare > 0"),
    "row filter changed": (_with(row_filter="id > 0"), _with(row_filter="id > 1"), "row filter: id > 0 → id > 1"),
    "format": (_format(FORMAT), _format(FORMAT + 1), f"format: {FORMAT} → {FORMAT + 1}"),
}
_EVERY_COLUMN = ("came_at", "city", "fare", "id", "left_at")
_FOR_ALL: dict[str, tuple[SegmentConfig, str]] = {
    "codec of the table": (_with(codec="snappy"), "zstd:3 → snappy"),
    "level of the table": (_with(level=9), "zstd:3 → zstd:9"),
}


@pytest.mark.case("tables:A2", "tables:A9")
@pytest.mark.parametrize("what", _CHANGES)
def test_each_change_alone_makes_stale_and_says_so(what: str) -> None:
    """One change gives another hash and one reason, which names the column where there is one, and both values."""
    now, wanted, shown = _CHANGES[what]
    assert now.hash != wanted.hash
    assert [reason.shown for reason in differences(now, wanted)] == [shown]


@pytest.mark.case("tables:A2")
@pytest.mark.parametrize("what", _FOR_ALL)
def test_a_change_for_the_whole_table_names_every_column(what: str) -> None:
    """Another codec or level of the table gives another hash and a reason for each column that it compresses."""
    wanted, values = _FOR_ALL[what]
    assert _with().hash != wanted.hash
    shown = [reason.shown for reason in differences(_with(), wanted)]
    assert shown == [f"codec of {column}: {values}" for column in _EVERY_COLUMN]


def test_every_part_of_the_configuration_is_compared() -> None:
    """No field of a configuration can change its hash without a reason being among those shown above."""
    compared = {
        "format": "format",
        "columns": "column added",
        "time_column": "time column set",
        "sort": "sort set",
        "partition": "partition set",
        "encodings": "bloom added",
        "row_group_rows": "row group size",
        "page_index": "page index",
        "derived": "derived added",
        "row_filter": "row filter set",
    }
    assert set(SegmentConfig.model_fields) == set(compared)
    for field, what in compared.items():
        now, wanted, _ = _CHANGES[what]
        assert getattr(now, field) != getattr(wanted, field)


@pytest.mark.case("tables:A1")
def test_the_same_configuration_gives_no_reason() -> None:
    """Made twice from the same words, a configuration has one hash, and nothing is different."""
    first, second = (_with(sort="city", bloom="id", derived={"fare": "id"}, **_MOD) for _ in range(2))
    assert (first.hash, differences(first, second)) == (second.hash, ())
    assert first.hash.startswith("t1-")
    kept = SegmentConfig.model_validate_json(first.model_dump_json())
    assert (kept, kept.hash) == (first, first.hash)


def test_the_hash_is_the_one_that_was_stamped_before() -> None:
    """A release that hashes this configuration otherwise would make every segment stale: it needs another algorithm."""
    schema = {
        "columns": [{"name": "id", "type": "bigint", "default": 1}, {"name": "at", "type": "date", "role": "time"}]
    }
    config = _with(schema, sort="id", time_column="at", bloom={"id": 0.1}, row_filter="id > 0")
    assert config.hash == "t1-a849141b3a5dacc1899c3feb912854d7"


_UNRELATED: dict[str, Any] = {
    "replicas": 5,
    "backup_retention_seconds": 0,
    "quota_bytes": 1_000,
    "refresh": {"schedule": "0 3 * * *", "maxSegments": 3, "reloadOnly": True, "forceReload": True},
    "description": "all trips",
    "tags": ["a", "b"],
    "owner": "somebody",
    "bucket": "month",
    "segment_rows": 5_000,
    "skip_segment_preprocess": True,
}


@pytest.mark.case("tables:A3")
@pytest.mark.parametrize("setting", _UNRELATED)
def test_what_does_not_decide_bytes_makes_nothing_stale(setting: str) -> None:
    """Replication, retention, quota, the refresh task's settings, words about the table: the hash stays."""
    table = a_table(time_column="left_at")
    after = changed(table, None, TABLE_SETTINGS.parse({setting: _UNRELATED[setting]}))
    assert after.settings != table.settings
    assert (after.config_hash, differences(table.config, after.config)) == (table.config_hash, ())


@pytest.mark.case("tables:A3", "tables:A2")
def test_each_setting_says_rightly_whether_it_makes_stale() -> None:
    """What the table of settings says of itself is what the hash does."""
    assert {name for name, row in TABLE_SETTINGS.items() if row.takes is not Takes.REFRESH} == set(_UNRELATED)


@pytest.mark.case("tables:A5")
def test_there_and_back_again_is_not_stale() -> None:
    """A change that is taken back before any run leaves the hash that it was."""
    table = a_table(sort="city")
    there = changed(table, None, TABLE_SETTINGS.parse({"sort": "id", "bloom": "city"}))
    back = changed(there, None, TABLE_SETTINGS.parse({"sort": ["city"], "bloom": None}))
    assert there.config_hash != table.config_hash
    assert (back.config_hash, back.config) == (table.config_hash, table.config)
    wider = changed(table, parse_columns(a_schema(_TIP)), {})
    assert wider.config_hash != table.config_hash
    assert changed(wider, parse_columns(a_schema()), {}).config_hash == table.config_hash


_SAME: dict[str, tuple[_Said, _Said]] = {
    "key order": ({"bloom": {"id": 0.1, "city": 0.2}}, {"bloom": {"city": 0.2, "id": 0.1}}),
    "order of derived columns": (
        {"derived": {"fare": "id", "city": "'x'"}},
        {"derived": {"city": "'x'", "fare": "id"}},
    ),
    "explicit defaults": ({}, {"codec": "zstd", "level": 3, "page_index": True, "row_group_rows": "131072"}),
    "explicit default of a column": ({}, {"codecs": {"city": "zstd:3"}, "dictionary": {"city": "on"}}),
    "explicit false-positive rate": ({"bloom": "city"}, {"bloom": {"city": 0.01}}),
    "a partition function without a column": ({}, {"partition_function": "modulo", "partition_count": 7}),
    "nothing": ({}, {"sort": "", "row_filter": " ", "derived": {}, "bloom": []}),
    "aliases": ({"sort": "city", "codec": "gzip"}, {"sortedColumn": ["city"], "compression": "gzip"}),
    "spelling": ({"sort": "city,id", **_MOD}, {"sort": '["city", "id"]', **_MOD, "partition_count": "4"}),
}


@pytest.mark.case("tables:A6")
@pytest.mark.parametrize("what", _SAME)
def test_two_ways_to_say_the_same_have_one_hash(what: str) -> None:
    """Other key order, an explicit default or an alias is no difference."""
    one, other = (_with(**said) for said in _SAME[what])
    assert (one, one.hash) == (other, other.hash)


@pytest.mark.case("tables:A6")
def test_the_order_and_spelling_of_columns_is_no_difference() -> None:
    """Columns in another order, with aliases of types and explicit defaults, are the same configuration."""
    schema = a_schema(id={"type": "long"}, city={"type": "string", "role": "dimension", "nullable": True})
    other = {"columns": json.loads(json.dumps(schema["columns"][::-1]))}
    assert _with(other, sort="city").hash == _with(sort="city").hash
    assert segment_config(parse_columns(a_schema(_TIP)), TableSettings()).hash != _with().hash


@pytest.mark.case("tables:A7")
def test_all_reasons_are_given() -> None:
    """Many differences at once are all named, those of the whole table first."""
    now = _with(sort="city", bloom="city")
    schema = a_schema(_TIP, without="came_at", fare={"type": "real", "nullable": False, "default": 1})
    wanted = _with(schema, sort="id", row_group_rows=2_000, dictionary={"city": "off"}, derived={"tip": "fare"})
    assert [(reason.kind, reason.column) for reason in differences(now, wanted)] == [
        ("sort", None),
        ("row_group_rows", None),
        ("column_removed", "came_at"),
        ("bloom", "city"),
        ("dictionary", "city"),
        ("type", "fare"),
        ("default", "fare"),
        ("nullable", "fare"),
        ("column_added", "tip"),
        ("derived", "tip"),
    ]
    assert Reason(kind="default", column="fare", now=None, wanted=1.0) in differences(now, wanted)


_UNKNOWN_COLUMN: dict[str, _Said] = {
    "sort": {"sort": "city,fair"},
    "bloom": {"bloom": "fair"},
    "dictionary": {"dictionary": {"fair": "off"}},
    "codecs": {"codecs": {"fair": "gzip"}},
    "derived": {"derived": {"fair": "id"}},
    "partition_column": {"partition_column": "fair"},
    "time_column": {"time_column": "fair"},
}


@pytest.mark.parametrize("setting", _UNKNOWN_COLUMN)
def test_a_setting_cannot_name_an_unknown_column(setting: str) -> None:
    """Sort, bloom filter, partition, time and derived columns have to be there; the nearest name is said."""
    with pytest.raises(InvalidRequest) as caught:
        _with(**_UNKNOWN_COLUMN[setting])
    error = caught.value
    assert (error.code, error.found, error.hint) == ("unknown_column", "fair", "did you mean fare?")
    assert f"the setting {setting} " in error.message


_UNFIT: dict[str, tuple[_Said, _Said, str]] = {
    "a bucket without a time column": (a_schema(), {"bucket": "day"}, "bucket"),
    "a time column without the role": (a_schema(came_at={"role": "metric"}), {"time_column": "came_at"}, "time_column"),
    "a time column of another type": (a_schema(city={"role": "time"}), {"time_column": "city"}, "time_column"),
    "a bloom filter on two values": (a_schema({"name": "paid", "type": "boolean"}), {"bloom": "paid"}, "bloom"),
    "modulo of a text": (a_schema(), {**_MOD, "partition_column": "city"}, "partition_column"),
    "a hash of a double": (a_schema(), {**_XX, "partition_column": "fare"}, "partition_column"),
    "a level that the codec does not have": (a_schema(), {"codec": "gzip", "level": 10}, "level"),
    "a level of a codec without levels": (a_schema(), {"codec": "snappy", "level": 1}, "level"),
}


@pytest.mark.parametrize("what", _UNFIT)
def test_settings_that_do_not_fit_are_refused(what: str) -> None:
    """What does not fit the columns, or another setting, is refused by the setting's name with what would."""
    schema, settings, name = _UNFIT[what]
    with pytest.raises(InvalidRequest) as caught:
        _with(schema, **settings)
    error = caught.value
    assert (error.code, error.message) == ("bad_setting", f"the setting {name} does not fit")
    assert error.found
    assert error.expected


@pytest.mark.parametrize("kind", ["timestamp", "date", "bigint"])
def test_time_may_be_a_timestamp_a_date_or_milliseconds(kind: str) -> None:
    """A time column of any of the three types is taken."""
    config = _with(a_schema(left_at={"type": kind}), time_column="left_at", bucket="day")
    assert config.time_column == "left_at"


def test_a_file_s_schema_follows_the_columns() -> None:
    """Names in order, types and nullability are those of the columns."""
    schema = _with().arrow_schema
    assert tuple(schema.names) == _EVERY_COLUMN
    assert [field.name for field in schema if not field.nullable] == ["id"]
    assert [str(field.type) for field in schema] == ["timestamp[us]", "string", "double", "int64", "timestamp[us]"]
