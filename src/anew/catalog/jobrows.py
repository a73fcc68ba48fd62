"""Jobs and the records of their batches as rows: for `anew.catalog.database`."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from anew.catalog import rebuildrows
from anew.catalog.change import DropBatches, JobPut, NoteReplayed, PutBatch, PutJob, PutRestoredJob
from anew.catalog.conflicts import check_swapped
from anew.catalog.engine import Database
from anew.catalog.forget import DropJob
from anew.catalog.tables import BATCHES, COUNTERS, JOB_DEAD_LETTERS, JOBS, REBUILDS
from anew.core.jobs.batch import BatchRecord, check_next
from anew.core.jobs.deadletters import DeadLetter, KeptLetter, LetterPlace
from anew.core.jobs.job import Job, name_taken
from anew.core.jobs.rebuild import check_recorder


class DatabaseJobs:
    """The part of `anew.catalog.database.DatabaseCatalog` that is about jobs; see `anew.catalog.interface`."""

    _database: Database

    def job(self, name: str) -> Job | None:
        """See `JobsCatalog.job`."""
        return next(iter(self._jobs(JOBS.c.live_name == name)), None)

    def job_by_uid(self, uid: str) -> Job | None:
        """See `JobsCatalog.job_by_uid`."""
        return next(iter(self._jobs(JOBS.c.uid == uid)), None)

    def jobs(self) -> list[Job]:
        """See `JobsCatalog.jobs`."""
        return self._jobs(JOBS.c.live_name.is_not(None))

    def deleted_jobs(self) -> list[Job]:
        """See `JobsCatalog.deleted_jobs`."""
        return self._jobs(JOBS.c.live_name.is_(None))

    def jobs_page(self, after: str, limit: int) -> list[Job]:
        """See `JobsCatalog.jobs_page`."""
        query = sa.select(JOBS.c.document).where(JOBS.c.live_name > after).order_by(JOBS.c.live_name).limit(limit)
        return self._database.read(lambda connection: _parsed(connection, query))

    def put_batch(self, put: PutBatch) -> None:
        """See `JobsCatalog.put_batch`."""
        self._database.write(lambda connection: apply(connection, put))

    def batches(self, job_uid: str, generation: int, limit: int) -> list[BatchRecord]:
        """See `JobsCatalog.batches`."""
        return self._database.read(lambda connection: _last(connection, job_uid, generation, limit))

    def batches_from(self, job_uid: str, generation: int, first: int, limit: int) -> list[BatchRecord]:
        """See `JobsCatalog.batches_from`."""
        return self._database.read(lambda connection: _from(connection, job_uid, generation, first, limit))

    def job_dead_letters(
        self, job_uid: str, generation: int | None, after: LetterPlace | None, limit: int
    ) -> list[KeptLetter]:
        """See `JobsCatalog.job_dead_letters`."""
        row = JOB_DEAD_LETTERS.c
        query = sa.select(JOB_DEAD_LETTERS).where(row.job_uid == job_uid)
        if generation is not None:
            query = query.where(row.generation == generation)
        if after is not None:
            query = query.where(sa.tuple_(*_place(row)) > sa.tuple_(*after))
        chosen = query.order_by(*_place(row)).limit(limit)
        return self._database.read(lambda connection: [_letter(found) for found in connection.execute(chosen)])

    def job_dead_letter_counts(self, job_uid: str) -> dict[int, int]:
        """See `JobsCatalog.job_dead_letter_counts`."""
        row = JOB_DEAD_LETTERS.c
        query = sa.select(row.generation, sa.func.count()).where(row.job_uid == job_uid).group_by(row.generation)
        return self._database.read(lambda connection: {int(of): int(n) for of, n in connection.execute(query)})

    def next_generation(self, name: str) -> int:
        """See `JobsCatalog.next_generation`."""
        found = self._jobs(JOBS.c.name == name)
        kept = self._database.read(lambda connection: _kept_number(connection, name))
        return max([kept, *(job.next_generation for job in found)])

    def _jobs(self, condition: sa.ColumnElement[bool]) -> list[Job]:
        found = self._database.read(lambda connection: _parsed(connection, sa.select(JOBS.c.document).where(condition)))
        return sorted(found, key=lambda job: job.name)


def apply(connection: sa.Connection, put: JobPut) -> None:
    """Carry out one part of a change.

    Raises:
        Refused: ``revision_conflict``, ``job_exists``; what `check_recorder` and `check_next` raise.
    """
    match put:
        case PutJob():
            _put_job(connection, put)
        case PutRestoredJob(job=job):
            connection.execute(sa.insert(JOBS).values(uid=job.uid, **_row(job)))
        case PutBatch(job_uid=uid, generation=generation, record=record):
            held = rebuildrows.find_rebuilds(connection, REBUILDS.c.id == put.rebuild)
            check_recorder(next(iter(held), None), record)
            last = _last(connection, uid, generation, 1)
            if check_next(last[0] if last else None, record):
                row = {"batch": record.batch, "document": record.model_dump_json()}
                connection.execute(sa.insert(BATCHES).values(job_uid=uid, generation=generation, **row))
                _keep_letters(connection, uid, generation, record)
        case NoteReplayed(job_uid=uid, places=places, at_ms=at_ms):
            for place in places:
                row_of = (JOB_DEAD_LETTERS.c.job_uid == uid) & (sa.tuple_(*_place(JOB_DEAD_LETTERS.c)) == place)
                connection.execute(sa.update(JOB_DEAD_LETTERS).where(row_of).values(replayed_at_ms=at_ms))
        case DropBatches(job_uid=uid, generation=generation, below=below):
            at = (BATCHES.c.job_uid == uid) & (BATCHES.c.generation == generation)
            connection.execute(sa.delete(BATCHES).where(at, BATCHES.c.batch < below))
        case DropJob():
            _drop_job(connection, put)


def _put_job(connection: sa.Connection, put: PutJob) -> None:
    job = put.job
    if put.fence is None:
        taken = sa.select(JOBS.c.uid).where(JOBS.c.live_name == job.name)
        if connection.execute(taken).first() is not None:
            raise name_taken(job.name)
        row = _row(job.model_copy(update={"revision": 1}))
        connection.execute(sa.insert(JOBS).values(uid=job.uid, **row))
        return
    row = _row(job.model_copy(update={"revision": put.fence + 1}))
    update = sa.update(JOBS).where(JOBS.c.uid == job.uid, JOBS.c.revision == put.fence)
    check_swapped(connection.execute(update.values(**row)).rowcount, f"the job {job.name}", put.fence)


def _drop_job(connection: sa.Connection, put: DropJob) -> None:
    row = JOBS.c
    gone = sa.delete(JOBS).where(row.uid == put.uid, row.revision == put.fence, row.live_name.is_(None))
    dropped = connection.execute(gone.returning(row.document)).scalars().all()
    check_swapped(len(dropped), f"the deleted job {put.uid}", put.fence)
    connection.execute(sa.delete(BATCHES).where(BATCHES.c.job_uid == put.uid))
    connection.execute(sa.delete(JOB_DEAD_LETTERS).where(JOB_DEAD_LETTERS.c.job_uid == put.uid))
    job = Job.model_validate_json(dropped[0])
    kept = max(job.next_generation, _kept_number(connection, job.name))
    connection.execute(sa.delete(COUNTERS).where(COUNTERS.c.name == _used_numbers(job.name)))
    connection.execute(sa.insert(COUNTERS).values(name=_used_numbers(job.name), value=kept))


def _used_numbers(name: str) -> str:
    """The counter that keeps the generation numbers of a name when no job of it is there any more."""
    return f"next_generation/{name}"


def _kept_number(connection: sa.Connection, name: str) -> int:
    query = sa.select(COUNTERS.c.value).where(COUNTERS.c.name == _used_numbers(name))
    return connection.execute(query).scalar() or 1


def _row(job: Job) -> dict[str, Any]:
    return {
        "name": job.name,
        "live_name": None if job.deleted_at_ms is not None else job.name,
        "revision": job.revision,
        "document": job.model_dump_json(),
    }


def _parsed(connection: sa.Connection, query: sa.Select[Any]) -> list[Job]:
    return [Job.model_validate_json(document) for document in connection.execute(query).scalars()]


def _last(connection: sa.Connection, job_uid: str, generation: int, limit: int) -> list[BatchRecord]:
    row = BATCHES.c
    query = sa.select(row.document).where(row.job_uid == job_uid, row.generation == generation)
    documents = connection.execute(query.order_by(row.batch.desc()).limit(limit)).scalars()
    return [BatchRecord.model_validate_json(document) for document in documents][::-1]


def _from(connection: sa.Connection, job_uid: str, generation: int, first: int, limit: int) -> list[BatchRecord]:
    row = BATCHES.c
    query = sa.select(row.document).where(row.job_uid == job_uid, row.generation == generation, row.batch >= first)
    documents = connection.execute(query.order_by(row.batch).limit(limit)).scalars()
    return [BatchRecord.model_validate_json(document) for document in documents]


def _keep_letters(connection: sa.Connection, job_uid: str, generation: int, record: BatchRecord) -> None:
    rows = [
        {
            **letter.model_dump(),
            "job_uid": job_uid,
            "generation": generation,
            "batch": record.batch,
            "at_ms": record.at_ms,
        }
        for letter in record.dead_letters
    ]
    if rows:
        connection.execute(sa.insert(JOB_DEAD_LETTERS), rows)


def _place(row: Any) -> tuple[Any, ...]:
    return row.generation, row.input, row.partition, row.offset


def _letter(row: Any) -> KeptLetter:
    return KeptLetter(
        generation=row.generation,
        batch=row.batch,
        letter=DeadLetter(input=row.input, partition=row.partition, offset=row.offset, reason=row.reason),
        at_ms=row.at_ms,
        replayed_at_ms=row.replayed_at_ms,
    )
