"""The settings table, the guide's keys, and the hash by which configurations are compared."""

from __future__ import annotations

from typing import Any

import pytest

from anew.core.confighash import canonical_json, config_hash
from anew.core.errors import InvalidRequest
from anew.core.settings import Kind, Setting, Settings
from anew.core.stores.names import check_store_name, parse_version
from anew.core.stores.properties import (
    PROPERTIES,
    RepushProperties,
    parse_properties,
    read_properties,
)
from anew.core.stores.settings import FROZEN_SETTINGS, STORE_SETTINGS, defaults
from anew.core.stores.store import Frozen, StoreConfig, pending_changes
from anew.core.suggest import did_you_mean
from anew.testing.builders import a_config

_GOLDEN_HASH = "c1-b0bd1a7c032281bc59c3eac250cfe0eb"


def _refused(given: dict[str, Any], code: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        STORE_SETTINGS.parse(given)
    assert caught.value.code == code
    return caught.value


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    """A setting that does not exist is refused; near names get a hint, others none."""
    assert _refused({"partition": "8"}, "unknown_setting").hint == "did you mean partitions?"
    assert _refused({"zzz": 1}, "unknown_setting").hint is None
    assert did_you_mean("flihgts", ["flights"]) == "did you mean flights?"


@pytest.mark.parametrize("name", STORE_SETTINGS.not_yet)
def test_a_later_release_s_setting_is_not_ignored(name: str) -> None:
    """What the product knows but this release does not offer is said to be so."""
    assert name in _refused({name: "1"}, "not_supported_yet").message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitions", "0"),
        ("partitions", "100001"),
        ("partitions", "many"),
        ("partitions", "1M"),
        ("partitions", "1.5"),
        ("partitions", True),
        ("partitions", ""),
        ("compression", ""),
        ("partitions", "٣"),
        ("hybrid", "yes"),
        ("hybrid", 1),
        ("compression", "lz4"),
        ("amplification_factor", 0),
        ("amplification_factor", 65),
        ("lag_limit_seconds", "0"),
        ("max_value_bytes", "-1"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(name: str, value: Any) -> None:
    """The refusal names the setting, what was found and what is accepted."""
    error = _refused({"owner": "me", name: value}, "bad_setting")
    assert (name in error.message, error.found, error.expected) == (True, value, STORE_SETTINGS[name].expected)


def test_texts_become_typed_values() -> None:
    """Numbers, flags and choices are read from text as from JSON; bounds themselves are accepted."""
    texts = {"partitions": " 8 ", "hybrid": "True", "compression": "zstd", "owner": None, "replicas": 100}
    assert STORE_SETTINGS.parse(texts) == {
        "partitions": 8,
        "hybrid": True,
        "compression": "zstd",
        "owner": None,
        "replicas": 100,
    }


@pytest.mark.parametrize("name", STORE_SETTINGS)
def test_null_gives_a_setting_its_default_again(name: str) -> None:
    """Null means the default, whatever the setting; so does an empty text where the default is that there is none."""
    assert STORE_SETTINGS.parse({name: None}) == {name: STORE_SETTINGS[name].default}
    if STORE_SETTINGS[name].default is None:
        assert STORE_SETTINGS.parse({name: " "}) == {name: None}


@pytest.mark.parametrize("digits", ["9" * 31, "9" * 5_000])
def test_a_number_that_nobody_can_mean_is_refused(digits: str) -> None:
    """Python refuses to read thousands of digits with an error of its own; here it is a bad value like any other."""
    with pytest.raises(InvalidRequest) as caught:
        STORE_SETTINGS.parse({"partitions": digits})
    assert caught.value.code == "bad_setting"


def test_a_text_that_must_be_there_is_not_empty() -> None:
    """An empty text means none only where none is the default; spaces around a value do not count."""
    table = Settings(
        Setting("bind", Kind.TEXT, "127.0.0.1", "where"),
        Setting("owner", Kind.TEXT, None, "who"),
        Setting("codec", Kind.CHOICE, "zstd", "how", choices=("zstd", "gzip")),
    )
    assert table.parse({"owner": " ", "codec": " gzip "}) == {"owner": None, "codec": "gzip"}
    with pytest.raises(InvalidRequest):
        table.parse({"bind": " "})


@pytest.mark.parametrize("key", ["kafka.input.topic", "kafka.input.fabric"])
def test_a_key_without_a_value_is_refused(key: str) -> None:
    """A variable that is not set would read another version than the one that was meant."""
    with pytest.raises(InvalidRequest) as caught:
        parse_properties({key: ""})
    assert (caught.value.code, key in caught.value.message) == ("bad_setting", True)


def test_the_table_is_whole() -> None:
    """Every setting is a field of the store's configuration, its default is accepted, and no row is left out."""
    assert set(StoreConfig.model_fields) == {*STORE_SETTINGS, "partitioner_source"}
    assert set(Frozen.model_fields) == {*FROZEN_SETTINGS, "partitioner_source"}
    for name, setting in STORE_SETTINGS.items():
        assert setting.parse(setting.default) == setting.default, name
        assert setting.meaning
        assert setting.choices if setting.kind is Kind.CHOICE else not setting.choices
    StoreConfig.model_validate(defaults())


@pytest.mark.case("stores:H4")
def test_pending_changes_are_what_the_next_version_changes() -> None:
    """Frozen settings that differ are pending with now and wanted; live ones and a first version are not."""
    running = a_config().frozen
    wanted = a_config(partitions=8, compression="zstd", owner="me", max_value_bytes=5)
    assert pending_changes(wanted, running) == [
        {"setting": "partitions", "now": 4, "wanted": 8},
        {"setting": "compression", "now": "none", "wanted": "zstd"},
    ]
    assert pending_changes(wanted, wanted.frozen) == []
    assert pending_changes(wanted, None) == []


def test_the_config_hash_is_stable() -> None:
    """The hash of the default configuration is the one that earlier catalogs hold; live settings do not enter it."""
    assert a_config().frozen.hash == _GOLDEN_HASH
    assert a_config(owner="me", writes=False).frozen.hash == _GOLDEN_HASH
    assert a_config(partitions=5).frozen.hash != _GOLDEN_HASH


def test_the_canonical_form_has_one_text() -> None:
    """Key order does not matter, types do, and what JSON cannot say is refused."""
    assert config_hash({"a": 1, "b": 2}) == config_hash({"b": 2, "a": 1})
    assert config_hash({"a": 1}) != config_hash({"a": "1"})
    assert canonical_json({"b": [1, None], "a": "é"}) == '{"a":"é","b":[1,null]}'
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))


