"""Jobs in a catalog in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from anew.catalog.change import DropBatches, NoteReplayed, PutBatch, PutJob
from anew.catalog.conflicts import check_swapped
from anew.catalog.forget import DropJob
from anew.core.errors import Refused
from anew.core.jobs.batch import BatchRecord, check_next
from anew.core.jobs.deadletters import KeptLetter, LetterPlace
from anew.core.jobs.job import Job, name_taken
from anew.core.jobs.rebuild import check_recorder
from anew.testing.memory.catalogtables import Tables


class MemoryJobs:
    """The part of `anew.testing.memory.catalog.MemoryCatalog` that is about jobs."""

    _tables: Callable[[], Tables]
    commit_unlogged: Callable[[PutBatch], None]

    def job(self, name: str) -> Job | None:
        """See `JobsCatalog.job`."""
        return next((job for job in self.jobs() if job.name == name), None)

    def job_by_uid(self, uid: str) -> Job | None:
        """See `JobsCatalog.job_by_uid`."""
        return self._tables().jobs.get(uid)

    def jobs(self) -> list[Job]:
        """See `JobsCatalog.jobs`."""
        return self._sorted_jobs(deleted=False)

    def deleted_jobs(self) -> list[Job]:
        """See `JobsCatalog.deleted_jobs`."""
        return self._sorted_jobs(deleted=True)

    def jobs_page(self, after: str, limit: int) -> list[Job]:
        """See `JobsCatalog.jobs_page`."""
        return [job for job in self.jobs() if job.name > after][:limit]

    def next_generation(self, name: str) -> int:
        """See `JobsCatalog.next_generation`."""
        tables = self._tables()
        of_jobs = (job.next_generation for job in tables.jobs.values() if job.name == name)
        return max([tables.used_generations.get(name, 1), *of_jobs])

    def put_batch(self, put: PutBatch) -> None:
        """See `JobsCatalog.put_batch`."""
        self.commit_unlogged(put)

    def batches(self, job_uid: str, generation: int, limit: int) -> list[BatchRecord]:
        """See `JobsCatalog.batches`."""
        return _of(self._tables(), job_uid, generation)[-limit:]

    def batches_from(self, job_uid: str, generation: int, first: int, limit: int) -> list[BatchRecord]:
        """See `JobsCatalog.batches_from`."""
        return [record for record in _of(self._tables(), job_uid, generation) if record.batch >= first][:limit]

    def job_dead_letters(
        self, job_uid: str, generation: int | None, after: LetterPlace | None, limit: int
    ) -> list[KeptLetter]:
        """See `JobsCatalog.job_dead_letters`."""
        found = [letter for (uid, _), letter in sorted(self._tables().job_dead_letters.items()) if uid == job_uid]
        of = [letter for letter in found if generation in (None, letter.generation)]
        return [letter for letter in of if after is None or letter.place > after][:limit]

    def job_dead_letter_counts(self, job_uid: str) -> dict[int, int]:
        """See `JobsCatalog.job_dead_letter_counts`."""
        return Counter(place[0] for uid, place in self._tables().job_dead_letters if uid == job_uid)

    def _sorted_jobs(self, *, deleted: bool) -> list[Job]:
        found = self._tables().jobs.values()
        return sorted((job for job in found if (job.deleted_at_ms is not None) is deleted), key=lambda job: job.name)


def apply(tables: Tables, put: PutJob | PutBatch | DropBatches | NoteReplayed | DropJob) -> None:
    """Carry out one part of a change.

    Raises:
        Refused: ``revision_conflict``, ``job_exists``; what `check_recorder` and `check_next` raise.
    """
    match put:
        case PutJob(job=job, fence=fence):
            present = tables.jobs.get(job.uid)
            if fence is None and any(j.name == job.name and j.deleted_at_ms is None for j in tables.jobs.values()):
                raise name_taken(job.name)
            found = None if present is None else present.revision
            if found != fence:
                what = f"the job {job.name} was changed by somebody else meanwhile"
                raise Refused("revision_conflict", what, found=found, expected=fence)
            tables.jobs[job.uid] = job.model_copy(update={"revision": 1 if fence is None else fence + 1})
        case PutBatch(job_uid=uid, generation=generation, record=record):
            check_recorder(tables.rebuilds.get(put.rebuild), record)
            last = _of(tables, uid, generation)
            if check_next(last[-1] if last else None, record):
                tables.batches[uid, generation, record.batch] = record
                for letter in record.dead_letters:
                    kept = KeptLetter(generation=generation, batch=record.batch, letter=letter, at_ms=record.at_ms)
                    tables.job_dead_letters[uid, kept.place] = kept
        case NoteReplayed(job_uid=uid, places=places, at_ms=at_ms):
            for place in places:
                if (uid, place) not in tables.job_dead_letters:
                    continue
                noted = tables.job_dead_letters[uid, place].model_copy(update={"replayed_at_ms": at_ms})
                tables.job_dead_letters[uid, place] = noted
        case DropBatches(job_uid=uid, generation=generation, below=below):
            for record in _of(tables, uid, generation):
                if record.batch < below:
                    del tables.batches[uid, generation, record.batch]
        case DropJob(uid=uid, fence=fence):
            found_job = tables.jobs.get(uid)
            is_there = found_job is not None and found_job.deleted_at_ms is not None and found_job.revision == fence
            check_swapped(int(is_there), f"the deleted job {uid}", fence)
            gone = tables.jobs.pop(uid)
            before = tables.used_generations.get(gone.name, 1)
            tables.used_generations[gone.name] = max(gone.next_generation, before)
            for at in [at for at in tables.batches if at[0] == uid]:
                del tables.batches[at]
            for key in [key for key in tables.job_dead_letters if key[0] == uid]:
                del tables.job_dead_letters[key]


def _of(tables: Tables, job_uid: str, generation: int) -> list[BatchRecord]:
    found = [(at, r) for at, r in tables.batches.items() if at[:2] == (job_uid, generation)]
    return [record for _, record in sorted(found, key=lambda each: each[0])]
