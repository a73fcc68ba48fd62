"""Records that generations of a job left out: listed, and given to their topics again.

A replay appends each record at the end of the partition where it lies, with its key and the time at which it was
written: the generations that follow the topic process it with their own functions, and its time decides against
anything younger (rule R20). Of two results of one time the later one counts, and a replayed record comes late: where a
record behind it has its key and its time, which decided until now, it gets a millisecond less.

1. The dead letters are read that were not replayed, and their records in the logs.
2. The records are appended. A crash after it: they are appended once more by the next replay, which changes nothing.
3. That they were replayed is noted in the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anew.api.jobs.requests import ReplayDeadLetters
from anew.api.jobs.views import DeadLetterView, ReplayAnswer
from anew.api.pages import Page, page_of
from anew.catalog.change import NoteReplayed
from anew.codec.jsonvalue import is_json_object
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.core.arrow import concat
from anew.core.errors import Failed, InvalidRequest, Refused
from anew.core.identity import split_identities
from anew.core.jobs.deadletters import MOST_LETTERS, KeptLetter, LetterPlace
from anew.core.jobs.generation import Generation
from anew.core.jobs.inputs import JobInput
from anew.core.jobs.job import Job
from anew.core.topics.topic import TopicFormat
from anew.log.interface import APPEND_RECORDS, RAW_APPEND, Log, TopicPartition, identified
from anew.log.through import read_through

_WRITTEN = "written_ms"
_MOST_LOOKED_THROUGH = 2_000_000
"""Records behind a dead letter: with more of them it is taken to be not the last one of its time."""
_PLACE = re.compile(r"(?P<generation>\d{1,9}):(?P<input>\w{1,200}):(?P<partition>\d{1,9}):(?P<offset>\d{1,18})")


def dead_letter_page(
    context: Context, job: Job, generation: int | None, after: str | None, limit: int
) -> Page[DeadLetterView]:
    """Some of the records that a generation of a job, or any, has left out, the next ones by place.

    Raises:
        NotFound: ``unknown_generation``.
        InvalidRequest: ``bad_page_key``.
    """
    if generation is not None:
        job.generation(generation)
    place = None if after is None else _place_of(after)
    found = context.catalog.job_dead_letters(job.uid, generation, place, limit + 1)
    return page_of([_view(job, each) for each in found], limit, _key)


def replay(context: Context, job: Job, request: ReplayDeadLetters, actor: str) -> ReplayAnswer:
    """Give the records of some dead letters of a generation to their topics again, those that were not yet.

    Raises:
        NotFound: ``unknown_generation``.
        Refused: ``which_generation``; ``replay_of_output``: a job wrote the record; ``replay_would_win``: a topic
            keeps no write times, and ``as_new`` is not said; what the log refuses.
        InvalidRequest: ``bad_page_key``.
        Unreachable, OutcomeUnknown: Of the log: nothing, or not all, is noted, and may be replayed again.
    """
    generation = _chosen(context, job, request.generation)
    place = None if request.after is None else _place_of(request.after)
    found = context.catalog.job_dead_letters(job.uid, generation.number, place, request.limit + 1)
    letters = [each for each in found[: request.limit] if each.replayed_at_ms is None]
    inputs = {of.name: of for of in generation.inputs}
    if not request.as_new:
        _check_times(
            f"{job.name}@{generation.number}",
            [inputs[name] for name in sorted({each.letter.input for each in letters})],
        )
    said = _Replay(context, job.name)
    for letter in letters:
        said.take(inputs[letter.letter.input], letter)
    for at, records in said.waiting.items():
        said.append(at, records)
    if said.places:
        operation = context.operation(
            "replay dead letters", job.name, actor, generation=generation.number, records=len(said.places)
        )
        commit(context, operation, NoteReplayed(job.uid, tuple(said.places), context.clock()))
    return ReplayAnswer(
        job=job.name,
        generation=generation.number,
        replayed=len(said.places),
        gone=said.gone,
        unreadable=said.unreadable,
        next=_key_of(found[request.limit - 1].place) if len(found) > request.limit else None,
    )


@dataclass(slots=True)
class _Replay:
    """Records on their way back into their topics."""

    context: Context
    job: str
    waiting: dict[tuple[str, TopicPartition], list[tuple[int, pa.RecordBatch]]] = field(default_factory=dict)
    places: list[LetterPlace] = field(default_factory=list)
    gone: int = 0
    unreadable: int = 0

    def take(self, of: JobInput, kept: KeptLetter) -> None:
        """Read the record of a dead letter, if the log still has it."""
        letter, log = kept.letter, self.context.fabrics[of.fabric].log
        at = TopicPartition(of.topic, of.topic_uid, letter.partition, of.key_schema_id)
        found = _record(log, at, of, letter.offset)
        if found is None:
            self.gone += 1
        elif _is_unreadable(of, found):
            self.unreadable += 1
        elif _is_of_a_job(found):
            raise Refused(
                "replay_of_output",
                f"records of {of.topic} were written by a job: whether one counts is said by the record of its batch",
                found=f"partition {letter.partition}, offset {letter.offset}",
                expected="a topic that no job writes into",
                hint=f"mend the function and rewind: anew job rewind {self.job}",
            )
        else:
            self.waiting.setdefault((of.fabric, at), []).append((letter.offset, _again(of, found)))
            self.places.append(kept.place)

    def append(self, where: tuple[str, TopicPartition], records: Sequence[tuple[int, pa.RecordBatch]]) -> None:
        """Append records to their partition, in their order; each with the offset that it had."""
        fabric, at = where
        log, together = self.context.fabrics[fabric].log, concat([record for _, record in records])
        if together.schema.names != APPEND_RECORDS.names:
            log.append_raw(at, identified(together))
            return
        behind = _behind_ties(log, at, together, [offset for offset, _ in records])
        times = pc.subtract(together.column(_WRITTEN), pa.array(behind).cast(pa.int64()))
        together = together.set_column(APPEND_RECORDS.get_field_index(_WRITTEN), APPEND_RECORDS.field(_WRITTEN), times)
        log.append(at, identified(together))


def _record(log: Log, at: TopicPartition, of: JobInput, offset: int) -> pa.RecordBatch | None:
    """The record at an offset, as the log gives it; None: it is not there any more."""
    read = log.read if of.format is TopicFormat.AVRO else log.read_raw
    try:
        held = log.offsets(at)
        if not held.begin <= offset < held.end:
            return None
        records = read(at, offset, 1, offset + 1).records
    except Failed as error:
        if error.code in ("topic_lost", "offset_out_of_range"):
            return None
        raise
    return records if records.num_rows and records.column("offset")[0].as_py() == offset else None


def _is_of_a_job(record: pa.RecordBatch) -> bool:
    if "origin" not in record.schema.names:
        return False
    origins: Any = record.column("origin")
    return bool(split_identities(origins).batch[0] >= 0)


def _is_unreadable(of: JobInput, record: pa.RecordBatch) -> bool:
    """Whether it is not of its topic's format, so that it would be a dead letter again."""
    if of.format is TopicFormat.AVRO:
        return bool(record.column("flaw")[0].as_py())
    value = record.column("value")[0].as_py()
    return of.format is TopicFormat.JSON and value is not None and not is_json_object(value)


