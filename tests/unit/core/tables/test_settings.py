"""The settings of tables: every one reads texts and typed values, under any of its names."""

from __future__ import annotations

from typing import Any

import pytest

from anew.core.errors import InvalidRequest
from anew.core.tables.settings import (
    CODECS,
    TABLE_SETTINGS,
    Codec,
    Refresh,
    TableSettings,
    checked_level,
    default_level,
    parse_codec,
)

_CRON = "*/10 * * * *"
_SAID: dict[str, list[tuple[Any, Any]]] = {
    "sort": [("a, b", ("a", "b")), ('["a","b"]', ("a", "b")), (["a"], ("a",)), ("", ())],
    "partition_column": [("a", "a"), (" a ", "a"), ("", None)],
    "partition_function": [("modulo", "modulo"), ("xxhash64", "xxhash64")],
    "partition_count": [("8", 8), (8, 8)],
    "bloom": [
        ("a,b", {"a": 0.01, "b": 0.01}),
        (["a"], {"a": 0.01}),
        ('{"a": 0.1}', {"a": 0.1}),
        ({"a": "0.5"}, {"a": 0.5}),
    ],
    "dictionary": [('{"a": "off"}', {"a": False}), ({"a": True, "b": "on"}, {"a": True, "b": True}), ("", {})],
    "codec": [("snappy", "snappy"), ("none", "none")],
    "level": [("9", 9), (9, 9), ("", None)],
    "codecs": [('{"a": "gzip"}', {"a": "gzip:6"}), ({"a": "zstd:9", "b": "lz4"}, {"a": "zstd:9", "b": "lz4"})],
    "row_group_rows": [("1000", 1_000), (100_000_000, 100_000_000)],
    "page_index": [("false", False), ("TRUE", True), (False, False)],
    "time_column": [("left_at", "left_at"), ("", None)],
    "bucket": [("month", "month"), ("", None)],
    "segment_rows": [("1000", 1_000), (5_000, 5_000)],
    "derived": [('{"a": "b + 1"}', {"a": "b + 1"}), ({"a": "b"}, {"a": "b"})],
    "row_filter": [(" fare > 0 ", "fare > 0"), ("", None)],
    "replicas": [("3", 3), (1, 1)],
    "backup_retention_seconds": [("0", 0), (60, 60)],
    "quota_bytes": [("1000", 1_000), (0, 0)],
    "skip_segment_preprocess": [("true", True), (True, True)],
    "refresh": [
        (f'{{"schedule": "{_CRON}"}}', Refresh(schedule=_CRON)),
        (
            {"reloadOnly": True, "forceReload": "true", "maxSegments": "5"},
            Refresh(reloadOnly=True, forceReload=True, maxSegments=5),
        ),
        ({"schedule": ""}, Refresh()),
    ],
    "owner": [("somebody", "somebody"), ("", None)],
    "description": [("all trips", "all trips")],
    "tags": [("a,b", ("a", "b")), (["a"], ("a",))],
}
_REFUSED: list[tuple[str, Any]] = [
    ("sort", "a,a"),
    ("sort", 5),
    ("sort", [5]),
    ("sort", "[a"),
    ("partition_function", "murmur"),
    ("partition_function", ""),
    ("partition_count", "0"),
    ("partition_count", 100_001),
    ("bloom", {"a": 0}),
    ("bloom", {"a": 1}),
    ("bloom", {"a": "nan"}),
    ("bloom", {"a": "few"}),
    ("dictionary", {"a": "maybe"}),
    ("dictionary", {"a": []}),
    ("dictionary", "a"),
    ("codec", "zip"),
    ("codec", ["zstd"]),
    ("level", "high"),
    ("level", 3.7),
    ("level", True),
    ("codecs", {"a": "zstd:23"}),
    ("codecs", {"a": "snappy:1"}),
    ("codecs", {"a": "zip"}),
    ("row_group_rows", 999),
    ("page_index", "maybe"),
    ("page_index", 1),
    ("bucket", "week"),
    ("segment_rows", "999"),
    ("derived", {"a": " "}),
    ("derived", {"a": 5}),
    ("derived", "a = b"),
    ("replicas", 0),
    ("replicas", 1.5),
    ("replicas", "101"),
    ("backup_retention_seconds", -1),
    ("quota_bytes", "1 GB"),
    ("skip_segment_preprocess", "yes"),
    ("refresh", "daily"),
    ("tags", "a,a"),
]


