"""How old the records may be that a generation has yet to write (rule R12).

A job declares how far their times may lie behind the moment at which the log got what they are made of. What a
generation has not read yet was appended at or after the first record behind its last batch: however long it was
stopped, and however far back in history it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from anew.controller.engine.context import Context
from anew.controller.jobs.planning import held_of
from anew.controller.jobs.records import position_of, silent_outputs
from anew.controller.jobs.starting import time_at
from anew.core.errors import AnewError
from anew.core.feed import Feed
from anew.core.jobs.generation import Generation
from anew.core.jobs.inputs import JobInput, Offsets, next_offset
from anew.core.jobs.job import Job
from anew.core.moment import LAST_MS
from anew.core.stamp import Origin
from anew.log.interface import TopicPartition, present_partitions


def to_come_ms(context: Context, feeds: Sequence[Feed]) -> dict[str, int]:
    """Feed of a job → no record that will still come into it has an earlier time, of those where that is known.

    Nothing is known where the job declares no lateness, or is not there any more. Nothing comes where all generations
    of the feed are over; the next one has a feed of its own. Nor is anything known where records of the job's inputs
    were left out, or may be: these may be given to their topics again with their old times; where a function keeps
    state, whose rows may be as old as what it remembers; nor where a log does not answer.
    """
    silent, found = silent_outputs(context) if feeds else frozenset[str](), dict[str, int]()
    for feed in feeds:
        with suppress(AnewError):
            at_ms = _to_come_ms(context, feed, silent)
            found |= {} if at_ms is None else {feed.id: at_ms}
    return found


def _to_come_ms(context: Context, feed: Feed, silent: Collection[str]) -> int | None:
    job = context.catalog.job(Origin.decode(feed.origin_bytes).name)
    if job is None or job.max_lateness_ms is None:
        return None
    if feed.id in silent:
        return LAST_MS
    if _may_come_again(context, job):
        return None
    writers = [each for each in job.generations if each.writes_to == feed.id and not each.over]
    if any(_may_remember(each) for each in writers):
        return None
    unread_ms = [_unread_ms(context, job, each, feed.skew_limit_ms) for each in writers]
    known_ms = [each for each in unread_ms if each is not None]
    if not known_ms or len(known_ms) < len(unread_ms):
        return None
    return min(known_ms) - job.max_lateness_ms


def _may_remember(generation: Generation) -> bool:
    """Whether a generation may keep state: it is known to, or nobody has looked."""
    return not generation.stateless and (generation.code.shape is None or bool(generation.code.state))


def _may_come_again(context: Context, job: Job) -> bool:
    """Whether records of a job's inputs were left out, or may be, by whichever job reads them too."""
    topics = set(job.inputs.values())
    for other in (*context.catalog.jobs(), *context.catalog.deleted_jobs()):
        if topics.isdisjoint(other.inputs.values()):
            continue
        if any(each.most_dead_letters > 0 and not each.over for each in other.generations):
            return True
        if context.catalog.job_dead_letters(other.uid, None, None, 1):
            return True
    return False


def _unread_ms(context: Context, job: Job, generation: Generation, skew_ms: int) -> int | None:
    """What a generation has not read was appended at that time, or later; None: nobody can say."""
    # Before the ends: what comes meanwhile gets a later time, by whatever clock within the skew.
    found = [context.clock() - skew_ms]
    position = position_of(context, job, generation)
    for of in generation.inputs:
        first_ms = _first_ms(context, of, position.get(of.name, {}))
        if first_ms is None:
            return None
        found += [each - skew_ms for each in first_ms]
    return min(found)


def _first_ms(context: Context, of: JobInput, position: Offsets) -> list[int] | None:
    """When the first record behind a position was appended, of each partition that has one; None: nobody can say."""
    found = []
    log = context.fabrics[of.fabric].log
    # Before the ends: where the log is further than its end then, a transaction of another program is open. What it
    # holds was appended nobody knows when, and will be read once it is over.
    written = {at.partition: log.next_offset(at) for at in present_partitions(log, of.topic, of.topic_uid)}
    for partition, held in held_of(context, of).items():
        offset = next_offset(position, partition)
        if offset >= held.end:
            if written.get(partition, held.end) > held.end:
                return None
            continue
        place = TopicPartition(of.topic, of.topic_uid, partition)
        at_ms = time_at(log, place, offset)
        if at_ms is None:
            return None
        found.append(at_ms)
    return found