def _behind_ties(log: Log, at: TopicPartition, records: pa.RecordBatch, offsets: Sequence[int]) -> list[bool]:
    """Which records are not the last ones of their key and time in their partition, or may not be.

    Args:
        log: Where they lie.
        at: Their partition.
        records: As they are to be appended.
        offsets: Where they lie.
    """
    held, first = log.offsets(at), min(offsets) + 1
    begin, end = max(first, held.begin), min(held.end, first + _MOST_LOOKED_THROUGH)
    keys = pa.array(records.column("key").to_pylist(), pa.binary())
    last = dict[tuple[Any, Any], Any]()
    for read in read_through(log, at, begin, end):
        found = read.records.filter(pc.is_in(read.records.column("key"), value_set=keys))
        times = pc.coalesce(found.column(_WRITTEN), found.column("appended_ms")).to_pylist()
        placed = zip(found.column("key").to_pylist(), times, strict=True)
        last.update(zip(placed, found.column("offset").to_pylist(), strict=True))
    named = zip(keys.to_pylist(), records.column(_WRITTEN).to_pylist(), offsets, strict=True)
    return [end < held.end or last.get((key, time), -1) > offset for key, time, offset in named]


def _again(of: JobInput, record: pa.RecordBatch) -> pa.RecordBatch:
    """A record as it is appended again: with its key, and where the format has it with the time of its writing."""
    if of.format is not TopicFormat.AVRO:
        raw: list[Any] = [record.column("key"), record.column("value"), pa.nulls(1, pa.int64())]
        return pa.RecordBatch.from_arrays(raw, schema=RAW_APPEND)
    columns: list[Any] = [
        pc.coalesce(record.column(_WRITTEN), record.column("appended_ms")),
        pa.array([b""], pa.binary()),
        record.column("key"),
        record.column("schema_id"),
        record.column("value"),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=APPEND_RECORDS)


def _check_times(which: str, inputs: Sequence[JobInput]) -> None:
    """Raise where a record would get the time of now: it would win over what was written since."""
    without = [of.topic for of in inputs if of.format is not TopicFormat.AVRO]
    if without:
        raise Refused(
            "replay_would_win",
            "records of these topics have no time of their own: replayed, they are as new",
            found=", ".join(without),
            expected="records of the format avro, whose times decide against what is younger",
            hint=f"if nothing was written under their keys since: anew job dead-letters {which} --replay --as-new",
        )


def _chosen(context: Context, job: Job, number: int | None) -> Generation:
    if number is not None:
        return job.generation(number)
    found = context.catalog.job_dead_letters(job.uid, None, None, MOST_LETTERS * len(job.generations) + 1)
    waiting = sorted({each.generation for each in found if each.replayed_at_ms is None})
    if len(waiting) == 1:
        return job.generation(waiting[0])
    raise Refused(
        "which_generation",
        f"{job.name} has not one generation with dead letters that were not replayed",
        found=", ".join(map(str, waiting)) or "none",
        expected="the number of one",
        hint=f"anew job dead-letters {job.name}; then {job.name}@N",
    )


def _view(job: Job, kept: KeptLetter) -> DeadLetterView:
    of = next(each for each in job.generation(kept.generation).inputs if each.name == kept.letter.input)
    return DeadLetterView(
        generation=kept.generation,
        fabric=of.fabric,
        topic=of.topic,
        topic_uid=of.topic_uid,
        batch=kept.batch,
        at_ms=kept.at_ms,
        replayed_at_ms=kept.replayed_at_ms,
        **kept.letter.model_dump(),
    )


def _key(view: DeadLetterView) -> str:
    return _key_of((view.generation, view.input, view.partition, view.offset))


def _key_of(place: LetterPlace) -> str:
    return ":".join(map(str, place))


def _place_of(text: str) -> LetterPlace:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            "bad_page_key", "this is no key of a page", found=text, expected="GENERATION:INPUT:PARTITION:OFFSET"
        )
    return int(match["generation"]), match["input"], int(match["partition"]), int(match["offset"])
