"""The files of one table's records: which there are, and what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from anew.core.errors import Failed
from anew.deepstore.interface import DeepStore
from anew.segments.layout import segment_list_path, table_records_path
from anew.segments.record import SegmentList, TableRecord, parse_segment_list, parse_table_record

MARGIN_MS = 900_000
"""More than what writing a record takes, from reading the catalog to the time of its file in the deep store."""

_RECORD = re.compile(r"table/(?P<revision>[0-9]+)\.json")
_LIST = re.compile(r"slots/(?P<slot>[0-9]+)/(?P<name>[0-9]+-[0-9a-f]+)\.json\.zst")


def revision_of(list_name: str) -> int:
    """The slot's revision that a list's name begins with."""
    return int(list_name.partition("-")[0])


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """Which files there are.

    Attributes:
        newest_first: Paths of records.
        lists: Slot → the name of each list → its path.
    """

    uid: str
    newest_first: tuple[str, ...]
    lists: dict[int, dict[str, str]]

    @classmethod
    def of(cls, uid: str, paths: Iterable[str]) -> RecordFiles:
        """Those of a table among paths; what is called otherwise is not looked at."""
        root, records = f"{table_records_path(uid)}/", []
        lists: dict[int, dict[str, str]] = {}
        for path in paths:
            below = path.removeprefix(root)
            if _RECORD.fullmatch(below):
                records.append(path)
            elif matched := _LIST.fullmatch(below):
                lists.setdefault(int(matched["slot"]), {})[matched["name"]] = path
        return cls(uid, tuple(sorted(records, reverse=True)), lists)

    @property
    def greatest(self) -> int:
        """The greatest revision that any name says: those of a restored table go on above it."""
        records = (int(path.rpartition("/")[2].partition(".")[0]) for path in self.newest_first)
        return max((*records, *(revision_of(name) for names in self.lists.values() for name in names)), default=0)

    def record(self, deep_store: DeepStore, path: str) -> TableRecord:
        """A record of this very table.

        Raises:
            Failed: ``bad_record``; ``file_missing``.
        """
        record = parse_table_record(deep_store.get(path), path)
        if record.table.uid != self.uid:
            raise Failed("bad_record", f"the record {path} belongs to another table", found=record.table.uid)
        return record

    def has_lists_of(self, record: TableRecord) -> bool:
        """Whether every list that a record names is there."""
        return all(name in self.lists.get(slot, {}) for slot, name in record.slots.items())

    def lists_of(self, deep_store: DeepStore, record: TableRecord) -> dict[int, SegmentList]:
        """Slot → the list that a record names.

        Raises:
            Failed: ``bad_record``, ``corrupt_value``, ``file_missing``.
        """
        paths = {slot: segment_list_path(self.uid, slot, name) for slot, name in record.slots.items()}
        return {slot: parse_segment_list(deep_store.get(path), path) for slot, path in paths.items()}
