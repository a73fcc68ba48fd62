"""A store's configuration out of what was and what was asked for, checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anew.codec.avro import AvroSchema
from anew.codec.sampling import sample_bodies
from anew.core.errors import InvalidRequest
from anew.core.partitioners import is_custom
from anew.core.partitioning import check_partitioner, partitioner_of
from anew.core.settings import SettingValue
from anew.core.stores.store import StoreConfig

MOST_SUB_PARTITIONS = 100_000
_SAMPLE_KEYS = 1_000


def configured(
    present: Mapping[str, Any], changes: Mapping[str, SettingValue], partitioner_source: str | None, keys: AvroSchema
) -> StoreConfig:
    """The configuration after some changes.

    Args:
        present: What holds now, the defaults for a new store.
        changes: Parsed settings.
        partitioner_source: The module's source that came with a partitioner of one's own.
        keys: The key schema, for keys to try such a partitioner on.

    Raises:
        InvalidRequest: ``bad_partitioner``, ``too_many_sub_partitions``, ``contradiction``.
    """
    values = {**present, **changes}
    if not is_custom(str(values["partitioner"])):
        if partitioner_source:
            raise InvalidRequest(
                "contradiction",
                "a partitioner's source came along, and no partitioner of one's own is named",
                found=f"partitioner = {values['partitioner']}",
                expected="partitioner = module:Class",
            )
        values["partitioner_source"] = ""
    elif partitioner_source is not None:
        values["partitioner_source"] = partitioner_source
    elif present.get("partitioner") != values["partitioner"]:
        values["partitioner_source"] = ""
    config = StoreConfig.model_validate(values)
    _check(config)
    asked = partitioner_source is not None or changes.keys() & {"partitioner", "partitioner_params", "partitions"}
    if is_custom(config.partitioner) and asked:
        check_partitioner(partitioner_of(config), sample_bodies(keys, _SAMPLE_KEYS))
    return config


def _check(config: StoreConfig) -> None:
    if config.sub_partitions > MOST_SUB_PARTITIONS:
        raise InvalidRequest(
            "too_many_sub_partitions",
            "partitions times amplification_factor is too much",
            found=config.sub_partitions,
            expected=f"at most {MOST_SUB_PARTITIONS}",
        )
    if config.repush_when is not None and config.repush_schedule is None:
        raise InvalidRequest(
            "contradiction",
            "repush_when says on what condition a scheduled repush starts, and nothing is scheduled",
            found=f"repush_when = {config.repush_when}",
            expected="repush_schedule as well",
            hint="for instance --set 'repush_schedule=0 3 * * *'",
        )
