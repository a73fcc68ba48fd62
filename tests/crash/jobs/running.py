"""A history as it runs: the job, its input and its output, and what is looked at while and after things happen."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anew.api.jobs.views import GenerationView, JobView
from anew.api.stores.requests import CreateStore
from anew.api.topics import CreateTopic
from anew.codec.avro import encode_datum, parse_schema
from anew.core.errors import AnewError
from anew.core.jobs.declaration import Declaration, Input
from anew.core.partition import XxHash64Partitioner
from anew.runtime.clock import new_id
from anew.runtime.jobplans import Code, Start
from anew.runtime.jobs import JobHandle
from tests.cluster.commands import wait_until
from tests.crash.jobs import drawing
from tests.crash.jobs.drawing import KEYS_EACH, PARTITIONS, Event, History
from tests.crash.jobs.oracle import Account, Offsets, Stretch, records
from tests.crash.jobs.place import Place
from tests.crash.jobs.reading import Reader, StoreReads, TopicReads

INPUT = "events"
_PATIENCE_SECONDS, _LOOK_SECONDS = 420.0, 0.4
"""Looking at a job asks its log: what looked often would take a fifth of a processor from the drivers."""
_KEY = '"string"'
_EVENT = (
    '{"type": "record", "name": "Event", "fields": [{"name": "n", "type": "int"}, {"name": "text", "type": "string"}, '
    '{"name": "at", "type": "long"}]}'
)
_TEXT = '{"type": "record", "name": "Text", "fields": [{"name": "text", "type": "string"}]}'
_CODE = Path(__file__).parent / "submitted" / "functions.py"
_MASTER, _CONF = "local[1]", {"spark.ui.enabled": "false"}
_READ_MOST = 100_000


class Wrong(AssertionError):
    """Something is not as it must be."""


@dataclass
class JobRun:
    """One job of a history.

    Attributes:
        account: What was done to it, for the oracle.
        views: Generation → what it and those that it went on from write.
        starts: Generation → where it must begin.
        log: What happened, with seconds since the beginning.
        counts: How often which thing happened.
    """

    history: History
    place: Place
    account: Account = field(default_factory=Account)
    views: dict[int, tuple[Stretch, ...]] = field(default_factory=dict)
    starts: dict[int, Offsets] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Prepare."""
        self.name = f"h{self.history.seed}"
        self.input, self.output = f"{self.name}_in", f"{self.name}_out"
        self.cluster = self.place.cluster
        self.controller = self.cluster.controller
        self.job: JobHandle = self.cluster.job(self.name)
        self.is_store = self.history.output == "store"
        self._began, self._began_ms = time.monotonic(), int(time.time() * 1000)
        self._keys = _keys_by_partition()
        self._reads: StoreReads | None = None
        self._topics: dict[int, TopicReads] = {}
        self._readers: dict[int, Reader] = {}

    # -- the input and the output --------------------------------------------------------------------------------------

    def make(self) -> None:
        """The input, its first events, and the output."""
        self._make_topic(self.input, PARTITIONS, _EVENT)
        if self.is_store:
            settings: dict[str, str | int | bool | None] = {
                "partitions": self.history.partitions,
                "replicas": 1,
                # Ready is who has applied everything, so that a reader never goes back.
                "lag_limit_records": 0,
                "tombstone_grace_seconds": 0,
            }
            self.controller.create_store(
                CreateStore(name=self.output, key_schema=_KEY, value_schema=_TEXT, settings=settings)
            )
        else:
            self._make_topic(self.output, self.history.partitions, _TEXT)
        self.account.writes.append((time.monotonic(), (0,) * PARTITIONS))
        self.append(self.history.before)

    def _make_topic(self, name: str, partitions: int, schema: str) -> None:
        request = CreateTopic(name=name, partitions=partitions, key_schema=_KEY, value_schema=schema)
        self.controller.create_topic(request)
        self._await_topic(name)

    def _await_topic(self, name: str) -> None:
        await_that(lambda: self.controller.topic(name, facts=False).ready, f"the topic {name}")

    def append(self, events: tuple[Event, ...]) -> None:
        """Write events into the input, and note where they came to lie."""
        if not events:
            return
        before, sent = self.account.ends, time.monotonic()
        rows = [(self._keys[event.partition][event.key], self._value(event)) for event in events]
        topic = self.cluster.topic(self.input)
        with topic.writer() as writer:
            for key, value in rows:
                writer.put(key, value)
        found: list[dict[str, Any]] = []
        for partition in range(len(before)):
            for row in topic.read(before[partition], partition=partition, limit=_READ_MOST):
                value = {"n": 0, "text": None, "at": 0} if row.value is None else row.value
                place = {"partition": partition, "offset": row.offset, "timestamp": row.timestamp_ms}
                found.append({"key": row.key, "deleted": row.value is None, **value, **place})
        self._check_written(rows, found)
        ends = list(before)
        for event_row in found:
            ends[event_row["partition"]] = max(ends[event_row["partition"]], event_row["offset"] + 1)
        self.account.add(found)
        self.account.writes.append((sent, tuple(ends)))
        self.counts["events"] += len(events)
        self.counts["deletes"] += sum(event.deleted for event in events)

    def add_partition(self) -> None:
        """Give the input one more partition."""
        ends = (*self.account.ends, 0)
        self.cluster.topic(self.input).alter(partitions=len(ends))
        self.account.writes.append((time.monotonic(), ends))

    def _value(self, event: Event) -> dict[str, Any] | None:
        if event.deleted:
            return None
        at = 0 if event.ago_ms is None else self._began_ms - event.ago_ms
        return {"n": event.number, "text": f"e{event.serial}", "at": at}

    def _check_written(self, rows: list[tuple[str, dict[str, Any] | None]], found: list[dict[str, Any]]) -> None:
        """What was written lies there once, of each key in its order."""
        wrote, lies = Counter[str](), Counter[str]()
        for key, value in rows:
            wrote[f"{key} {None if value is None else value['text']} {wrote[key]}"] += 1
            wrote[key] += 1
        for row in sorted(found, key=lambda each: (each["partition"], each["offset"])):
            lies[f"{row['key']} {row['text']} {lies[row['key']]}"] += 1
            lies[row["key"]] += 1
        if wrote != lies:
            raise Wrong(f"the input has not what was written: {wrote - lies}, {lies - wrote}")

    # -- the job -------------------------------------------------------------------------------------------------------

    def submit(self) -> None:
        """Make the job and its first generation, and let it run."""
        history = self.history
        declared = Declaration(inputs={INPUT: Input(topic=self.input)}, output=f"{history.output}:{self.output}")
        start, at = self.start_of(history.start)
        self.job.submit(self._code(history.function, 1), declared, start, new_id())
        number = self.view().generations[-1].number
        self.begun(number, history.function, at)
        self.job.run(number)
        await_that(lambda: self.view().live == number, "the first generation to serve")
        self.served(number, (0,) * PARTITIONS, 0.0)
        if self.is_store:
            self._reads = StoreReads(self.cluster.store(self.output), self._all_keys())
            self._read(0, self._reads.once)

    def start_of(self, drawn: drawing.Start) -> tuple[Start, Offsets]:
        """A start as it is asked for, and where it must come to."""
        at: Any
        if isinstance(drawn, str):
            at, offsets = drawn, self.account.ends if drawn == "newest" else (0,) * len(self.account.ends)
        else:
            named = {partition: int(share * self.account.ends[partition]) for partition, share in drawn}
            at, offsets = {INPUT: named}, tuple(named.get(p, 0) for p in range(len(self.account.ends)))
        self.counts[f"start {'offsets' if isinstance(at, dict) else at}"] += 1
        return self.start_at(at), offsets

    def start_at(self, at: Any) -> Start:
        """A start there, with what all generations of the history have in common."""
        return Start(at, _MASTER, _CONF, self.history.max_records)

    def _code(self, function: str, number: int) -> Code:
        self.counts[f"function {function}"] += 1
        return Code(f"{_CODE}:{function}", params={"tag": f"g{number}"}, trial=False)

    def code(self, function: str) -> tuple[Code, int]:
        """The code of the next generation, whose texts tell it from all others; and its number."""
        number = max(self.views) + 1
        return self._code(function, number), number

    def begun(self, number: int, function: str, start: Offsets, after: tuple[Stretch, ...] = ()) -> None:
        """A generation was begun: note what it writes, and read its topic."""
        self.starts[number] = start
        self.views[number] = (*after, Stretch(number, function, f"g{number}", start))
        self.counts["generations"] += 1
        if not self.is_store and not after:
            topic = f"{self.output}_g{number}"
            self._await_topic(topic)
            self._topics[number] = TopicReads(self.cluster.topic(topic))
            self._read(number, self._topics[number].once)

    def served(self, number: int, floor: Offsets, asked: float) -> None:
        """A generation serves, since it was asked for; at least what lies below a floor has arrived there."""
        self.account.serve(self.views[number], floor, asked, time.monotonic())

    def view(self) -> JobView:
        """The job; each generation begins where it must, whatever happened to it (case N1)."""
        view = self.job.show()
        for each in view.generations:
            wanted = self.starts.get(each.number)
            found = tuple(offset for _, offset in sorted(each.start[INPUT].items()))
            if wanted is not None and found != wanted:
                raise Wrong(f"generation {each.number} begins at {found}, not at {wanted}")
            if each.status == "failed":
                raise Wrong(f"generation {each.number} failed: {each.error}")
        return view

    def generation(self, number: int | None = None) -> GenerationView:
        """A generation, the live one for None."""
        view = self.view()
        wanted = view.live if number is None else number
        return next(each for each in view.generations if each.number == wanted)

    # -- what is looked at ---------------------------------------------------------------------------------------------

    def await_all(self, number: int) -> None:
        """Wait until a generation has read all that there is, and then until readers can be served it."""
        name = f"{self.name}@{number}"
        await_that(lambda: self.generation(number).lag_records == 0, f"{name} to read all")
        await_that(lambda: self.generation(number).applied is True, f"{name} to be applied")

    def settle(self) -> None:
        """Wait until all events have arrived, and compare the whole output with what must be there."""
        number = self.generation().number
        self.await_all(number)
        self.account.arrived(time.monotonic(), self.account.ends)
        self.counts["settled"] += 1
        if self._reads is not None:
            # Who asks anew knows what was acknowledged.
            anew = StoreReads(self.cluster.store(self.output), self._all_keys())
            for read in (anew.got(), anew.scanned()):
                if why := self.account.wrong_now(read):
                    raise Wrong(f"all has arrived: {why}")
        else:
            self._check_topic(number)

    def _check_topic(self, number: int) -> None:
        """The records of a generation's topic that count are those that it must have written, each once."""
        reads = next(self._topics[stretch.number] for stretch in self.views[number] if stretch.number in self._topics)
        reads.once()
        wanted = records(self.account.events, self.views[number], self.account.ends)
        if reads.rows != wanted:
            lacking, strange = wanted - reads.rows, reads.rows - wanted
            raise Wrong(f"topic of {number}: missing {_some(lacking)}; too many {_some(strange)}")
        self.counts["records of topics"] += wanted.total()

    def check_reads(self) -> None:
        """Every read that was made meanwhile was one that could be."""
        for reader in self._readers.values():
            reader.stop()
        errors = [error for reader in self._readers.values() for error in reader.errors]
        if errors:
            raise Wrong(f"{len(errors)} reads failed: {errors[0]}")
        reads = [] if self._reads is None else self._reads.reads
        self.counts["reads"] += len(reads)
        wrong = self.account.wrong(reads)
        if wrong is not None:
            read, why = wrong
            raise Wrong(f"the read at {read.began - self._began:.2f} s, of versions {sorted(read.versions)}: {why}")

    def forget(self, number: int) -> None:
        """A generation goes: what was read of its topic was all that it may have written."""
        # What was deployed writes into the topic of the one that it went on from.
        first = next((stretch.number for stretch in self.views[number] if stretch.number in self._topics), None)
        if first is None:
            return
        reads, reader = self._topics.pop(first), self._readers.pop(first)
        reader.stop()
        strange = reads.rows - records(self.account.events, self.views[number], self.account.ends)
        if strange or reader.errors:
            raise Wrong(f"topic of {number}: too many {_some(strange)}; {reader.errors[:1]}")

    def end(self) -> None:
        """Stop what runs, whatever happened: drivers would take the processors from other histories."""
        for reader in self._readers.values():
            reader.stop()
        with suppress(AnewError):
            for each in self.job.show().generations:
                if each.status == "running":
                    self.job.stop(each.number)
            await_that(lambda: not any(each.driver for each in self.job.show().generations), "drivers to stop")

    def tell(self, what: str) -> None:
        """Note what happens."""
        self.log.append(f"{time.monotonic() - self._began:7.2f} {what}")

    def _read(self, number: int, once: Callable[[], None]) -> None:
        self._readers[number] = Reader(once)
        self._readers[number].start()

    def _all_keys(self) -> list[str]:
        plain = [key for keys in self._keys for key in keys]
        return [*plain, *(f"{key}x" for key in plain), *sorted({f"r{key[-1]}" for key in plain})]


def await_that(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition that costs something to look at."""
    pause = threading.Event()
    wait_until(lambda: condition() or pause.wait(_LOOK_SECONDS), what, _PATIENCE_SECONDS)


def ended_at(view: tuple[Stretch, ...], end: Offsets) -> tuple[Stretch, ...]:
    """What some generations write, the last of which ends there."""
    return (*view[:-1], replace(view[-1], end=end))


def _some(rows: Counter[Any]) -> str:
    return f"{rows.total()}: {dict(list(rows.items())[:3])}"


def _keys_by_partition() -> list[list[str]]:
    """Some keys of each partition of the input; their last characters are the same in all of them."""
    schema, partitioner = parse_schema(_KEY), XxHash64Partitioner(PARTITIONS)
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for number in range(10_000):
        key = f"k{number // KEYS_EACH}-{number % KEYS_EACH}"
        keys = found[partitioner.of(encode_datum(schema, key))]
        if len(keys) < KEYS_EACH and all(other[-1] != key[-1] for other in keys):
            keys.append(key)
    return [sorted(keys, key=lambda key: key[-1]) for keys in found]
