"""Tables of a lost catalog, made again from their records in the deep stores.

The newest record that is whole says how things stood, and nothing is guessed: a build that may have been committed
after it keeps its file. A rebuild that was running is not there any more: its driver finds nothing to commit to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from posixpath import dirname

from anew.api.upkeep import RestoredTable
from anew.catalog.change import Put, PutConfig, PutReclaim, PutRestoredTable, Reclaim
from anew.controller.engine.context import Context, Fabric
from anew.controller.restore.stores import outlived
from anew.controller.restore.tablefiles import MARGIN_MS, RecordFiles
from anew.controller.tables.changing import file_to_reclaim, files_to_reclaim
from anew.core.errors import Failed
from anew.core.tables.config import SegmentConfig
from anew.core.tables.table import Table
from anew.deepstore.interface import DeepStore, StoredFile
from anew.segments.layout import CONFIG_RECORDS, TABLE_RECORDS, table_path
from anew.segments.record import SegmentList, TableRecord, parse_config

_NAMED = 3
"""How many missing files a note names."""


@dataclass(slots=True)
class RebuiltTable:
    """A table as it is to be in the catalog again.

    Attributes:
        lists: Slot → its segments.
        greatest: The greatest revision that was used for it.
        segments, rows, bytes: How much its segments hold together.
        ended: Files of rebuilds that had ended, and that it does not name.
        notes: What a person should know, and may have to decide.
        displaced: It counts as deleted only because a younger table has its name.
    """

    table: Table
    lists: dict[int, SegmentList]
    greatest: int
    segments: int = 0
    rows: int = 0
    bytes: int = 0
    ended: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    displaced: bool = False

    def shown(self) -> RestoredTable:
        """As the answer of a restore tells of it."""
        return RestoredTable(
            name=self.table.name,
            uid=self.table.uid,
            deleted=self.table.deleted_at_ms is not None,
            config_hash=self.table.config_hash,
            segments=self.segments,
            rows=self.rows,
            bytes=self.bytes,
            notes=tuple(self.notes),
        )


@dataclass(frozen=True, slots=True)
class RestoredTables:
    """All tables that records tell of.

    Attributes:
        tables: By uid.
        configs: Every configuration that is known, by its hash.
        notes: What is there of tables without a record that can be used.
    """

    tables: list[RebuiltTable] = field(default_factory=list)
    configs: dict[str, SegmentConfig] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def restored_tables(context: Context) -> RestoredTables:
    """The tables of a lost catalog; nothing is changed.

    Raises:
        Unreachable: A deep store does not answer: half of the truth is none.
    """
    found = RestoredTables()
    for fabric in context.fabrics.values():
        found.configs.update({config.hash: config for config in _configs(fabric.deep_store)})
    for fabric in context.fabrics.values():
        for files in _record_files(fabric.deep_store):
            _restore(found, fabric, files)
    found.tables.sort(key=lambda one: one.table.uid)
    _let_one_live(found.tables, context.clock())
    return found


def puts_of(context: Context, found: RestoredTables, revision: int) -> Iterator[Put]:
    """What puts them into the catalog, at a revision above all that were used."""
    for config in found.configs.values():
        yield PutConfig(config)
    for one in found.tables:
        yield PutConfig(one.table.config)
        yield PutRestoredTable(one.table.model_copy(update={"revision": revision}), one.lists)
        yield from _reclaims(context, one)


def _reclaims(context: Context, one: RebuiltTable) -> Iterator[PutReclaim]:
    """The intents that were lost with the catalog, as far as records tell of them (rule R22)."""
    if one.displaced:
        return
    if one.table.deleted_at_ms is not None:
        yield files_to_reclaim(context, one.table)
        return
    kept_ms = context.clock() + one.table.settings.backup_retention_seconds * 1000
    for path in one.ended:
        note = file_to_reclaim(context, one.table, path, "no segment named it before").reclaim
        due_ms = max(note.not_before_ms, kept_ms)
        yield PutReclaim(Reclaim(note.id, note.kind, note.fabric, note.target, due_ms, note.reason))


def _configs(deep_store: DeepStore) -> Iterator[SegmentConfig]:
    for stored in list(deep_store.list(CONFIG_RECORDS)):
        # The tables that have one say that it is lost.
        with contextlib.suppress(Failed):
            yield parse_config(deep_store.get(stored.path), stored.path)


def _record_files(deep_store: DeepStore) -> Iterator[RecordFiles]:
    paths: dict[str, list[str]] = {}
    for stored in deep_store.list(TABLE_RECORDS):
        uid = stored.path.removeprefix(f"{TABLE_RECORDS}/").partition("/")[0]
        paths.setdefault(uid, []).append(stored.path)
    return (RecordFiles.of(uid, paths[uid]) for uid in sorted(paths))


def _restore(found: RestoredTables, fabric: Fabric, files: RecordFiles) -> None:
    """Add the table of the newest record that is whole."""
    notes: list[str] = []
    for path in files.newest_first:
        try:
            one = _of_record(fabric, files, path, found.configs)
        except Failed as error:
            # What was dropped since the record before is in that one still: a person has to know.
            notes.append(f"{path} cannot be used, so that what changed with it is lost: {error.message}")
            continue
        one.notes[:0] = notes
        found.tables.append(one)
        return
    found.notes.extend(notes)
    if files.lists and not notes:
        found.notes.append(f"the table {files.uid} has lists of segments, but no record")


def _of_record(fabric: Fabric, files: RecordFiles, path: str, configs: Mapping[str, SegmentConfig]) -> RebuiltTable:
    """The table of one record, and how much of it is there.

    Raises:
        Failed: ``bad_record``, ``corrupt_value``, ``file_missing``: the record, or a list, is not what it was.
    """
    record = files.record(fabric.deep_store, path)
    if record.table.fabric != fabric.name:
        raise Failed("bad_record", f"the record {path} is of the fabric {record.table.fabric}", expected=fabric.name)
    one = RebuiltTable(record.table, files.lists_of(fabric.deep_store, record), files.greatest)
    if record.table.deleted_at_ms is not None:
        return one
    others = {stored.path: stored for stored in fabric.deep_store.list(table_path(record.table.uid))}
    lost, unknown, known = [], 0, {None, record.table.config_hash, *configs}
    for segment in (segment for listed in one.lists.values() for segment in listed.segments()):
        build = segment.build
        one.segments += 1
        one.rows += build.contents.rows
        one.bytes += build.bytes
        stored = others.pop(build.path, None)
        if stored is None or stored.size_bytes != build.bytes:
            lost.append(segment.name)
        unknown += build.config_hash not in known
    if lost:
        few = ", ".join(sorted(lost)[:_NAMED])
        one.notes.append(f"the files of {len(lost)} segments are gone: {few}; anew table repair {record.table.name}")
    if unknown:
        one.notes.append(f"{unknown} segments were made with a configuration that is lost; a refresh makes them again")
    written = fabric.deep_store.stat(path)
    _sort_out(one, record, others.values(), 0 if written is None else written.modified_ms)
    return one


def _sort_out(one: RebuiltTable, record: TableRecord, others: Iterable[StoredFile], written_ms: int) -> None:
    """Tell the files that nobody needs from those that may have been committed after the record.

    A build is committed by the rebuild that wrote it. One that began after the record was made wrote everything after
    that; one that ran then is named by the record; all others had ended.
    """
    stays, running = 0, record.running
    for stored in others:
        old = stored.modified_ms < written_ms - MARGIN_MS
        if old and running is not None and dirname(stored.path) not in running:
            one.ended.append(stored.path)
        else:
            stays += 1
    if stays:
        why = "of rebuilds that were running, or of the last moments"
        one.notes.append(f"{stays} files in {table_path(one.table.uid)} are in no record ({why}): they stay")


def _let_one_live(made: list[RebuiltTable], now_ms: int) -> None:
    """Of tables with one name the newest lives."""
    older = outlived(one.table for one in made)
    for one in made:
        if one.table.uid in older:
            one.notes.append("a younger table has its name: it counts as deleted; its files stay")
            one.table, one.displaced = one.table.model_copy(update={"deleted_at_ms": now_ms}), True
