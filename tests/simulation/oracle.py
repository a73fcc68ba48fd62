"""What each version must hold, worked out record by record from all that was ever pushed and appended.

Nothing here uses the product's merge: a group's winner is found by the whole-group form of rule R6, and floors are
applied as rules R11 and R12 say them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anew.core.feed import Feed, FeedPartition
from anew.core.merge import Cell
from anew.core.partition import XxHash64Partitioner
from anew.core.stamp import Stamp
from anew.core.stores.store import RebuildKind, Store, Version
from anew.testing.builders import FABRIC
from anew.testing.memory.log import Row, Topics

Cells = dict[bytes, Cell]


@dataclass(slots=True)
class Account:
    """What happened, as those saw it who did it.

    Attributes:
        pushed: Input file → what it held.
        acknowledged: Topic uid, partition, offset → the key and value that a writer was told are there.
        versions: Store uid, number → the version as it was last seen; ``stores`` likewise by uid.
    """

    pushed: dict[str, Cells] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int, int], tuple[bytes, bytes | None]] = field(default_factory=dict)
    versions: dict[tuple[str, int], Version] = field(default_factory=dict)
    stores: dict[str, Store] = field(default_factory=dict)
    inputs: dict[tuple[str, int], str | None] = field(default_factory=dict)

    def lose(self, topic_uid: str, partition: int, end: int) -> None:
        """The log lost all from an offset on: nobody can be held to it."""
        lost = [at for at in self.acknowledged if at[:2] == (topic_uid, partition) and at[2] >= end]
        for at in lost:
            del self.acknowledged[at]

    def note(self, store: Store) -> None:
        """A store as it is now."""
        self.stores[store.uid] = store
        self.versions.update({(store.uid, version.number): version for version in store.versions})


@dataclass(slots=True)
class Oracle:
    """Knows what a version must hold."""

    account: Account
    topics: Topics
    skew_limit_ms: int
    _bases: dict[tuple[str, int], Cells] = field(default_factory=dict)

    def base(self, uid: str, number: int) -> Cells:
        """The cells of a sealed version's base, tombstones included."""
        known = self._bases.get((uid, number))
        if known is None:
            known = self._bases[uid, number] = self._base(uid, self.account.versions[uid, number])
        return known

    def served(self, uid: str, number: int, position: Mapping[FeedPartition, int]) -> dict[bytes, bytes]:
        """Key → value of all that a reader may see of a version whose feeds were applied up to a position."""
        version = self.account.versions[uid, number]
        found = self._merged(uid, version, self.base(uid, number), position)
        return {k: c.value for k, c in found.items() if c.value is not None and not expired(c, version.ttl_floor_ms)}

    def history(self, uid: str, key: bytes) -> set[bytes | None]:
        """All values that a key ever had in a store, by a push or a write; None where it was absent."""
        values: set[bytes | None] = {None}
        for (owner, _), path in self.account.inputs.items():
            cell = None if owner != uid or path is None else self.account.pushed[path].get(key)
            values.add(None if cell is None else cell.value)
        for feed in self.account.stores[uid].feeds:
            topic = self.topics.ever.get(feed.topic_uid)
            parts = () if topic is None else topic.partitions
            values |= {row[5] for part in parts for row in part.rows if row[3] == key}
        return values

    def newest(self, uid: str, number: int) -> dict[bytes, bytes | None]:
        """Of keys without any given time: the last record that a feed has of them since the lineage's push (rule 7.2).

        Nothing of how versions follow each other enters here but where the first of them began.
        """
        root = self.account.versions[uid, number]
        while root.source_version is not None:
            root = self.account.versions[uid, root.source_version]
        found: dict[bytes, bytes | None] = {}
        timed: set[bytes] = set()
        for feed in self._feeds(uid, self.account.versions[uid, number]):
            for at in feed.feed_partitions():
                begun = root.fabrics[FABRIC].start
                start = begun.get(at, 0 if begun else feed.low_water[at.partition])
                for _, row in self._rows(feed, at, start, self._end(feed, at)):
                    found[row[3]] = row[5]
                    if row[1] is not None:
                        timed.add(row[3])
        return {key: value for key, value in found.items() if key not in timed}

    def _base(self, uid: str, version: Version) -> Cells:
        if version.kind is RebuildKind.FULL_PUSH:
            path = self.account.inputs[uid, version.number]
            rows = {} if path is None else self.account.pushed[path]
            return {key: cell for key, cell in rows.items() if not expired(cell, version.ttl_floor_ms)}
        if version.source_version is None:
            raise AssertionError("a repush has a source")
        source = self.account.versions[uid, version.source_version]
        found = self._merged(uid, source, self.base(uid, source.number), version.fabrics[FABRIC].start)
        return {key: cell for key, cell in found.items() if not _dropped(cell, version)}

    def _merged(self, uid: str, version: Version, base: Cells, upto: Mapping[FeedPartition, int]) -> Cells:
        groups: dict[bytes, list[Cell]] = {key: [cell] for key, cell in base.items()}
        for feed in self._feeds(uid, version):
            for at in feed.feed_partitions():
                start = version.fabrics[FABRIC].start.get(at, 0)
                end = min(upto.get(at, 0), self._end(feed, at))
                if version.stop is not None:
                    end = min(end, version.stop.get(at, end))
                for offset, row in self._rows(feed, at, start, end):
                    groups.setdefault(row[3], []).append(_cell(feed, at, offset, row))
        won = {key: winner(cells) for key, cells in groups.items()}
        return {k: c for k, c in won.items() if k in base or c.stamp.time_ms >= version.tombstone_floor_ms}

    def records(self, feed: Feed, at: FeedPartition) -> Sequence[Row]:
        """All that a partition ever took; nothing where the topic is announced, and not made yet (rule R22)."""
        topic = self.topics.ever.get(feed.topic_uid)
        return () if topic is None else topic.partitions[at.partition].rows

    def _feeds(self, uid: str, version: Version) -> list[Feed]:
        return [feed for feed in self.account.stores[uid].feeds if feed.id in version.feeds]

    def _end(self, feed: Feed, at: FeedPartition) -> int:
        return len(self.records(feed, at))

    def _rows(self, feed: Feed, at: FeedPartition, start: int, end: int) -> Iterable[tuple[int, Row]]:
        """The records of [start, end) that somebody may apply (rules R6, R8)."""
        rows = self.records(feed, at)
        place = XxHash64Partitioner(feed.partitions)
        for offset in range(start, end):
            row = rows[offset]
            in_time = row[1] is None or 0 < row[1] <= row[0] + self.skew_limit_ms
            if in_time and place.of(row[3]) == at.partition:
                yield offset, row


