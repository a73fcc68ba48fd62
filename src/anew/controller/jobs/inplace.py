"""A rewind in the live generation's place, a *simple* one: what it cannot take back, and where it must be parallel.

It goes on in what the live generation wrote. In an output by keys it takes the place of what it writes again alone, and
only with a time that is not lower (rule R26); where a version has forgotten deletes, what is older than these is turned
away (rule R12). Either asks for a new version, which a parallel rewind makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anew.controller.engine.context import Context
from anew.controller.jobs.records import position_of
from anew.core.errors import Refused
from anew.core.jobs.code import JobCode
from anew.core.jobs.deadletters import SKIP, OnBadRecord
from anew.core.jobs.generation import Generation
from anew.core.jobs.inputs import JobInput, Offsets, next_offset, topics_of
from anew.core.jobs.job import Job
from anew.core.jobs.leftovers import why_code_leaves
from anew.core.moment import utc_text
from anew.log.interface import TopicPartition


@dataclass(frozen=True, slots=True)
class SimpleRewind:
    """Which records a simple rewind would read again, and what it does with bad ones."""

    inputs: tuple[JobInput, ...]
    start: Mapping[str, Offsets]
    on_bad_record: OnBadRecord


def check_simple(context: Context, job: Job, code: JobCode, rewind: SimpleRewind) -> tuple[str, ...]:
    """Raise where a rewind must be parallel, or would pass records over.

    Returns:
        What its plan says of what it cannot take back, a line each.

    Raises:
        Refused: ``nothing_live``; ``must_be_parallel``, with the reason; ``start_behind_live``.
        Unreachable: A log does not answer.
    """
    live = job.live_generation()
    _check_nothing_passed(context, job, rewind)
    output = context.outputs.of_kind(job.output.kind)
    if not output.by_key:
        return (f"who follows {live.writes_to.partition('#')[0]} gets the results again, behind those of before",)
    made_again = topics_of(rewind.inputs).items() - topics_of(live.inputs).items()
    if made_again:
        raise _must_be_parallel(job, f"what came of the topics of before would stay: {sorted(dict(made_again))}")
    for before in job.line():
        why = why_code_leaves(before.code, code)
        if why is not None and _reads_again(context, job, before, rewind):
            found = f"of {job.name}@{before.number} what it does not write again would stay (rule R26): {why}"
            raise _must_be_parallel(job, found)
    floor_ms = output.floor_ms(context, job.output.name)
    # What was appended so long after the floor may be dated before it.
    below = _below(context, rewind, floor_ms + (job.max_lateness_ms or 0)) if floor_ms > 0 else None
    if below is not None:
        raise _must_be_parallel(job, f"{job.output} would turn old records away (rule R12): {below}")
    if rewind.on_bad_record == SKIP:
        return ("a record that is left out keeps what was written of it before",)
    return ()


def _check_nothing_passed(context: Context, job: Job, rewind: SimpleRewind) -> None:
    """Raise where a start lies behind what the live generation has read: nobody would read what is between (case D1).

    A live generation that runs reads on until it is stopped, so that what it has read now is enough.

    Raises:
        Refused: ``start_behind_live``.
    """
    live = job.live_generation()
    reached, topics = position_of(context, job, live), topics_of(live.inputs)
    for of in rewind.inputs:
        # Of a topic that was made again nothing was read.
        read = reached.get(of.name, {}) if topics.get(of.name) == of.topic_uid else {}
        for partition, offset in sorted(rewind.start[of.name].items()):
            if offset > next_offset(read, partition):
                raise Refused(
                    "start_behind_live",
                    f"{job.name}@{live.number} has not come as far as that in partition {partition} of {of.name}",
                    found=f"offset {offset}",
                    expected=f"at most {next_offset(read, partition)}: what lies between would be read by nobody",
                    hint=f"an earlier start; or go on where it ended: anew job deploy {job.name}",
                )


def _reads_again(context: Context, job: Job, before: Generation, rewind: SimpleRewind) -> bool:
    """Whether a rewind reads records that a generation has read; of one whose batches are forgotten nobody knows."""
    if not context.catalog.batches(job.uid, before.number, 1) and before.is_begun:
        return True
    reached = position_of(context, job, before)
    return any(
        next_offset(reached.get(name, {}), partition) > offset
        for name, of in rewind.start.items()
        for partition, offset in of.items()
    )


def _below(context: Context, rewind: SimpleRewind, until_ms: int) -> str | None:
    """Where the records begin that were appended before a time, and may be older than a floor; None: there are none."""
    for of in rewind.inputs:
        log = context.fabrics[of.fabric].log
        for partition, offset in sorted(rewind.start[of.name].items()):
            first = log.offset_for_time(TopicPartition(of.topic, of.topic_uid, partition), until_ms)
            if offset < first:
                return (
                    f"partition {partition} of {of.topic} from offset {offset} on; deletes were forgotten that records"
                    f" appended before {utc_text(until_ms)} may be older than, which is offset {first}"
                )
    return None


def _must_be_parallel(job: Job, found: str) -> Refused:
    return Refused(
        "must_be_parallel",
        f"{job.name} cannot be rewound in place: {job.output} would not hold what the function makes of its inputs",
        found=found,
        expected="a function that writes all that was written before again, with times that are not lower",
        hint=f"anew job rewind {job.name} FUNCTION --parallel",
    )
