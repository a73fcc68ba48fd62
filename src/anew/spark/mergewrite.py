"""The task that makes one partition: merge, recode, write, read back, report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict
from pyspark import TaskContext

from anew.codec.compression import Compressor, compressor, recode
from anew.core.arrow import bytes_list, replaced, take
from anew.core.errors import Failed
from anew.core.hashing import row_hashes, total
from anew.core.ledger import Entry, Ledger
from anew.core.reduce import WinnerReducer, run_starts
from anew.core.rows import ROWS
from anew.deepstore.open import open_deep_store
from anew.segments.basefile import BaseFileWriter
from anew.segments.layout import attempt_path
from anew.segments.manifest import BaseFile
from anew.spark.frames import Kind

REPORT_SCHEMA = "report string"
_BATCH = "batch"
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What crosses to the executors.

    Attributes:
        deep_store: Root of the target's deep store.
        directory: The version's directory below it.
        source_codec: The codec of base rows; None for a push.
        target_codec: The codec of what is written.
        refuse_duplicates: Whether a key that comes twice is to be reported with examples (a push).
    """

    deep_store: str
    directory: str
    source_codec: str | None
    target_codec: str
    refuse_duplicates: bool


class TaskReport(BaseModel):
    """What one finished task says; only reports that reach the driver count.

    Attributes:
        partition: The partition that it made.
        ledger: Its part of the account.
        file: The base file, None when the partition holds nothing.
        sources: Rows per source (``base``, ``<feed>/<partition>``, ``push``) as they came out of the shuffle.
        scans: The reports of scanning tasks that were routed here.
        duplicates: Examples of keys (hex) that came more than once, when these are refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: int
    ledger: Ledger
    file: BaseFile | None
    sources: dict[str, Entry]
    scans: tuple[dict[str, Any], ...] = ()
    duplicates: tuple[str, ...] = ()


def merge_and_write(
    task: MergeTask, feeds: dict[int, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``; ``feeds`` maps an incarnation to its feed's id, for the account by source."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is None:
            raise AssertionError("runs inside a Spark task")
        report = _Merge(task, feeds, context.partitionId(), f"t{context.taskAttemptId()}").run(batches)
        yield pa.RecordBatch.from_pydict({"report": [report.model_dump_json()]})

    return run


@dataclass(slots=True)
class _Merge:
    """One partition's pass over its sorted rows."""

    task: MergeTask
    feeds: dict[int, str]
    partition: int
    attempt: str
    sources: dict[str, Entry] = field(default_factory=dict)
    scans: list[dict[str, Any]] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)

    def run(self, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """Merge, recode and write everything; nothing is left behind when it fails."""
        source, target = self._codecs()
        reducer = WinnerReducer(rehash=lambda rows: row_hashes(_decoded(rows, source)))
        path = attempt_path(self.task.directory, self.partition, 0, self.attempt)
        writer = BaseFileWriter.open(open_deep_store(self.task.deep_store), path)
        try:
            for batch in batches:
                rows = self._records(batch)
                if self.task.refuse_duplicates:
                    self._note_duplicates(rows)
                writer.write(self._finished(reducer.feed(rows), source, target))
            writer.write(self._finished(reducer.finish(), source, target))
            file = writer.close()
        except BaseException:
            writer.abort()
            raise
        counts = reducer.counts
        written = Entry() if file is None else Entry(count=file.rows + file.tombstones, hash=file.fingerprint)
        ledger = Ledger(
            read=Entry(count=counts.read, hash=counts.read_hash),
            superseded=Entry(count=counts.superseded, hash=counts.superseded_hash),
            raised=Entry(count=counts.raised, hash=counts.raised_hash),
            written=written,
        )
        return TaskReport(
            partition=self.partition,
            ledger=ledger,
            file=file,
            sources=self.sources,
            scans=tuple(self.scans),
            duplicates=tuple(self.duplicates),
        )

    def _finished(self, rows: pa.RecordBatch, source: Compressor, target: Compressor) -> pa.RecordBatch:
        """The winners as they are written; those of a push lose the order of the input, which is no part of a stamp."""
        if rows.num_rows and self.task.source_codec is None:
            for name in ("feed_partition", "offset"):
                zeros: Any = pa.array(np.zeros(rows.num_rows), rows.schema.field(name).type)
                rows = replaced(rows, name, zeros)
        return _encoded(rows, source, target)

    def _codecs(self) -> tuple[Compressor, Compressor]:
        target = compressor(self.task.target_codec)
        return (target if self.task.source_codec is None else compressor(self.task.source_codec)), target

    def _records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch without scan reports, checked to belong here, its columns as the merge wants them."""
        partitions = batch.column("pid").to_numpy()
        kinds = batch.column("kind").to_numpy()
        is_report = kinds == int(Kind.REPORT)
        if is_report.any():
            self.scans += [json.loads(v) for v in bytes_list(take(batch, is_report.nonzero()[0]).column("value"))]
            batch, kinds = take(batch, (~is_report).nonzero()[0]), kinds[~is_report]
            partitions = partitions[~is_report]
        if (partitions != self.partition).any():
            raise Failed(
                "wrong_partition",
                "the shuffle brought rows of another partition",
                found=sorted({int(p) for p in partitions[:1000]}),
                expected=self.partition,
            )
        self._count_sources(batch, kinds)
        return batch

    def _count_sources(self, rows: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> None:
        hashes = rows.column("hash").to_numpy().view(np.uint64)
        incarnations = rows.column("incarnation").to_numpy()
        partitions = rows.column("feed_partition").to_numpy()
        codes = np.where(kinds == int(Kind.BASE), -1, incarnations.astype(np.int64) << 32 | partitions)
        for code in np.unique(codes):
            chosen = hashes[codes == code]
            name = "base" if code < 0 else self._source_name(int(code))
            entry = Entry(count=chosen.size, hash=total(chosen))
            self.sources[name] = self.sources.get(name, Entry()) + entry

    def _source_name(self, code: int) -> str:
        feed = self.feeds.get(code >> 32)
        return _BATCH if feed is None else f"{feed}/{code & 0xFFFFFFFF}"

    def _note_duplicates(self, rows: pa.RecordBatch) -> None:
        if len(self.duplicates) < _EXAMPLES and rows.num_rows:
            again = (~run_starts(rows, ("key",))).nonzero()[0][:_EXAMPLES]
            self.duplicates += [key.hex() for key in bytes_list(take(rows, again).column("key"))]


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
        # Each row is decoded or encoded by its own kind, then both parts are put back in order.
        order = np.concatenate([raw.nonzero()[0], (~raw).nonzero()[0]])
        encoded = target.compress_array(take(rows, raw.nonzero()[0]).column("value"))
        recoded = recode(take(rows, (~raw).nonzero()[0]).column("value"), source, target)
        joined: Any = pa.concat_arrays([encoded, recoded])
        values = joined.take(pa.array(order.argsort()))
    return replaced(rows, "value", values).select(ROWS.names).cast(ROWS)


def _decoded(rows: pa.RecordBatch, source: Compressor) -> pa.RecordBatch:
    raw = rows.column("kind").to_numpy() == int(Kind.RAW)
    values = [
        value if plain or value is None else source.decompress(value)
        for value, plain in zip(rows.column("value").to_pylist(), raw, strict=True)
    ]
    return replaced(rows, "value", pa.array(values, pa.binary()))


def check_scans(reports: list[TaskReport], expected: dict[str, Entry], split_ids: set[str]) -> Entry:
    """Compare what came out of the shuffle with what was put in, source by source (rule R19).

    Args:
        reports: Of all merge tasks.
        expected: Sources whose account is known beforehand (``base`` from the manifest).
        split_ids: The splits of the plan: each must have reported exactly once.

    Returns:
        The records that scans put aside (count only; they never got a hash).

    Raises:
        Failed: ``split_missing``, ``rows_lost``.
    """
    scans = [scan for report in reports for scan in report.scans]
    found_ids = [scan["split"] for scan in scans if "split" in scan]
    if sorted(found_ids) != sorted(split_ids):
        raise Failed(
            "split_missing",
            "the splits that reported are not the plan's",
            found=sorted(set(found_ids) ^ split_ids)[:5],
            expected=f"{len(split_ids)} splits, each once",
        )
    put_in = dict(expected)
    for scan in scans:
        entry = Entry(count=scan["records"], hash=scan["hash"])
        put_in[scan["source"]] = put_in.get(scan["source"], Entry()) + entry
    came_out: dict[str, Entry] = {}
    for report in reports:
        for name, entry in report.sources.items():
            came_out[name] = came_out.get(name, Entry()) + entry
    for name in put_in.keys() | came_out.keys():
        if put_in.get(name, Entry()) != came_out.get(name, Entry()):
            raise Failed(
                "rows_lost",
                f"rows of {name} were lost or made twice between the scan and the merge",
                found=f"{came_out.get(name, Entry()).count} rows",
                expected=f"{put_in.get(name, Entry()).count} rows",
                hint="the new version is not used; run the rebuild again",
            )
    return Entry(count=sum(int(scan.get("skipped", 0)) for scan in scans), hash=0)
