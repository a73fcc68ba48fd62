"""The task that makes sub-partitions: merge, drop, recode, write, read back, report.

On the general path a task gets all rows of one sub-partition out of the shuffle. On the co-partitioned path it gets the
feed records of a group, reads the group's sorted base files itself, and writes the group's sub-partitions.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from anew.api.location import LogLocation
from anew.codec.compression import Compressor, recode
from anew.core.arrow import bytes_list, replaced, take
from anew.core.blocks import merge_blocks
from anew.core.dropping import DropFloors, drop
from anew.core.errors import Failed
from anew.core.hashing import row_hashes, total
from anew.core.ledger import Entry, Ledger
from anew.core.reduce import ReduceCounts, WinnerReducer, run_starts
from anew.core.rows import ROWS
from anew.core.sortedruns import RunMerger
from anew.core.spilling import sort_spilling
from anew.core.stores.copartition import Groups
from anew.core.stores.plan import LogSplit
from anew.core.stores.store import Frozen
from anew.log.open import BUILD_TIMEOUT_SECONDS
from anew.segments.base import BaseReader, open_base
from anew.segments.content import check_content
from anew.segments.manifest import BasePart
from anew.spark.failures import told_to_driver
from anew.spark.stores.frames import HELD, SCANNED, Kind, as_scanned, is_report, with_held
from anew.spark.stores.logsource import LogScan, scan_splits
from anew.spark.stores.outputs import BaseTarget, MadePart, Outputs
from anew.spark.stores.shuffle import received
from anew.spark.stores.sources import Sources
from anew.spark.worker import begin_task, required_build, spill_file

REPORT_SCHEMA = "report string"
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class BaseGroups:
    """The base of the co-partitioned path.

    Attributes:
        deep_store: Root of the source's deep store.
        log: Where the source's log is.
        groups: How sub-partitions fall into groups.
        runs: Per group its sorted runs, each its parts in key order; no key is in two runs.
    """

    deep_store: str
    log: LogLocation
    groups: Groups
    runs: tuple[tuple[tuple[BasePart, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class FeedGroups:
    """The feed records of the co-partitioned path where tasks read them themselves.

    Attributes:
        log: How splits are read.
        splits: Per group what its task reads.
    """

    log: LogScan
    splits: tuple[tuple[LogSplit, ...], ...]


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What crosses to the executors.

    Attributes:
        target: Where the new version's base goes.
        config: The target's frozen configuration.
        source: The codec of base rows; None for a push.
        codec: The codec of what is written.
        feeds: For the account by source.
        floors: What winners are judged by.
        base: The base's files where tasks read them themselves; None on the general path.
        feed: The feed records where tasks read them themselves; None where they are shuffled.
        refuse_duplicates: Whether a key that comes twice is to be reported with examples (a push).
    """

    target: BaseTarget
    config: Frozen
    source: Compressor | None
    codec: Compressor
    feeds: Sources
    floors: DropFloors = field(default_factory=DropFloors)
    base: BaseGroups | None = None
    feed: FeedGroups | None = None
    refuse_duplicates: bool = False

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return self.config.sub_partitions if self.base is None else self.base.groups.count

    def units(self, index: int) -> list[tuple[int, int]]:
        """The (partition, sub-partition) pairs that a task makes."""
        factor = self.config.amplification_factor
        if self.base is None:
            return [divmod(index, factor)]
        pairs = [(partition, sub) for partition in range(self.config.partitions) for sub in range(factor)]
        return [pair for pair in pairs if self.base.groups.of(*pair) == index]


