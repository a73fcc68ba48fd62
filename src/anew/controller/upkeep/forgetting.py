"""What the catalog forgets when its retention has ended, some rows at a time.

A row goes only when nothing depends on it. The id of a request whose rebuild runs stays, and so does a rebuild that a
request, a version or a segment names. A dead letter stays until it was set aside and no version reads it any more. A
deleted store, table or job goes last, when all that belonged to it has been reclaimed; the name of a store keeps its
version numbers (rule R16), that of a job its generation numbers (rule R20).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import structlog

from anew.catalog.change import Put, Reclaim
from anew.catalog.forget import (
    DropJob,
    DropStore,
    DropTable,
    DropTopic,
    Forget,
    ForgetDeadLetters,
    ForgetHistory,
    ForgetPastVersions,
    ForgetRebuilds,
    ForgetRebuildsOf,
    ForgetRequests,
    ForgetSegments,
)
from anew.controller.engine.apart import Apart
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import forget_failure
from anew.core.jobs.generation import GenerationStatus
from anew.core.jobs.job import Job
from anew.core.jobs.rebuild import JOB
from anew.core.moment import utc_text
from anew.core.rebuild import SubjectId
from anew.core.stores.rebuild import STORE
from anew.core.stores.store import Store
from anew.core.tables.rebuild import TABLE
from anew.core.tables.table import Table
from anew.core.topics.topic import Topic

MOST_AT_ONCE = 1_000
"""How many rows of a kind one transaction removes."""
_EVERY_MS = 3_600_000
_ALL = 1 << 40
_EVER_MS = 1 << 60
_LOG = structlog.get_logger("anew.controller")


@dataclass(frozen=True, slots=True)
class Due:
    """Something that the catalog is to forget, or that waits for it.

    Attributes:
        what: ``history``, ``requests``, ``rebuilds``, ``past versions``, ``dead letters``, ``deleted store``,
            ``deleted table``, ``deleted topic`` or ``deleted job``.
        subject: The store, table, topic or job that it is of, empty where it is of all.
        why: The reason, or what it waits for.
        count: How many rows.
        puts: What removes some of them; none where it waits.
    """

    what: str
    subject: str
    why: str
    count: int
    puts: tuple[Put, ...] = ()


@dataclass(slots=True)
class Forgetting:
    """Forgets, every hour, in as many rounds as it takes.

    Attributes:
        context: The controller's collaborators.
    """

    context: Context
    _at_ms: int = 0

    def step(self, apart: Apart) -> None:
        """Forget some of what is due; the next round goes on where rows are left."""
        now_ms = self.context.clock()
        if now_ms - self._at_ms < _EVERY_MS:
            return
        with apart.step("upkeep of the catalog"):
            if _forget_some(self.context, "controller"):
                self._at_ms = now_ms


def forget_all(context: Context, actor: str) -> None:
    """Forget all that is due now, some rows after the other."""
    while not _forget_some(context, actor):
        pass


def _forget_some(context: Context, actor: str) -> bool:
    """Forget some rows of each kind, a transaction for each; whether none is left that is due."""
    is_done = True
    for due in _dues(context, MOST_AT_ONCE, named_from_ms=0):
        if due.puts:
            operation = context.operation("forget", due.subject or "cluster", actor, kind=due.what, rows=due.count)
            commit(context, operation, *due.puts)
            _LOG.info("forgotten", kind=due.what, of=due.subject, rows=due.count, why=due.why)
        is_done = is_done and due.count < MOST_AT_ONCE
    return is_done


def counted(context: Context) -> list[Due]:
    """All that is due now with whole counts, and what of deleted stores and tables waits and for what."""
    # The requests that are due go first: what they name goes with them.
    return list(_dues(context, _ALL, _before_ms(context, context.limits.row_retention.request)))


def _dues(context: Context, most: int, named_from_ms: int) -> Iterator[Due]:
    """What is due, at most so many rows of a kind; requests from ``named_from_ms`` on keep the rebuilds they name."""
    for what, seconds, forget in _of_all(context, most):
        count = context.catalog.forgettable(forget)
        if count:
            yield Due(what, "", f"older than {seconds} s", count, (forget,))
    yield from _rebuilds(context, most, named_from_ms)
    yield from _letters(context, most)
    reclaims = context.catalog.reclaims(None)
    for store in context.catalog.deleted_stores():
        rebuilds = ForgetRebuildsOf(store.uid, most, named_from_ms)
        yield from _deleted_store(context, store, reclaims, rebuilds)
    for table in context.catalog.deleted_tables():
        rebuilds = ForgetRebuildsOf(table.uid, most, named_from_ms)
        yield from _deleted_table(context, table, reclaims, rebuilds)
    for topic in context.catalog.deleted_topics():
        yield _deleted_topic(context, topic, reclaims)
    for job in context.catalog.deleted_jobs():
        yield from _deleted_job(context, job, reclaims, ForgetRebuildsOf(job.uid, most, named_from_ms))


def _of_all(context: Context, most: int) -> list[tuple[str, int, Forget]]:
    kept = context.limits.row_retention
    return [
        ("history", kept.history, ForgetHistory(_before_ms(context, kept.history), most)),
        ("requests", kept.request, ForgetRequests(_before_ms(context, kept.request), most)),
        ("past versions", kept.past_version, ForgetPastVersions(_before_ms(context, kept.past_version), most)),
    ]


def _before_ms(context: Context, seconds: int) -> int:
    return context.clock() - seconds * 1000


def _rebuilds(context: Context, most: int, named_from_ms: int) -> Iterator[Due]:
    kept = context.limits.row_retention
    seconds = max(kept.rebuild, kept.request)
    ids = tuple(islice(context.catalog.unnamed_rebuilds(_before_ms(context, seconds), named_from_ms), most))
    if ids:
        yield Due("rebuilds", "", f"ended, and older than {seconds} s", len(ids), (ForgetRebuilds(ids),))


def _letters(context: Context, most: int) -> Iterator[Due]:
    seconds = context.limits.row_retention.dead_letter
    for uid in sorted(context.catalog.dead_letter_counts()):
        store = context.catalog.store_by_uid(uid)
        below = None if store is None or store.deleted_at_ms is not None else _read_from(store)
        wanted = ForgetDeadLetters(_before_ms(context, seconds), most, uid, below)
        count = context.catalog.forgettable(wanted)
        if count:
            why = f"set aside, below what any version reads, and older than {seconds} s"
            yield Due("dead letters", uid if store is None else store.name, why, count, (wanted,))


def _read_from(store: Store) -> dict[tuple[str, int], int]:
    """Feed and partition → the offset below which no version reads."""
    return {
        (feed.id, partition): low_water for feed in store.feeds for partition, low_water in enumerate(feed.low_water)
    }


def _deleted_store(
    context: Context, store: Store, reclaims: list[Reclaim], rebuilds: ForgetRebuildsOf
) -> Iterator[Due]:
    owned = (store.uid, *(feed.topic_uid for feed in store.feeds))
    waits = _waits(context, store, owned, reclaims)
    if waits is None and context.catalog.dead_letter_counts(waiting=True).get(store.uid):
        waits = "dead letters of it were not set aside"
    if waits is not None:
        yield Due("deleted store", store.name, waits, 1)
        return
    of_it: dict[str, Forget] = {
        "past versions": ForgetPastVersions(_EVER_MS, rebuilds.most, store.uid),
        "dead letters": ForgetDeadLetters(_EVER_MS, rebuilds.most, store.uid, None),
        "rebuilds": rebuilds,
    }
    rows = _rows_of(context, store.name, of_it)
    yield from rows
    if any(due.count >= rebuilds.most for due in rows):
        return
    drop: tuple[Put, ...] = (DropStore(store.uid, store.revision),)
    if context.catalog.store(store.name) is None:
        drop += (forget_failure(SubjectId(STORE, store.uid, store.name)),)
    yield Due("deleted store", store.name, f"deleted at {utc_text(store.deleted_at_ms or 0)}", 1, drop)


def _rows_of(context: Context, name: str, of_it: dict[str, Forget]) -> list[Due]:
    """What goes of one that was deleted, before it goes itself."""
    counted = {what: context.catalog.forgettable(wanted) for what, wanted in of_it.items()}
    return [Due(what, name, f"{name} was deleted", count, (of_it[what],)) for what, count in counted.items() if count]


def _deleted_table(
    context: Context, table: Table, reclaims: list[Reclaim], rebuilds: ForgetRebuildsOf
) -> Iterator[Due]:
    waits = _waits(context, table, (table.uid,), reclaims)
    if waits is not None:
        yield Due("deleted table", table.name, waits, 1)
        return
    of_it: dict[str, Forget] = {
        "segments": ForgetSegments(table.uid, rebuilds.most),
        "rebuilds": rebuilds,
    }
    rows = _rows_of(context, table.name, of_it)
    yield from rows
    if any(due.count >= rebuilds.most for due in rows):
        return
    drop: tuple[Put, ...] = (DropTable(table.uid, table.revision),)
    if context.catalog.table(table.name) is None:
        drop += (forget_failure(SubjectId(TABLE, table.uid, table.name)),)
    yield Due("deleted table", table.name, f"deleted at {utc_text(table.deleted_at_ms or 0)}", 1, drop)


def _deleted_topic(context: Context, topic: Topic, reclaims: list[Reclaim]) -> Due:
    waits = _waits(context, topic, (topic.uid,), reclaims)
    if waits is not None:
        return Due("deleted topic", topic.name, waits, 1)
    drop = DropTopic(topic.uid, topic.revision)
    return Due("deleted topic", topic.name, f"deleted at {utc_text(topic.deleted_at_ms or 0)}", 1, (drop,))


def _deleted_job(context: Context, job: Job, reclaims: list[Reclaim], rebuilds: ForgetRebuildsOf) -> Iterator[Due]:
    waits = _waits(context, job, (job.uid,), reclaims) or _of_generations(context, job)
    if waits is not None:
        yield Due("deleted job", job.name, waits, 1)
        return
    rows = _rows_of(context, job.name, {"rebuilds": rebuilds})
    yield from rows
    if any(due.count >= rebuilds.most for due in rows):
        return
    drop: tuple[Put, ...] = (DropJob(job.uid, job.revision),)
    if context.catalog.job(job.name) is None:
        drop += (forget_failure(SubjectId(JOB, job.uid, job.name)),)
    yield Due("deleted job", job.name, f"deleted at {utc_text(job.deleted_at_ms or 0)}", 1, drop)


def _of_generations(context: Context, job: Job) -> str | None:
    """What a deleted job's generations have left: what counts in a topic is known for as long as the topic is there."""
    topics = {topic.identity: topic.name for topic in context.catalog.topics()}
    for generation in job.generations:
        if generation.status is not GenerationStatus.RECLAIMED:
            return f"generation {generation.number} of it has not been reclaimed"
        if generation.writes_to in topics:
            return f"what counts in the topic {topics[generation.writes_to]} is kept for as long as that is there"
    return None


def _waits(
    context: Context, of: Store | Table | Topic | Job, owned: tuple[str, ...], reclaims: list[Reclaim]
) -> str | None:
    """What a deleted store, table, topic or job waits for, None for nothing."""
    kept = context.limits.row_retention
    # A request that made it is told so for as long as its id is kept.
    until_ms = (of.deleted_at_ms or 0) + max(kept.deleted, kept.request) * 1000
    if context.clock() < until_ms:
        return f"deleted; its identity is kept until {utc_text(until_ms)}"
    left = next((r.id for r in reclaims if any(uid in r.id or uid in r.target for uid in owned)), None)
    if left is not None:
        return f"{left} has not been reclaimed"
    return "a rebuild of it has not ended" if context.catalog.rebuilds(subject_uid=of.uid, running_only=True) else None
