"""The guide's keys: one typed object that a ``.properties`` file, ``-D key=value`` and Python all become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anew.core.addresses import check_brokers
from anew.core.errors import InvalidRequest
from anew.core.settings import Kind, Setting, Settings, SettingValue

SOURCE_KAFKA = "source.kafka"
INPUT_TOPIC = "kafka.input.topic"
INPUT_FABRIC = "kafka.input.fabric"
INPUT_BROKER = "kafka.input.broker.url"
MAX_RECORDS = "kafka.input.max.records.per.mapper"
COMBINER = "kafka.input.combiner.enabled"
NEW_DICTIONARY = "kafka.input.compression.build.new.dict.enabled"
TTL_ENABLE = "repush.ttl.enable"
TTL_SECONDS = "repush.ttl.seconds"
TTL_START = "repush.ttl.start.timestamp"

PROPERTIES = Settings(
    Setting(SOURCE_KAFKA, Kind.FLAG, None, "take the store's own data as the input: a repush"),
    Setting(
        INPUT_TOPIC, Kind.TEXT, None, "the version to read, as store-name_v7; default: the highest version that serves"
    ),
    Setting(INPUT_FABRIC, Kind.TEXT, None, "the fabric to read from; default: one that serves it"),
    Setting(
        INPUT_BROKER,
        Kind.TEXT,
        None,
        "HOST:PORT,… of brokers to read the log from, for nothing else: a listener of the fabric's own cluster",
        check=check_brokers,
    ),
    Setting(MAX_RECORDS, Kind.COUNT, 5_000_000, "how many records one task of the scan reads at most", 1, 2**31 - 1),
    Setting(
        COMBINER,
        Kind.FLAG,
        False,
        "whether the log scan keeps only each key's winners of what a task reads, so that less is shuffled",
    ),
    Setting(
        NEW_DICTIONARY,
        Kind.FLAG,
        True,
        "whether zstd_dict trains a new dictionary; false: the source version's is carried over",
    ),
    Setting(
        TTL_ENABLE,
        Kind.FLAG,
        False,
        "whether records written before the start of the live range are dropped, now and in every later replay",
    ),
    Setting(
        TTL_SECONDS,
        Kind.SECONDS,
        None,
        "how long a record lives, counted back from planning; default: the store's rewind_seconds",
        1,
        100 * 365 * 86_400,
    ),
    Setting(
        TTL_START,
        Kind.COUNT,
        None,
        "the start of the live range in ms since the epoch, instead of a number of seconds",
        1,
        2**53,
    ),
    unknown=("unknown_property", "there is no key"),
)
"""Every key of this release with its meaning."""

PROPERTY_ERRORS: dict[str, str] = {
    SOURCE_KAFKA: "`contradiction`: with input files, or false on a repush",
    INPUT_TOPIC: "`bad_version`, `not_sealed`, `not_serving` (unless `--allow-not-serving`)",
    INPUT_FABRIC: "`unknown_fabric`, `fabric_unreachable`",
    INPUT_BROKER: "`bad_brokers`, `broker_of_another_cluster`, `log_unreachable`",
    MAX_RECORDS: "`bad_setting`",
    COMBINER: "`bad_setting`",
    NEW_DICTIONARY: "`bad_setting`; `missing_dictionary`: the one to carry over is not there",
    TTL_ENABLE: "`ttl_impossible`: a full push, or records without write times",
    TTL_SECONDS: "`ttl_not_enabled`, `contradiction` with a start, `bad_setting`",
    TTL_START: "`ttl_not_enabled`, `contradiction` with seconds, `bad_setting`: it lies in the future",
}
"""Key → how it is refused, as the docs say it."""


@dataclass(frozen=True, slots=True)
class RepushProperties:
    """The guide's options of one rebuild.

    Attributes:
        source_kafka: True or False where it was said, None otherwise.
        input_topic: The version to read, ``<store>_v<N>``.
        input_fabric: The fabric to read from.
        input_broker: Brokers of that fabric's cluster to read the log from.
        max_records_per_mapper: How many records one task of the scan reads at most.
        combiner: Whether the log scan pre-aggregates.
        new_dictionary: Whether zstd_dict trains a new dictionary.
        ttl: Whether records expire.
        ttl_seconds: How long a record lives, where it was said.
        ttl_start_ms: The start of the live range, where it was said.
    """

    source_kafka: bool | None = None
    input_topic: str | None = None
    input_fabric: str | None = None
    input_broker: str | None = None
    max_records_per_mapper: int = 5_000_000
    combiner: bool = False
    new_dictionary: bool = True
    ttl: bool = False
    ttl_seconds: int | None = None
    ttl_start_ms: int | None = None


def parse_properties(given: Mapping[str, str | SettingValue]) -> RepushProperties:
    """The typed object of what was given.

    Raises:
        InvalidRequest: ``unknown_property`` (with the nearest known key), ``bad_setting``, ``bad_brokers``,
            ``ttl_not_enabled`` (case F5), ``contradiction`` (case F3).
    """
    parsed = PROPERTIES.parse(given)
    for key, value in given.items():
        # As where a job's variable is not set: the word that is missing may be the version to read.
        if isinstance(value, str) and not value.strip():
            raise InvalidRequest(
                "bad_setting", f"{key} has no value", found="an empty text", expected="a value", hint="or leave it out"
            )
    values = {**PROPERTIES.defaults(), **parsed}
    _check_ttl(values)
    # The fields are in the order of the table.
    return RepushProperties(*values.values())


def _check_ttl(values: Mapping[str, SettingValue]) -> None:
    """Silence about a time to live that is not switched on would keep data that somebody promised to delete."""
    given = [key for key in (TTL_SECONDS, TTL_START) if values[key] is not None]
    if given and not values[TTL_ENABLE]:
        raise InvalidRequest(
            "ttl_not_enabled",
            f"{given[0]} is given, but nothing expires",
            found=f"{TTL_ENABLE} = false",
            expected=f"{TTL_ENABLE} = true",
            hint=f"add -D {TTL_ENABLE}=true, or leave {given[0]} out",
        )
    if len(given) > 1:
        raise InvalidRequest(
            "contradiction", "the start of the live range is said twice", found=" and ".join(given), expected="one"
        )


def read_properties(lines: Iterable[str]) -> dict[str, str]:
    """The keys and values of a ``.properties`` text: ``key = value`` or ``key: value``, ``#`` and ``!`` comments.

    Raises:
        InvalidRequest: ``bad_properties_line``: the line has no separator, or the key was given before.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        positions = [at for at in (text.find("="), text.find(":")) if at > 0]
        if not positions:
            raise InvalidRequest(
                "bad_properties_line", f"line {number} is not key = value", found=text, expected="key = value"
            )
        key, value = text[: min(positions)].strip(), text[min(positions) + 1 :].strip()
        if key in found:
            raise InvalidRequest(
                "bad_properties_line", f"line {number} gives {key} again", found=value, expected=found[key]
            )
        found[key] = value
    return found
