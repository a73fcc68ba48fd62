"""The guide's keys: one typed object that a ``.properties`` file, ``-D key=value`` and Python all become.

Keys that the product knows but this release does not offer yet are refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anew.core.errors import InvalidRequest
from anew.core.settings import Kind, Setting, SettingValue, Takes, did_you_mean, not_supported_yet

SOURCE_KAFKA = "source.kafka"
INPUT_TOPIC = "kafka.input.topic"
INPUT_FABRIC = "kafka.input.fabric"
MAX_RECORDS = "kafka.input.max.records.per.mapper"

PROPERTIES: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(SOURCE_KAFKA, Takes.LIVE, Kind.FLAG, None, "take the store's own data as the input: a repush"),
        Setting(
            INPUT_TOPIC,
            Takes.LIVE,
            Kind.TEXT,
            None,
            "the version to read, as store-name_v7; default: the highest version that serves",
        ),
        Setting(INPUT_FABRIC, Takes.LIVE, Kind.TEXT, None, "the fabric to read from; default: one that serves it"),
        Setting(
            MAX_RECORDS,
            Takes.LIVE,
            Kind.COUNT,
            5_000_000,
            "how many records one task of the scan reads at most",
            1,
            2**31 - 1,
        ),
    )
}
"""Every key of this release with its meaning."""

NOT_YET_PROPERTIES = (
    "kafka.input.broker.url",
    "kafka.input.combiner.enabled",
    "kafka.input.compression.build.new.dict.enabled",
    "repush.ttl.enable",
    "repush.ttl.seconds",
    "repush.ttl.start.timestamp",
)
"""Keys of the guide that this release does not offer yet."""


@dataclass(frozen=True, slots=True)
class RepushProperties:
    """The guide's options of one rebuild.

    Attributes:
        source_kafka: True or False where it was said, None otherwise.
        input_topic: The version to read, ``<store>_v<N>``.
        input_fabric: The fabric to read from.
        max_records_per_mapper: How many records one task of the scan reads at most.
    """

    source_kafka: bool | None = None
    input_topic: str | None = None
    input_fabric: str | None = None
    max_records_per_mapper: int = 5_000_000


def parse_properties(given: Mapping[str, str | SettingValue]) -> RepushProperties:
    """The typed object of what was given.

    Raises:
        InvalidRequest: ``unknown_property`` (with the nearest known key), ``not_supported_yet``, ``bad_setting``.
    """
    values = {name: setting.default for name, setting in PROPERTIES.items()}
    for key, value in given.items():
        if key in NOT_YET_PROPERTIES:
            raise not_supported_yet(key, ", ".join(PROPERTIES))
        if key not in PROPERTIES:
            raise InvalidRequest(
                "unknown_property",
                f"there is no key {key}",
                found=key,
                expected=", ".join(PROPERTIES),
                hint=did_you_mean(key, [*PROPERTIES, *NOT_YET_PROPERTIES]),
            )
        values[key] = PROPERTIES[key].parse(value)
    source, topic, fabric, most = (values[name] for name in (SOURCE_KAFKA, INPUT_TOPIC, INPUT_FABRIC, MAX_RECORDS))
    return RepushProperties(
        source_kafka=None if source is None else bool(source),
        input_topic=None if topic is None else str(topic),
        input_fabric=None if fabric is None else str(fabric),
        max_records_per_mapper=int(str(most)),
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
