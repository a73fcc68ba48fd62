"""Where files lie in the deep store. Paths carry the store's uid (rule R16) and the rebuild's epoch (rule R22)."""

from __future__ import annotations


def store_path(store_uid: str) -> str:
    """All files of a store."""
    return f"stores/{store_uid}"


def version_path(store_uid: str, version: int, rebuild: str, epoch: int) -> str:
    """All files of one making of a version."""
    return f"{store_path(store_uid)}/v{version}/{rebuild}-e{epoch}"


def manifest_path(version_directory: str) -> str:
    """The manifest of a version."""
    return f"{version_directory}/manifest.json"


def dictionary_path(version_directory: str) -> str:
    """The compression dictionary of a version."""
    return f"{version_directory}/dictionary.zstd"


def attempt_path(version_directory: str, partition: int, sub_partition: int, attempt: str) -> str:
    """The base file of one sub-partition by one task attempt: retried and speculative attempts never meet."""
    return f"{version_directory}/base/p{partition:05d}-s{sub_partition:02d}-{attempt}.parquet"


def attempt_name(version_directory: str, attempt: str) -> str:
    """The name of a task attempt among those of all drivers: the last part of the directory names rebuild and epoch."""
    return f"{version_directory.rpartition('/')[2]}-{attempt}"


def repairs_path(store_uid: str) -> str:
    """What replicas write for repairs of a store's versions."""
    return f"{store_path(store_uid)}/repairs"


def repair_path(store_uid: str, attempt: str) -> str:
    """The same for one attempt; it goes with the attempt, or a day after a crash of it."""
    return f"{repairs_path(store_uid)}/{attempt}"


def replicas_path(version_directory: str) -> str:
    """What replicas write for a rebuild that reads them in the place of damaged files."""
    return f"{version_directory}/replicas"


def probe_path(version_directory: str) -> str:
    """What executors write to show that they can, before a build; it goes before the build begins."""
    return f"{version_directory}/probes"


RECORDS = "catalog/stores"
"""Records of stores; beside the stores' own files, so that a deleted store's record outlives them (rule R16)."""


def records_path(store_uid: str) -> str:
    """All records of a store."""
    return f"{RECORDS}/{store_uid}"


def record_path(store_uid: str, revision: int) -> str:
    """The record of a store at one revision; by name the newest comes last."""
    return f"{records_path(store_uid)}/{revision:020d}.json"


def table_path(table_uid: str) -> str:
    """All files of a table."""
    return f"tables/{table_uid}"


def builds_path(table_uid: str, rebuild: str, epoch: int) -> str:
    """The builds that one driver of one rebuild makes: what no segment names once it has ended is nobody's."""
    return f"{table_path(table_uid)}/{rebuild}-e{epoch}"


def build_path(builds: str, segment: str, attempt: str) -> str:
    """The file of one build by one task attempt: retried and speculative attempts never meet."""
    return f"{builds}/{segment}-{attempt}.parquet"


TABLE_RECORDS = "catalog/tables"
"""Records of tables and the lists of their segments, beside the tables' own files (rule R16)."""

CONFIG_RECORDS = "catalog/configs"
"""Every configuration of segments under its hash, whichever tables have it."""


def table_records_path(table_uid: str) -> str:
    """All records and lists of a table."""
    return f"{TABLE_RECORDS}/{table_uid}"


def table_record_path(table_uid: str, revision: int) -> str:
    """The record of a table at one revision; by name the newest comes last."""
    return f"{table_records_path(table_uid)}/table/{revision:020d}.json"


def segment_list_name(revision: int, digest: str) -> str:
    """The name of a list of a slot's segments: the slot's revision, and what the content is to be."""
    return f"{revision:020d}-{digest}"


def segment_list_path(table_uid: str, slot: int, name: str) -> str:
    """The list of a slot's segments of that name."""
    return f"{table_records_path(table_uid)}/slots/{slot:02d}/{name}.json.zst"


def config_record_path(config_hash: str) -> str:
    """The configuration of that hash."""
    return f"{CONFIG_RECORDS}/{config_hash}.json"