def _refused(given: dict[str, Any], code: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        TABLE_SETTINGS.parse(given)
    assert caught.value.code == code
    return caught.value


@pytest.mark.parametrize("name", TABLE_SETTINGS)
def test_every_setting_reads_texts_and_typed_values(name: str) -> None:
    """A command line's text and a file's value mean the same, and what is meant is a value of the settings."""
    for said, meant in _SAID[name]:
        parsed = TABLE_SETTINGS.parse({name: said})
        assert parsed == {name: meant}
        assert getattr(TableSettings(**parsed), name) == meant


@pytest.mark.parametrize("name", TABLE_SETTINGS)
def test_what_is_taken_back_has_its_default_again(name: str) -> None:
    """Null means the default, whatever the setting."""
    assert TABLE_SETTINGS.parse({name: None}) == {name: getattr(TableSettings(), name)}


def test_every_setting_has_a_row_and_a_default() -> None:
    """The table of settings and the model of settings name the same, in the same order."""
    assert list(TABLE_SETTINGS) == list(TableSettings.model_fields)
    assert set(TABLE_SETTINGS.aliases.values()) <= set(TABLE_SETTINGS)
    assert not set(TABLE_SETTINGS.aliases) & set(TABLE_SETTINGS)


@pytest.mark.case("tables:A6")
@pytest.mark.parametrize("alias", TABLE_SETTINGS.aliases)
def test_an_alias_is_the_setting_itself(alias: str) -> None:
    """What is said by another name is kept under the setting's own."""
    name = TABLE_SETTINGS.aliases[alias]
    said, meant = _SAID[name][0]
    assert TABLE_SETTINGS.parse({alias: said}) == {name: meant}
    assert TABLE_SETTINGS.parse({alias: said, name: said}) == {name: meant}


def test_two_names_with_two_values_are_refused() -> None:
    """A setting that is said twice, differently, is refused with both values."""
    error = _refused({"sortedColumn": "a", "sort": "b"}, "bad_setting")
    assert (error.found, "sort is said twice" in error.message) == ([("a",), ("b",)], True)


@pytest.mark.parametrize(("name", "value"), _REFUSED)
def test_a_value_that_does_not_fit_is_refused(name: str, value: Any) -> None:
    """The refusal names the setting, what was found and what the setting means."""
    error = _refused({"owner": "somebody", name: value}, "bad_setting")
    assert (error.found, name in error.message) == (value, True)
    assert str(error.hint).startswith(f"{name}: ")


def test_an_unknown_setting_has_the_nearest_name() -> None:
    """Of settings and of the refresh task's own: what was meant is said, and where nothing is near nothing is."""
    assert _refused({"sorted_colum": "a"}, "unknown_setting").hint == "did you mean sorted_column?"
    assert _refused({"replica": 3}, "unknown_setting").hint == "did you mean replicas?"
    assert _refused({"zzz": 1}, "unknown_setting").hint is None
    assert _refused({"refresh": {"maxSegment": 3}}, "unknown_setting").hint == "did you mean maxSegments?"


@pytest.mark.parametrize(("name", "value"), [("maxSegments", -1), ("reloadOnly", "maybe"), ("forceReload", 1)])
def test_the_refresh_task_s_settings_are_refused_by_their_own_names(name: str, value: Any) -> None:
    """The refusal names the task's setting and its value, not the whole task."""
    error = _refused({"refresh": {"schedule": _CRON, name: value}}, "bad_setting")
    assert (error.found, name in error.message) == (value, True)


def test_a_schedule_is_checked_when_it_is_said() -> None:
    """A schedule that is none, or whose times never come, is refused at once."""
    for text in ("often", "0 0 31 2 *", "* * * *"):
        assert _refused({"refresh": {"schedule": text}}, "bad_schedule").found == text


def test_a_codec_has_the_levels_that_it_has() -> None:
    """With a level, without one, and with one that the codec does not have."""
    assert parse_codec("zstd:19") == Codec("zstd", 19)
    assert parse_codec("brotli") == Codec("brotli", default_level("brotli"))
    assert parse_codec("snappy") == Codec("snappy", None)
    for codec, level in (("zstd", 0), ("zstd", 23), ("gzip", 10), ("brotli", 12), ("lz4", 1)):
        with pytest.raises(ValueError, match=str(level)):
            checked_level(codec, level)
    assert [default_level(codec) is not None for codec in CODECS] == [False, False, True, False, True, True]


def test_a_column_s_own_codec_wins() -> None:
    """A column is compressed as it says itself, the others as the table says, with the codec's level or the table's."""
    settings = TableSettings(codec="gzip", level=9, codecs={"a": "zstd:3"})
    assert (settings.codec_of("a"), settings.codec_of("b")) == (Codec("zstd", 3), Codec("gzip", 9))
    assert TableSettings(codec="lz4").codec_of("a") == Codec("lz4", None)
    assert TableSettings().codec_of("a") == Codec("zstd", 3)
