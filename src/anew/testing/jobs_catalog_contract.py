"""What every catalog promises of jobs and the records of their batches, as tests; see `anew.catalog.interface`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anew.catalog.change import DropBatches, NoteReplayed, PutBatch, PutJob, PutRebuild
from anew.catalog.forget import DropJob
from anew.catalog.interface import Catalog
from anew.core.errors import Refused
from anew.core.jobs.deadletters import DeadLetter
from anew.core.rebuild import RebuildStatus
from anew.testing.catalog_contract import a_change
from anew.testing.clock import NOON_MS
from anew.testing.job_builders import a_batch, a_generation, a_job, a_job_rebuild
from anew.testing.opened_catalog import OpenedCatalog

_UID = "uid-job"


def _refused(code: str, act: Callable[[], object]) -> None:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code == code


def _drivers(catalog: Catalog, *generations: int) -> None:
    """Generations that have drivers of the first epoch."""
    for number in generations:
        catalog.commit(a_change(f"op-drive-{number}", PutRebuild(a_job_rebuild(number), None)))


def _put(number: int, epoch: int = 1, generation: int = 1, **changes: Any) -> PutBatch:
    return PutBatch(_UID, generation, a_batch(number, epoch, **changes), f"rebuild-{generation}")


class JobsCatalogContract(OpenedCatalog):
    """The contract; ``catalog`` is an empty catalog."""

    def test_a_job_comes_back_whole(self, catalog: Catalog, tmp_path: Path) -> None:
        """Everything in a job survives, for other handles too, with its first revision; listing goes by name."""
        job = a_job(a_generation(1, conf={"spark.a": "b"}), a_generation(2, 1), live=1)
        catalog.commit(a_change("op-1", PutJob(job, None), subject=job.name))
        catalog.commit(a_change("op-2", PutJob(a_job(name="airports", uid="uid-2"), None)))
        expected = job.model_copy(update={"revision": 1})
        other = self.open_catalog(tmp_path)
        for handle in (catalog, other):
            assert handle.job(job.name) == handle.job_by_uid(_UID) == expected
            assert [found.name for found in handle.jobs()] == ["airports", "delay_class"]
            assert [found.name for found in handle.jobs_page("airports", 5)] == ["delay_class"]
            assert [found.name for found in handle.jobs_page("", 1)] == ["airports"]
        assert (catalog.job("other"), catalog.job_by_uid("other"), catalog.deleted_jobs()) == (None, None, [])
        other.close()

    @pytest.mark.case("rules:R22")
    def test_a_job_changes_by_compare_and_swap(self, catalog: Catalog) -> None:
        """Of two changes from one revision the first wins; a taken name, and a job that is not there, are refused."""
        catalog.commit(a_change("op-1", PutJob(a_job(), None)))
        catalog.commit(a_change("op-2", PutJob(a_job(live=1), 1)))
        for fence in (1, 3):
            _refused("revision_conflict", partial(catalog.commit, a_change("op-x", PutJob(a_job(), fence))))
        _refused("job_exists", lambda: catalog.commit(a_change("op-x", PutJob(a_job(uid="uid-2"), None))))
        found = catalog.job("delay_class")
        assert found is not None
        assert (found.revision, found.live) == (2, 1)

    def test_a_deleted_job_frees_its_name(self, catalog: Catalog) -> None:
        """It is found by its identity; another one may take the name."""
        catalog.commit(a_change("op-1", PutJob(a_job(), None)))
        catalog.commit(a_change("op-2", PutJob(a_job(deleted_at_ms=NOON_MS), 1)))
        assert (catalog.job("delay_class"), [job.uid for job in catalog.deleted_jobs()]) == (None, [_UID])
        catalog.commit(a_change("op-3", PutJob(a_job(uid="uid-2"), None)))
        assert [job.uid for job in catalog.jobs()] == ["uid-2"]

    @pytest.mark.case("rules:R20")
    def test_a_name_keeps_its_numbers_when_its_jobs_are_forgotten(self, catalog: Catalog) -> None:
        """A deleted job goes as it was read, with its batches, a live one never; numbers of its name go on for ever."""
        _drivers(catalog, 1)
        assert catalog.next_generation("delay_class") == 1
        for uid, following in (("uid-job", 8), ("uid-2", 5)):
            catalog.commit(a_change(f"op-{uid}", PutJob(a_job(uid=uid, next_generation=following), None)))
            catalog.commit(a_change(f"op-batch-{uid}", replace(_put(0), job_uid=uid)))
            _refused("revision_conflict", partial(catalog.commit, a_change("op-x", DropJob(uid, 1))))
            gone = a_job(uid=uid, next_generation=following, deleted_at_ms=NOON_MS)
            catalog.commit(a_change(f"op-gone-{uid}", PutJob(gone, 1)))
            _refused("revision_conflict", partial(catalog.commit, a_change("op-x", DropJob(uid, 1))))
            assert catalog.next_generation("delay_class") == 8
            catalog.commit(a_change(f"op-drop-{uid}", DropJob(uid, 2)))
            assert (catalog.job_by_uid(uid), catalog.batches(uid, 1, 5)) == (None, [])
            assert catalog.next_generation("delay_class") == 8

    @pytest.mark.case("streams:C7")
    def test_a_batch_is_recorded_once(self, catalog: Catalog) -> None:
        """Batches follow one another; the same record again is nothing; another one of a recorded batch is refused."""
        _drivers(catalog, 1, 2)
        for number in (0, 1, 2, 2):
            catalog.put_batch(_put(number))
        catalog.put_batch(_put(0, generation=2))
        _refused("batch_differs", lambda: catalog.put_batch(_put(2, rows=11)))
        _refused("batch_gap", lambda: catalog.commit(a_change("op-x", _put(4))))
        assert len(catalog.history(None, 5)) == 2
        assert [record.batch for record in catalog.batches(_UID, 1, 2)] == [1, 2]
        assert [record.batch for record in catalog.batches(_UID, 2, 5)] == [0]
        assert [record.batch for record in catalog.batches_from(_UID, 1, 1, 1)] == [1]
        assert [record.batch for record in catalog.batches_from(_UID, 1, 1, 9)] == [1, 2]
        assert catalog.batches("other", 1, 5) == catalog.batches_from("other", 1, 0, 5) == []

    @pytest.mark.case("streams:N8")
    def test_a_batch_is_recorded_by_the_driver_that_holds_the_generation(self, catalog: Catalog) -> None:
        """In one transaction with the look at its epoch: after a take-over, and after the end, it is refused."""
        _drivers(catalog, 1)
        catalog.put_batch(_put(0))
        catalog.put_rebuild(a_job_rebuild(epoch=2), 1)
        _refused("epoch_outdated", lambda: catalog.put_batch(_put(1)))
        catalog.put_batch(_put(1, epoch=2))
        catalog.put_rebuild(a_job_rebuild(epoch=2, status=RebuildStatus.SUCCEEDED), 2)
        _refused("rebuild_ended", lambda: catalog.put_batch(_put(2, epoch=2)))
        assert [(record.batch, record.epoch) for record in catalog.batches(_UID, 1, 9)] == [(0, 1), (1, 2)]

    def test_old_batches_are_forgotten(self, catalog: Catalog) -> None:
        """Below a number, of one generation alone; the next one follows the last as before."""
        _drivers(catalog, 1, 2)
        for number in range(4):
            catalog.put_batch(_put(number))
        catalog.put_batch(_put(0, generation=2))
        catalog.commit(a_change("op-forget", DropBatches(_UID, 1, 3)))
        assert [record.batch for record in catalog.batches(_UID, 1, 9)] == [3]
        assert [record.batch for record in catalog.batches(_UID, 2, 9)] == [0]
        catalog.put_batch(_put(4))
        assert [record.batch for record in catalog.batches(_UID, 1, 9)] == [3, 4]

    @pytest.mark.case("streams:N10")
    def test_dead_letters_are_kept_with_their_batch_and_outlive_it(self, catalog: Catalog) -> None:
        """All of a batch or none; by place, some at a time; a note of a replay; they go with the record of the job."""
        _drivers(catalog, 1, 2)
        catalog.commit(a_change("op-job", PutJob(a_job(), None)))
        letters = tuple(DeadLetter(input="events", partition=p, offset=o, reason="no") for p, o in ((1, 7), (0, 12)))
        for _ in range(2):
            catalog.put_batch(_put(0, dead_letters=letters, dead_total=2))
        catalog.put_batch(_put(0, generation=2, dead_letters=letters[:1], dead_total=1))
        _refused("batch_gap", lambda: catalog.put_batch(_put(2, dead_letters=letters)))
        assert catalog.job_dead_letter_counts(_UID) == {1: 2, 2: 1}
        catalog.commit(a_change("op-forget", DropBatches(_UID, 1, 9)))
        found = catalog.job_dead_letters(_UID, None, None, 9)
        places = [(1, "events", 0, 12), (1, "events", 1, 7), (2, "events", 1, 7)]
        assert [letter.place for letter in found] == places
        assert (found[1].letter, found[1].batch, found[1].at_ms) == (letters[0], 0, NOON_MS)
        assert catalog.job_dead_letters(_UID, 1, None, 1) == found[:1]
        assert catalog.job_dead_letters(_UID, 1, places[0], 9) == found[1:2]
        assert catalog.job_dead_letters(_UID, None, places[1], 9) == found[2:]
        catalog.commit(a_change("op-note", NoteReplayed(_UID, (places[1],), NOON_MS + 5)))
        noted = [letter.replayed_at_ms for letter in catalog.job_dead_letters(_UID, None, None, 9)]
        assert noted == [None, NOON_MS + 5, None]
        catalog.commit(a_change("op-gone", PutJob(a_job(deleted_at_ms=NOON_MS), 1)))
        catalog.commit(a_change("op-drop", DropJob(_UID, 2)))
        assert (catalog.job_dead_letters(_UID, None, None, 9), catalog.job_dead_letter_counts(_UID)) == ([], {})