# -- the guide's keys ------------------------------------------------------------------------------------------------


@pytest.mark.case("stores:A12")
def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    """A key with a typing error is refused with "did you mean"."""
    with pytest.raises(InvalidRequest) as caught:
        parse_properties({"kafka.input.fabrik": "dc-0"})
    assert (caught.value.code, caught.value.hint) == ("unknown_property", "did you mean kafka.input.fabric?")


@pytest.mark.case("stores:A13")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kafka.input.max.records.per.mapper", "1M"),
        ("kafka.input.max.records.per.mapper", "0"),
        ("kafka.input.max.records.per.mapper", str(2**31)),
        ("source.kafka", "maybe"),
    ],
)
@pytest.mark.case("stores:A13")
def test_a_key_s_value_that_does_not_parse_is_refused(key: str, value: str) -> None:
    """The refusal names key, value and what is accepted."""
    with pytest.raises(InvalidRequest) as caught:
        parse_properties({key: value})
    assert (caught.value.code, key in caught.value.message) == ("bad_setting", True)
    assert (caught.value.found, caught.value.expected) == (value, PROPERTIES[key].expected)


@pytest.mark.parametrize("brokers", ["somewhere", "kafka://host:9092", "host:0", "host:9092,", ":9092"])
def test_what_names_no_brokers_is_refused(brokers: str) -> None:
    """Addresses are HOST:PORT, separated by commas."""
    with pytest.raises(InvalidRequest) as caught:
        parse_properties({"kafka.input.broker.url": brokers})
    assert (caught.value.code, caught.value.found) == ("bad_brokers", brokers)


def test_keys_become_one_typed_object() -> None:
    """All keys of this release are read; without any, the defaults hold."""
    given = {
        "source.kafka": "true",
        "kafka.input.topic": "s_v7",
        "kafka.input.fabric": "dc-0",
        "kafka.input.broker.url": "one:9092,two:9093",
        "kafka.input.max.records.per.mapper": "100",
    }
    assert parse_properties(given) == RepushProperties(True, "s_v7", "dc-0", "one:9092,two:9093", 100)
    assert parse_properties({}) == RepushProperties()


def test_a_properties_file_is_read() -> None:
    """Both separators, comments, blank lines, and values that hold separators themselves."""
    lines = ["# comment", "! another", "", "a = 1", "b:2", "  c=d=e:f  ", "g ="]
    assert read_properties(lines) == {"a": "1", "b": "2", "c": "d=e:f", "g": ""}


@pytest.mark.parametrize(("lines", "number"), [(["a=1", "nonsense"], 2), (["= 1"], 1), (["a=1", "", "a:2"], 3)])
def test_a_bad_line_is_named(lines: list[str], number: int) -> None:
    """A line without a separator or key, or one that gives a key again, is refused by its number."""
    with pytest.raises(InvalidRequest) as caught:
        read_properties(lines)
    assert (caught.value.code, f"line {number} " in caught.value.message) == ("bad_properties_line", True)


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "Flights", "7up", "a-b", "s_v7", "s_rt", "a" * 65, "é", "a b"])
def test_a_name_that_a_store_cannot_have_is_refused(name: str) -> None:
    """Names that are no plain words, or look like a store's topics, are refused with the rule."""
    with pytest.raises(InvalidRequest) as caught:
        check_store_name(name)
    assert (caught.value.code, caught.value.found) == ("bad_store_name", name)


def test_plain_names_and_versions_are_accepted() -> None:
    """Ordinary names pass; a version is named by its number or its topic, and nothing else."""
    for name in ("flights", "a", "s_v", "s_v0x", "a1_b2", "a" * 64):
        check_store_name(name)
    assert (parse_version("7", "s"), parse_version("s_v12", "s")) == (7, 12)
    for text in ("0", "-1", "s_v0", "t_v1", "v1", "", "s_v01"):
        with pytest.raises(InvalidRequest):
            parse_version(text, "s")
