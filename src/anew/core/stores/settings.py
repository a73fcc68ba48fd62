"""The settings of stores.

*Frozen* settings belong to a version: a change is pending until the next push or repush. *Fixed* ones are chosen when
the store is made. *Live* ones act at once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from anew.core.condition import parse_condition
from anew.core.partitioners import check_partitioner_name, check_partitioner_params
from anew.core.schedule import parse_schedule
from anew.core.settings import Kind, Setting, Settings, Takes

_WEEK_SECONDS = 7 * 86_400

_frozen = partial(Setting, takes=Takes.FROZEN)
_fixed = partial(Setting, takes=Takes.FIXED)

STORE_SETTINGS = Settings(
    _frozen("partitions", Kind.COUNT, 4, "into how many partitions a version is split", 1, 100_000),
    _frozen(
        "partitioner",
        Kind.TEXT,
        "xxhash64",
        "which partition a key belongs to: xxhash64, or module:Class of your own",
        check=check_partitioner_name,
    ),
    _frozen(
        "partitioner_params",
        Kind.TEXT,
        "{}",
        "keyword arguments of a partitioner of your own, as a JSON object",
        check=check_partitioner_params,
    ),
    _frozen(
        "amplification_factor",
        Kind.COUNT,
        1,
        "how many sub-partitions a partition is kept as, each loaded and ingested by itself",
        1,
        64,
    ),
    _frozen(
        "compression", Kind.CHOICE, "none", "how values are compressed", choices=("none", "gzip", "zstd", "zstd_dict")
    ),
    _frozen("transport", Kind.CHOICE, "files", "how the base reaches the nodes", choices=("files", "log")),
    _frozen("replicas", Kind.COUNT, 2, "how many nodes hold each partition", 1, 100),
    _frozen("hybrid", Kind.FLAG, False, "whether the store takes nearline writes on top of its base"),
    _frozen(
        "rewind_seconds",
        Kind.SECONDS,
        86_400,
        "how far before a full push's start nearline writes are applied again",
        0,
        365 * 86_400,
    ),
    _frozen(
        "rewind_from", Kind.CHOICE, "sop", "from which moment of a full push the rewind counts", choices=("sop", "eop")
    ),
    _frozen(
        "lag_limit_records", Kind.COUNT, 1_000, "how many records a replica may be behind to count as ready", 0, 10**12
    ),
    _frozen(
        "lag_limit_seconds",
        Kind.SECONDS,
        60,
        "how many seconds a replica may be behind to count as ready; at the end of a log it is never behind",
        1,
        86_400,
    ),
    _fixed(
        "rt_partitions",
        Kind.COUNT,
        24,
        "into how many partitions the real-time topic is split (24 has many divisors)",
        1,
        10_000,
    ),
    _fixed(
        "rt_partitioner",
        Kind.CHOICE,
        "xxhash64",
        "how producers place keys in the real-time topic; any: their own way, so that all partitions are read",
        choices=("xxhash64", "any"),
    ),
    _fixed(
        "skew_limit_seconds", Kind.SECONDS, 60, "how far ahead of the log's time a given write time may be", 0, 86_400
    ),
    Setting(
        "backup_retention_seconds",
        Kind.SECONDS,
        _WEEK_SECONDS,
        "how long a version that was current is kept as a rollback target",
        0,
        365 * 86_400,
    ),
    Setting(
        "tombstone_grace_seconds",
        Kind.SECONDS,
        10 * 86_400,
        "how long the tombstone of a delete is kept at least, so that late older writes still lose",
        0,
        365 * 86_400,
    ),
    Setting(
        "quota_bytes",
        Kind.BYTES,
        0,
        "how large the base of a full push may be; 0: no limit; a repush is not judged, its data is there already",
        0,
        2**60,
    ),
    Setting(
        "max_value_bytes", Kind.BYTES, 1_048_576, "the largest Avro body of a nearline write's value", 1, 64 * 1_048_576
    ),
    Setting("reads", Kind.FLAG, True, "whether reads are answered"),
    Setting("writes", Kind.FLAG, True, "whether nearline writes and pushes are accepted"),
    Setting(
        "repush_schedule",
        Kind.TEXT,
        None,
        "when the controller repushes by itself: five cron fields in UTC, such as 0 3 * * *",
        check=parse_schedule,
    ),
    Setting(
        "repush_when",
        Kind.TEXT,
        None,
        "on what condition a scheduled repush starts, such as: stale or unsorted_share > 0.3 or age > 7d",
        check=parse_condition,
    ),
    Setting("owner", Kind.TEXT, None, "who is asked about the store"),
    Setting("description", Kind.TEXT, None, "what the store holds"),
    not_yet=("replication", "active_fabric"),
)
"""Every store setting of this release, in the order in which they are shown."""

FROZEN_SETTINGS = tuple(s.name for s in STORE_SETTINGS.values() if s.takes is Takes.FROZEN)
"""The names of the settings that belong to a version."""


def defaults() -> dict[str, Any]:
    """Every store setting with its default."""
    return STORE_SETTINGS.defaults()