def winner(cells: list[Cell]) -> Cell:
    """Who wins among all records of a key (rule R6, whole-group form)."""
    clocks: dict[tuple[bytes, int, int], list[Cell]] = {}
    others: list[Cell] = []
    for cell in cells:
        stamp = cell.stamp
        if stamp.append_timed:
            clocks.setdefault((stamp.origin, stamp.incarnation, stamp.partition), []).append(cell)
        else:
            others.append(cell)
    for shared in clocks.values():
        last = max(shared, key=lambda cell: cell.stamp.offset)
        time_ms = max(cell.stamp.time_ms for cell in shared)
        others.append(replace(last, stamp=replace(last.stamp, time_ms=time_ms)))
    return max(others, key=lambda cell: cell.stamp.rank)


def expired(cell: Cell, floor_ms: int) -> bool:
    """Whether a value is past its time to live (rule R11)."""
    return cell.value is not None and 0 < cell.stamp.time_ms < floor_ms


def _dropped(cell: Cell, version: Version) -> bool:
    return expired(cell, version.ttl_floor_ms) or (
        cell.value is None and cell.stamp.time_ms < version.tombstone_floor_ms
    )


def _cell(feed: Feed, at: FeedPartition, offset: int, row: Row) -> Cell:
    appended_ms, written_ms, origin, _, schema_id, value = row
    time_ms = appended_ms if written_ms is None else written_ms
    stamp = Stamp(time_ms, origin, written_ms is None, feed.incarnation, at.partition, offset)
    return Cell(stamp, value, 0 if value is None else schema_id)
