"""Records of tables in the deep stores, so that a lost catalog can be made again with them. Each round looks.

Of a table that has changed: (1) configurations that are not there yet, (2) a list of the segments of each slot that has
changed, (3) the record, which names a list for each slot, (4) records and lists that are too old go. All that a record
names is of one moment. A crash before (3) leaves the record before, with all of its lists; one after it leaves files
that the next change takes away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from anew.catalog.change import TableSnapshot
from anew.controller.engine.apart import Apart
from anew.controller.engine.context import Context
from anew.controller.engine.records import rebuilds_of
from anew.controller.restore.tablefiles import MARGIN_MS, RecordFiles, revision_of
from anew.core.errors import AnewError, Failed, Refused
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.table import Table
from anew.deepstore.interface import DeepStore
from anew.segments.layout import (
    CONFIG_RECORDS,
    builds_path,
    config_record_path,
    segment_list_name,
    segment_list_path,
    table_record_path,
    table_records_path,
)
from anew.segments.record import TableRecord, worth_a_table_record

_LOG = structlog.get_logger("anew.controller")
_KEPT = 3
"""How many records of a table stay: the newest, and some to fall back to."""

_LONG_MS = 200
_REST = 9
"""How many times as long as it took the next one waits, where one took long: a round is there for other things too."""


@dataclass(slots=True)
class TableMemory:
    """Writes what has changed of tables; keeps nothing that cannot be made again.

    Attributes:
        context: The controller's collaborators.
    """

    context: Context
    _written: dict[str, TableRecord] = field(default_factory=dict)
    _configs: dict[str, set[str]] = field(default_factory=dict)
    _rests: dict[str, tuple[int, int]] = field(default_factory=dict)

    def remember(self, away: set[str], apart: Apart) -> bool:
        """Write a record of each table that has changed.

        Args:
            away: Fabrics whose deep stores did not answer in this round: they are left alone, and further ones added.
            apart: Takes what nobody foresaw of one table.

        Returns:
            Whether everything of the other fabrics is written; otherwise the next round has something to do, whatever
            changes.
        """
        catalog, complete = self.context.catalog, True
        for table in (*catalog.tables(), *catalog.deleted_tables()):
            if table.fabric in away:
                continue
            is_written = False
            with apart.step(f"the record of {table.name}"):
                try:
                    is_written = self._remember(table)
                except AnewError:
                    away.add(table.fabric)
                    raise
            complete &= is_written
        return complete

    def _remember(self, table: Table) -> bool:
        before = self._written.get(table.uid)
        if before is not None and before.table.revision == table.revision:
            return True
        began_ms = self.context.clock()
        rests_from_ms, rests_until_ms = self._rests.get(table.uid, (0, 0))
        if rests_from_ms <= began_ms < rests_until_ms:
            return False
        deep_store = self.context.fabrics[table.fabric].deep_store
        if before is None:
            before = _newest(deep_store, table)
        # Before the table is read: what ends meanwhile counts as running.
        running = self._running(table)
        found = self._found(table, before)
        record = _record_of(found, {} if before is None else before.slots, running)
        if before is None or not _same(before, record):
            self._write_configs(deep_store, table.fabric)
            _write_lists(deep_store, found, record)
            if self.context.clock() - began_ms > MARGIN_MS // 2:
                record = record.model_copy(update={"running": None})
            _write_record(deep_store, record)
            _tidy(deep_store, record)
            self._rest(table, began_ms)
        self._written[table.uid] = record
        return True

    def _found(self, table: Table, before: TableRecord | None) -> TableSnapshot:
        """The table as it is; of one that was deleted nothing but its end matters."""
        known = {} if before is None else {slot: revision_of(name) for slot, name in before.slots.items()}
        deleted = table.deleted_at_ms is not None
        found = None if deleted else self.context.catalog.table_snapshot(table.uid, known)
        return TableSnapshot(table, {}, {}) if found is None else found

    def _running(self, table: Table) -> tuple[str, ...]:
        found = rebuilds_of(self.context, table.uid, TableRebuild, running_only=True)
        return tuple(sorted(builds_path(table.uid, rebuild.id, rebuild.epoch) for rebuild in found))

    def _rest(self, table: Table, began_ms: int) -> None:
        ended_ms = self.context.clock()
        took_ms = ended_ms - began_ms
        if took_ms > _LONG_MS:
            self._rests[table.uid] = (ended_ms, ended_ms + _REST * took_ms)

    def _write_configs(self, deep_store: DeepStore, fabric: str) -> None:
        """Of all tables: which of them has, or had, a configuration nobody needs to know."""
        if fabric not in self._configs:
            self._configs[fabric] = {stored.path for stored in deep_store.list(CONFIG_RECORDS)}
        written = self._configs[fabric]
        for config_hash in sorted(self.context.catalog.table_config_hashes()):
            path = config_record_path(config_hash)
            config = None if path in written else self.context.catalog.table_config(config_hash)
            if config is not None:
                _put(deep_store, path, config.model_dump_json(indent=1).encode())
                written.add(path)


def _record_of(found: TableSnapshot, before: Mapping[int, str], running: tuple[str, ...]) -> TableRecord:
    """What is to be written down."""
    if found.table.deleted_at_ms is not None:
        return TableRecord(table=found.table, slots={})
    changed = {slot: segment_list_name(found.slots[slot], listed.digest) for slot, listed in found.changed.items()}
    slots = {slot: changed.get(slot) or before[slot] for slot in found.slots}
    return TableRecord(table=found.table, slots=slots, running=running)


def _same(one: TableRecord, other: TableRecord) -> bool:
    return (worth_a_table_record(one.table), one.slots) == (worth_a_table_record(other.table), other.slots)


def _newest(deep_store: DeepStore, table: Table) -> TableRecord | None:
    """The newest record, whoever wrote it; None where it, or a list that it names, has to be written again."""
    files = RecordFiles.of(table.uid, (stored.path for stored in deep_store.list(table_records_path(table.uid))))
    try:
        record = files.record(deep_store, files.newest_first[0]) if files.newest_first else None
    except Failed:
        return None
    # One of a time that an older copy of the catalog knows nothing of tells nothing of what is now.
    trusted = record is not None and files.has_lists_of(record) and record.table.revision <= table.revision
    return record if trusted else None


def _write_lists(deep_store: DeepStore, found: TableSnapshot, record: TableRecord) -> None:
    for slot, name in record.slots.items():
        if slot in found.changed:
            _put(deep_store, segment_list_path(record.table.uid, slot, name), found.changed[slot].content)


def _write_record(deep_store: DeepStore, record: TableRecord) -> None:
    _put(deep_store, table_record_path(record.table.uid, record.table.revision), record.to_bytes())


def _put(deep_store: DeepStore, path: str, content: bytes) -> None:
    try:
        deep_store.put(path, content)
    except Refused as error:
        # Another release wrote the same in other words; the next change gets a name of its own.
        if error.code != "path_taken":
            raise
        _LOG.warning("record_taken", **error.to_json())


def _tidy(deep_store: DeepStore, newest: TableRecord) -> None:
    """Take away old records, and the lists that are older than those of every record that is kept.

    Not what no record names: another controller may have written it just now, and its record comes next.
    """
    uid = newest.table.uid
    files = RecordFiles.of(uid, (stored.path for stored in deep_store.list(table_records_path(uid))))
    kept, old = files.newest_first[:_KEPT], files.newest_first[_KEPT:]
    for path in (*old, *_too_old(files, _kept_records(deep_store, files, kept))):
        deep_store.delete(path)


def _kept_records(deep_store: DeepStore, files: RecordFiles, paths: Iterable[str]) -> list[TableRecord]:
    found = []
    for path in paths:
        try:
            found.append(files.record(deep_store, path))
        except Failed as error:
            _LOG.warning("record_unreadable", **error.to_json())
    return found


def _too_old(files: RecordFiles, kept: list[TableRecord]) -> list[str]:
    live = [record for record in kept if record.table.deleted_at_ms is None]
    if len(live) < len(kept):
        # A table that was deleted does not come back.
        return [path for paths in files.lists.values() for path in paths.values()]
    least = {
        slot: min(revision_of(record.slots[slot]) for record in live if slot in record.slots)
        for slot in {slot for record in live for slot in record.slots}
    }
    return [
        path
        for slot, paths in files.lists.items()
        for name, path in paths.items()
        if slot in least and revision_of(name) < least[slot]
    ]
