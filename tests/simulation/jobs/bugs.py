"""Bugs that are planted in what jobs are made of, one at a time; see `tests.simulation.bugs`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from anew.catalog.change import PutReclaim, Reclaim
from anew.controller.jobs import inplace
from anew.controller.jobs import planning as job_planning
from anew.controller.stores import output
from anew.core import admission, identity, rebuild
from anew.core.feed import FeedKind
from anew.core.jobs import uses
from anew.core.jobs.batch import TaskOutput
from anew.core.jobs.deadletters import spans_between
from anew.core.stores import displacing, floors, following, jobfeeds, lifecycle, retention
from anew.core.stores.store import IN_THE_MAKING, VersionStatus
from anew.core.stores.transitions import VersionEvent
from anew.log.interface import present_partitions
from anew.rebuild.jobs import driving, running
from anew.spark.jobs import sink, source
from anew.testing.memory.catalogjobs import MemoryJobs
from tests.simulation.disks import rebinding
from tests.simulation.jobs.history import PARTITIONS
from tests.simulation.planting import Plant, both


@dataclass(frozen=True, slots=True)
class JobBug:
    """One planted bug.

    Attributes:
        name: The rule, and what is wrong.
        plant: Takes the rule out.
        found_by: Which invariants may notice.
        often: A step that leads to it.
        pushed: Whether the store is pushed to before the job begins; None: in some histories.
    """

    name: str
    plant: Plant
    found_by: frozenset[str]
    often: str | None
    pushed: bool | None


JOB_BUGS: list[JobBug] = []


def _bug(name: str, *found_by: str, often: str | None = None, pushed: bool | None = None) -> Callable[[Plant], Plant]:
    """Keep a bug in the list."""

    def keep(plant: Plant) -> Plant:
        JOB_BUGS.append(JobBug(name, plant, frozenset(found_by), often, pushed))
        return plant

    return keep


@_bug(
    "N8: a batch is appended without a look at the lease",
    "a batch is begun under a lease",
)
def _no_lease() -> AbstractContextManager[Any]:
    return patch.object(driving._Recorder, "may_append", lambda *_: True)


@_bug(
    "N8: a driver of an older epoch goes on",
    "a batch is begun under a lease",
    "a generation goes on",
    often="stall_in_batch",
)
def _no_epochs() -> AbstractContextManager[Any]:
    return rebinding({rebuild.check_epoch: lambda *_: None})


@_bug("C7: a batch is recorded before its append", "each output is there once", "the last output is served")
def _recorded_first() -> AbstractContextManager[Any]:
    append = sink.append_frame

    def appended(frame: Any, task: Any, batch: int, epoch: int) -> list[TaskOutput]:
        # The record is committed, and the process dies before it comes to the append.
        frame.frame.machines.world.spawn(frame.frame.machines.world.acting, lambda: _late(frame, task, batch, epoch))
        return []

    def _late(frame: Any, task: Any, batch: int, epoch: int) -> None:
        frame.frame.machines.world.sleep(200)
        append(frame, task, batch, epoch)

    return patch.object(running, "append_frame", appended)


@_bug("C7: a batch is recorded with all attempts that ever appended", "each output is there once")
def _all_attempts() -> AbstractContextManager[Any]:
    report = sink._Output.report

    def reported(self: Any, number: int) -> TaskOutput:
        made = report(self, number)
        return made.model_copy(update={"attempt": max(0, made.attempt - 1)})

    return patch.object(sink._Output, "report", reported)


@_bug("B2: a batch that runs again begins where the last one ended", "each output is there once", "everything arrives")
def _skipped() -> AbstractContextManager[Any]:
    return patch.object(running, "planned", _shifted_plan)


def _shifted_plan(checkpoint: Any, batch: int) -> Any:
    from anew.rebuild.jobs.checkpoint import planned

    made = planned(checkpoint, batch)
    end = {name: {p: max(0, offset - (p == 1)) for p, offset in of.items()} for name, of in made.end.items()}
    return replace(made, end=end)


@_bug("N1: a quiet partition begins where the log does", "each output is there once", often="rewind")
def _from_the_beginning() -> AbstractContextManager[Any]:
    def initial(self: Any) -> dict[str, Any]:
        made: dict[str, Any] = self._named(dict.fromkeys(self._reading.start, 0))
        return made

    return patch.object(source._Reader, "initialOffset", initial)


@_bug("B7: a partition that is added is not read", "everything arrives", often="grow")
def _not_read() -> AbstractContextManager[Any]:
    return patch.object(source, "present_partitions", lambda *of: present_partitions(*of)[:PARTITIONS])


@_bug(
    "B7: what a partition had when it was noticed is passed over",
    "each output is there once",
    "the last output is served",
    often="grow",
)
def _passed_over() -> AbstractContextManager[Any]:
    def known(start: Any, end: Any) -> Any:
        return [span for span in spans_between(start, end) if span.partition in start[span.input]]

    return patch.object(source, "spans_between", known)


@_bug(
    "R9: a job's feed is added to the version that serves alone",
    "every version has every feed",
    pushed=True,
)
def _one_version() -> AbstractContextManager[Any]:
    add = jobfeeds._with_feed

    def added(version: Any, feed: Any, start: Any) -> Any:
        return add(version, feed, start) if version.has({VersionStatus.CURRENT}) else version

    return patch.object(jobfeeds, "_with_feed", added)


@_bug("R9: a repush forgets the feeds of jobs", "a repush keeps its feeds", "replicas", "every version has every feed")
def _repush_forgets() -> AbstractContextManager[Any]:
    begin = lifecycle.begin

    def begun(store: Any, plan: Any, made: Any, now_ms: int) -> Any:
        kept = tuple(f.id for f in store.feeds_of(made) if f.kind is FeedKind.RT)
        return begin(store, plan, made.model_copy(update={"feeds": kept}), now_ms)

    return rebinding({begin: begun})


@_bug(
    "R9: a feed goes while versions apply it",
    "files are there",
    "everything arrives",
    often="drop_generation",
)
def _feed_goes() -> AbstractContextManager[Any]:
    def gone(self: Any, context: Any, name: str, where: str) -> Any:
        store = context.catalog.store(name)
        feed = None if store is None else store.feed(where)
        if feed is None:
            return ()
        target = f"{feed.topic}\n{feed.topic_uid}"
        note = Reclaim(f"{feed.topic_uid}/topic", "topic", feed.fabric, target, context.clock(), "")
        return (PutReclaim(note),)

    return patch.object(output.StoreOutput, "gone", gone)


@_bug("R2: a low-water mark forgets a generation", "low water", "truncation", often="repush")
def _forgotten_generation() -> AbstractContextManager[Any]:
    of = retention._low_water_of

    def marks(feed: Any, starts: Any, at_rewind: Any) -> Any:
        return of(feed, starts[-1:] if feed.kind is FeedKind.GENERATION else starts, at_rewind)

    return patch.object(retention, "_low_water_of", marks)


@_bug(
    "3.8: a version that follows is in the way of rebuilds",
    "what follows is in nobody's way",
    often="reprocess",
    pushed=False,
)
def _in_the_way() -> AbstractContextManager[Any]:
    return patch.object(displacing, "IN_THE_MAKING", IN_THE_MAKING | {VersionStatus.FOLLOWING})


@_bug(
    "3.8: a version that follows displaces what is made",
    "what follows is in nobody's way",
    often="reprocess",
    pushed=False,
)
def _displaces() -> AbstractContextManager[Any]:
    begin = following.begin_following

    def begun(store: Any, made: Any, ends: Any, now_ms: int) -> Any:
        after = begin(store, made, ends, now_ms)
        making = [version.number for version in store.versions if version.has(IN_THE_MAKING)]
        for number in making:
            after = lifecycle.end_badly(after, number, VersionEvent.KILL, "a rewind", now_ms)
        return after

    return patch.object(output, "begin_following", begun)


@_bug(
    "R12: a floor over the feed of a job that declares no lateness",
    "no floor over records that may be late",
    often="repush",
)
def _floor() -> AbstractContextManager[Any]:
    cut = floors.tombstone_cut_ms

    def without_jobs(store: Any, version: Any, feeds: Any, read_until_ms: int, now_ms: int, _to_come: Any) -> int:
        bare = store.model_copy(update={"feeds": tuple(f for f in store.feeds if f.kind is FeedKind.RT)})
        return cut(bare, version, [f for f in feeds if f.kind is FeedKind.RT], read_until_ms, now_ms, {})

    return rebinding({cut: without_jobs})


@_bug("R20: ties of a job's records are decided by the log's offset", "replicas", often="stall_task", pushed=False)
def _by_offset() -> AbstractContextManager[Any]:
    def rows(feed: Any, found: Any, identities: Any) -> Any:
        given = identities._replace(batch=np.zeros_like(identities.batch), sequence=found.column("offset").to_numpy())
        return of_job(feed, found, given)

    of_job = admission._rows_of_job
    return patch.object(admission, "_rows_of_job", rows)


@_bug("R20: every driver has the same epoch", "each output is there once", often="crash")
def _one_epoch() -> AbstractContextManager[Any]:
    numbered = identity.sequences
    return rebinding({numbered: lambda _epoch, attempt, first, count: numbered(2, attempt, first, count)})


@_bug("R20: a job of the same name begins at generation 1", "generation numbers", often="remake_job")
def _numbers_again() -> AbstractContextManager[Any]:
    # The names of topics, which say the generation, would keep it from happening.
    numbers = itertools.count(1)
    named = patch.object(jobfeeds, "generation_topic", lambda store, origin: f"{store}-{origin.name}-{next(numbers)}")
    return both(named, patch.object(MemoryJobs, "next_generation", lambda *_: 1))


@_bug("E7: a cut-over leaves the store as it is", "the live generation serves", often="reprocess")
def _not_cut() -> AbstractContextManager[Any]:
    return patch.object(output.StoreOutput, "cut_over", lambda *_: ())


@_bug("D1: a rewind in place begins anywhere", "nothing is passed over", often="in_place", pushed=False)
def _begins_anywhere() -> AbstractContextManager[Any]:
    return patch.object(inplace, "_check_nothing_passed", lambda *_: None)


@_bug("R26: any function is rewound in place", "what is written again takes its place", often="in_place", pushed=False)
def _any_shape() -> AbstractContextManager[Any]:
    return patch.object(inplace, "why_code_leaves", lambda *_: None)


@_bug("R16: a job begins in another store of the name", "a job keeps to its store", often="begin_late")
def _other_store() -> AbstractContextManager[Any]:
    # The store of a job is not deleted either; a job that is made meanwhile is not seen by that.
    unused = rebinding({uses.check_store_unused: lambda *_: None})
    return both(unused, patch.object(job_planning, "_check_output", lambda *_: None))


@_bug("C7: whatever ends a driver ends its generation", "a generation goes on", often="crash")
def _all_for_good() -> AbstractContextManager[Any]:
    return patch.object(driving, "is_for_good", lambda _: True)
