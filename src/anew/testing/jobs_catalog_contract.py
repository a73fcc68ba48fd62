"""What every catalog promises of jobs and the records of their batches, as tests; see `anew.catalog.interface`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from anew.catalog.change import DropBatches, PutBatch, PutJob
from anew.catalog.interface import Catalog
from anew.core.errors import Refused
from anew.testing.catalog_contract import a_change
from anew.testing.clock import NOON_MS
from anew.testing.job_builders import a_batch, a_generation, a_job
from anew.testing.opened_catalog import OpenedCatalog

_UID = "uid-job"


def _refused(code: str, act: Callable[[], object]) -> None:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code == code


def _record(catalog: Catalog, number: int, epoch: int = 1, generation: int = 1) -> None:
    catalog.put_batch(_UID, generation, a_batch(number, epoch))


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

    @pytest.mark.case("streams:C7")
    def test_a_batch_is_recorded_once(self, catalog: Catalog) -> None:
        """Batches follow one another; one that ran again under a greater epoch takes its place; all else is refused."""
        for number in range(3):
            _record(catalog, number)
        _record(catalog, 0, generation=2)
        _record(catalog, 2, epoch=2)
        _refused("batch_outdated", lambda: catalog.put_batch(_UID, 1, a_batch(2)))
        _refused("batch_gap", lambda: catalog.commit(a_change("op-x", PutBatch(_UID, 1, a_batch(4, 2)))))
        assert catalog.history(None, 5) == []
        found = catalog.batches(_UID, 1, 2)
        assert [(record.batch, record.epoch) for record in found] == [(1, 1), (2, 2)]
        assert [record.batch for record in catalog.batches(_UID, 2, 5)] == [0]
        assert catalog.batches("other", 1, 5) == []

    def test_old_batches_are_forgotten(self, catalog: Catalog) -> None:
        """Below a number, of one generation alone; the next one follows the last as before."""
        for number in range(4):
            _record(catalog, number)
        _record(catalog, 0, generation=2)
        catalog.commit(a_change("op-forget", DropBatches(_UID, 1, 3)))
        assert [record.batch for record in catalog.batches(_UID, 1, 9)] == [3]
        assert [record.batch for record in catalog.batches(_UID, 2, 9)] == [0]
        _record(catalog, 4)
        assert [record.batch for record in catalog.batches(_UID, 1, 9)] == [3, 4]