class TaskReport(BaseModel):
    """What one finished task says; only reports that reach the driver count.

    Attributes:
        index: Which task.
        ledger: Its part of the account.
        made: The sub-partitions that it made.
        sources: Rows per source (``base``, ``<feed>/<partition>``, ``push``) as they came to the merge.
        scans: The reports of scanning tasks that were routed here.
        duplicates: Examples of keys (hex) that came more than once, when these are refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    ledger: Ledger
    made: tuple[MadePart, ...]
    sources: dict[str, Entry]
    scans: tuple[dict[str, Any], ...] = ()
    duplicates: tuple[str, ...] = ()


def merge_and_write(task: MergeTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``."""
    build = required_build()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = begin_task(build)
        with told_to_driver():
            report = _Merge(task, context.partitionId(), f"t{context.taskAttemptId()}").run(batches)
        yield pa.RecordBatch.from_pydict({"report": [report.model_dump_json()]})

    return run


@dataclass(slots=True)
class _Merge:
    """One task's pass over its sorted rows."""

    task: MergeTask
    index: int
    attempt: str
    sources: dict[str, Entry] = field(default_factory=dict)
    scans: list[dict[str, Any]] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    last_key: bytes | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """Merge, drop, recode and write everything; nothing is left behind when it fails."""
        task = self.task
        source = task.codec if task.source is None else task.source
        counts = ReduceCounts()
        with Outputs(task.target, task.config, task.codec, task.units(self.index), self.attempt) as outputs:
            rows = self._received(batches) if task.feed is None else self._own_feed_rows(task.feed, batches)
            for winners in self._winners(rows, source, counts):
                kept = drop(winners, task.floors)
                self.ledger += Ledger(expired=kept.expired, deleted=kept.deleted, skipped=kept.rejected)
                outputs.write(_encoded(self._as_written(kept.rows), source, task.codec))
            made = outputs.close()
        self._check_read(counts)
        parts = [one.part for one in made if one.part is not None]
        written = [Entry(count=part.rows + part.tombstones, hash=part.fingerprint) for part in parts]
        merged = Ledger(
            read=Entry(count=counts.read, hash=counts.read_hash),
            superseded=Entry(count=counts.superseded, hash=counts.superseded_hash),
            raised=Entry(count=counts.raised, hash=counts.raised_hash),
            written=sum(written, Entry()),
        )
        return TaskReport(
            index=self.index,
            ledger=self.ledger + merged,
            made=made,
            sources=self.sources,
            scans=tuple(self.scans),
            duplicates=tuple(self.duplicates),
        )

    def _check_read(self, counts: ReduceCounts) -> None:
        """Raise unless the reduction read what came to this task (rule R19)."""
        came = sum(self.sources.values(), Entry())
        if came != Entry(count=counts.read, hash=counts.read_hash):
            raise Failed(
                "rows_lost",
                "rows were lost or made twice between the shuffle and the merge",
                found=f"{counts.read} rows",
                expected=f"{came.count} rows",
                hint="the new version is not used; run the rebuild again",
            )

    def _winners(
        self, rows: Iterator[pa.RecordBatch], source: Compressor, counts: ReduceCounts
    ) -> Iterator[pa.RecordBatch]:
        def rehash(changed: pa.RecordBatch) -> npt.NDArray[np.uint64]:
            return row_hashes(_decoded(changed, source))

        if self.task.base is not None:
            with open_base(self.task.base.deep_store, self.task.base.log, BUILD_TIMEOUT_SECONDS) as base:
                runs = [self._base_rows(base, run) for run in self.task.base.runs[self.index]]
                schema = HELD if self.task.floors.rejected_below_ms else SCANNED
                yield from RunMerger(rehash, counts).merge(runs, rows, schema)
            return
        reducer = WinnerReducer(rehash, counts)
        for batch in rows:
            if self.task.refuse_duplicates:
                self._note_duplicates(batch)
            yield reducer.feed(batch)
        yield reducer.finish()

    def _base_rows(self, base: BaseReader, run: tuple[BasePart, ...]) -> Iterator[pa.RecordBatch]:
        """The rows of a sorted run."""
        for part in run:
            for rows in base.rows(part):
                yield self._accounted(as_scanned(rows, Kind.BASE))

    def _own_feed_rows(self, feed: FeedGroups, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of the feed partitions that hold this group's keys, sorted."""
        deque(batches, maxlen=0)
        yield from sort_spilling(self._scanned(scan_splits(feed.log, feed.splits[self.index])), spill_file)

    def _scanned(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What was scanned, without the reports, which are kept."""
        for batch in rows:
            if is_report(batch):
                self.scans.append(json.loads(batch.column("value")[0].as_py()))
            else:
                yield self._accounted(batch)

    def _as_written(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The winners as they are written; those of a push lose the order of the input, which is no part of a stamp."""
        if rows.num_rows and self.task.source is None:
            for name in ("feed_partition", "offset"):
                zeros: Any = pa.array(np.zeros(rows.num_rows), rows.schema.field(name).type)
                rows = replaced(rows, name, zeros)
        return rows

    def _received(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that the shuffle brought, sorted."""
        return merge_blocks(map(self._accounted, received(batches, self.index, self.scans)))

    def _accounted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Some rows, counted by source, with the columns that the merge wants."""
        kinds = rows.column("kind").to_numpy()
        self._count_sources(rows)
        return self._with_held(rows, kinds)

    def _with_held(self, rows: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> pa.RecordBatch:
        return with_held(rows, kinds) if self.task.floors.rejected_below_ms else rows

    def _count_sources(self, rows: pa.RecordBatch) -> None:
        hashes = rows.column("hash").to_numpy().view(np.uint64)
        codes = self.task.feeds.codes(rows)
        if codes.size and (codes == codes[0]).all():
            self._count(self.task.feeds.name(int(codes[0])), Entry(count=codes.size, hash=total(hashes)))
            return
        for code in np.unique(codes):
            chosen = hashes[codes == code]
            self._count(self.task.feeds.name(int(code)), Entry(count=chosen.size, hash=total(chosen)))

    def _count(self, source: str, entry: Entry) -> None:
        self.sources[source] = self.sources.get(source, Entry()) + entry

    def _note_duplicates(self, rows: pa.RecordBatch) -> None:
        if len(self.duplicates) < _EXAMPLES and rows.num_rows:
            keys = rows.column("key")
            again = ~run_starts(rows, ("key",))
            again[0] = keys[0].as_py() == self.last_key
            self.last_key = keys[rows.num_rows - 1].as_py()
            self.duplicates += [key.hex() for key in bytes_list(keys.take(again.nonzero()[0][:_EXAMPLES]))]


def _encoded(rows: pa.RecordBatch, source: Compressor, target: Compressor) -> pa.RecordBatch:
    """The rows with their values in the target's codec; same codec and dictionary: base values pass untouched."""
    if rows.num_rows == 0:
        return rows
    raw = rows.column("kind").to_numpy() == int(Kind.RAW)
    values: Any = rows.column("value")
    if raw.all():
        values = target.compress_array(values)
    elif not raw.any():
        values = recode(values, source, target)
    else:
        if not source.same_bytes_as(target):
            plain = pc.if_else(pa.array(raw), pa.scalar(None, values.type), values)
            recoded: Any = recode(plain, source, target)
            values = pc.coalesce(recoded, pc.if_else(pa.array(raw), values, pa.scalar(None, values.type)))
        if not target.passes_through:
            fresh: Any = target.compress_array(take(rows, raw.nonzero()[0]).column("value"))
            values = pc.replace_with_mask(values, pa.array(raw), fresh.cast(values.type))
    encoded = replaced(rows, "value", values).select(ROWS.names).cast(ROWS)
    changed = raw & (not target.passes_through) | ~raw & (not source.same_bytes_as(target))
    if changed.any():
        # Their hashes were carried along: what was made of their values is proved to be theirs (rule R19).
        check_content(take(encoded, changed.nonzero()[0]), target, "the new version")
    return encoded


def _decoded(rows: pa.RecordBatch, source: Compressor) -> pa.RecordBatch:
    raw = rows.column("kind").to_numpy() == int(Kind.RAW)
    values = [
        value if plain or value is None else source.decompress(value)
        for value, plain in zip(rows.column("value").to_pylist(), raw, strict=True)
    ]
    return replaced(rows, "value", pa.array(values, pa.binary()))
