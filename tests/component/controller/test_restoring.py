"""A lost catalog is made again from records and manifests in the deep store; what nobody can know is not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anew.api.models import RestoreCatalog
from anew.api.stores.requests import RollBack
from anew.api.upkeep import RestoredCatalog
from anew.catalog.database import DatabaseCatalog
from anew.controller.restore.stores import ERA
from anew.core.errors import InvalidRequest, Refused, Unreachable
from anew.core.stores.planning import RepushRequest
from anew.core.stores.store import Store
from anew.deepstore.interface import DeepStore
from anew.log.interface import TopicPartition, TopicSpec
from anew.segments.layout import RECORDS
from tests.component.controller.harness import LIMITS, Cluster, node_report, opened_cluster, plain, refused


@contextmanager
def _without_catalog(cluster: Cluster, directory: Path) -> Iterator[Cluster]:
    """Another controller over the same log and deep store, with an empty catalog and the same nodes."""
    (directory / "again").mkdir(parents=True)
    with opened_cluster(directory / "again") as fresh:
        for _ in range(1_000):
            fresh.context.new_id()  # so that no id of the cluster before comes again
        own, fresh.log, fresh.deep = fresh.log, cluster.log, cluster.deep
        fresh.context.fabrics.update(cluster.context.fabrics)  # type: ignore[attr-defined]  # a dict in these tests
        fresh.clock.now_ms = cluster.clock.now_ms
        for node in fresh.nodes:
            fresh.client.report(node_report(node))
        yield fresh
        own.close()


def _restore(cluster: Cluster, *, dry_run: bool = False, request_id: str | None = None) -> RestoredCatalog:
    return cluster.client.restore_catalog(RestoreCatalog(dry_run=dry_run, request_id=request_id))


def _told(answer: RestoredCatalog, name: str = "flights") -> Any:
    return next(store for store in plain(answer)["stores"] if store["name"] == name)


def _same(before: Store, after: Store) -> bool:
    """Whether a store came back: all but its revision, and that its logs are to be told again."""
    feeds = tuple(feed.model_copy(update={"moving": False}) for feed in after.feeds)
    return after.model_copy(update={"revision": before.revision, "feeds": feeds}) == before


def _forget_records(deep: DeepStore) -> None:
    assert deep.delete_tree(RECORDS) > 0


def test_a_store_comes_back_as_it_was(cluster: Cluster, tmp_path: Path) -> None:
    """After a rollback and changed live settings the store is restored whole: versions, pointers, settings, feeds."""
    cluster.create(owner="ann")
    cluster.serve(cluster.push_plan())
    cluster.update(backup_retention_seconds=77, partitions=8)
    cluster.serve(cluster.repush_plan())
    cluster.client.roll_back("flights", RollBack())
    cluster.round()
    before = cluster.store()
    with _without_catalog(cluster, tmp_path) as again:
        told = _told(_restore(again))
        assert (told["from"], told["current"], told["notes"]) == ("record", {"dc-0": 1}, [])
        assert _same(before, again.store())
        assert again.store().revision == ERA
        assert again.context.catalog.revision() > ERA


@pytest.mark.case("rules:R16")
def test_a_restored_store_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    """Nearline writes and a repush work; version numbers, schema ids and incarnations of feeds do not start again."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.create("old")
    cluster.serve(cluster.push_plan("old"))
    cluster.client.delete_store("old")
    cluster.round()
    old, schemas = cluster.context.catalog.deleted_stores()[0], set(cluster.store().schemas)
    with _without_catalog(cluster, tmp_path) as again:
        _restore(again)
        again.settle(3)
        feed = again.store().feeds[0]
        assert (feed.moving, feed.open, again.client.routing("flights").feed) == (False, True, feed)
        assert again.write(feed, 3)
        assert again.serve(again.repush_plan()) == 2
        assert again.store().current == {"dc-0": 2}
        assert [store.uid for store in again.context.catalog.deleted_stores()] == [old.uid]
        made = again.create("old")
        assert made.next_version == 2
        assert made.feeds[0].incarnation == old.feeds[0].incarnation + 1
        assert min(made.schemas) > max(schemas | set(old.schemas))


@pytest.mark.parametrize("with_records", [True, False], ids=["record", "manifests"])
def test_a_base_in_the_log_comes_back(cluster: Cluster, tmp_path: Path, *, with_records: bool) -> None:
    """A version whose base lies in its topic is served again, and its topic goes with it when its time has come."""
    cluster.create(transport="log")
    cluster.serve(cluster.push_plan())
    cluster.round()
    before = cluster.there(1).topic
    if not with_records:
        _forget_records(cluster.deep)
    with _without_catalog(cluster, tmp_path) as again:
        assert _told(_restore(again))["current"] == {"dc-0": 1}
        assert again.there(1).topic == before
        again.client.delete_store("flights")
        again.pass_seconds(600)
        again.round()
        assert again.log.topic("flights_v1") is None


def test_a_base_that_its_topic_lost_does_not_serve(cluster: Cluster, tmp_path: Path) -> None:
    """A version whose topic is gone is lost like one whose files are."""
    cluster.create(transport="log")
    cluster.serve(cluster.push_plan())
    cluster.round()
    topic = cluster.there(1).topic
    assert topic is not None
    cluster.log.delete_topic(topic.name, topic.uid)
    with _without_catalog(cluster, tmp_path) as again:
        told = _told(_restore(again))
        assert told["current"] == {"dc-0": 0}
        assert any("lacks 1 of its ranges" in note for note in told["notes"])


def test_a_dry_run_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """It says what the restore would make, also where the catalog is not empty, and nothing is made."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.round()
    revision = cluster.context.catalog.revision()
    assert _restore(cluster, dry_run=True).empty is False
    assert cluster.context.catalog.revision() == revision
    with _without_catalog(cluster, tmp_path) as again:
        before = again.context.catalog.revision()
        dry = _restore(again, dry_run=True)
        assert (again.context.catalog.stores(), again.context.catalog.revision()) == ([], before)
        assert _restore(again).stores == dry.stores


def test_a_catalog_that_holds_something_is_left_alone(cluster: Cluster) -> None:
    """A restore into a catalog with a store is refused and changes nothing."""
    cluster.create()
    cluster.round()
    before = (cluster.store(), cluster.context.catalog.revision())
    error = refused(Refused, lambda: _restore(cluster))
    assert error.code == "catalog_not_empty"
    assert (cluster.store(), cluster.context.catalog.revision()) == before


def test_there_must_be_something_to_restore(cluster: Cluster) -> None:
    """An empty deep store makes no catalog: perhaps it is the wrong one."""
    assert refused(Refused, lambda: _restore(cluster)).code == "nothing_to_restore"


@pytest.mark.case("rules:R22")
def test_the_same_request_is_the_same_restore(cluster: Cluster, tmp_path: Path) -> None:
    """Asked again with its id, also after other changes, it answers as before; an id of something else is refused."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.round()
    with _without_catalog(cluster, tmp_path) as again:
        first = _restore(again, request_id="restore-1")
        again.update(owner="bob")
        assert _restore(again, request_id="restore-1") == first
        assert again.store().config.owner == "bob"
        rebuild = again.begin(again.push_plan(), "push-1")
        assert rebuild.version == 2
        assert refused(InvalidRequest, lambda: _restore(again, request_id="push-1")).code == "request_id_reused"


def test_a_build_that_was_under_way_has_failed(cluster: Cluster, tmp_path: Path) -> None:
    """A version without a manifest is not taken for done: it has failed, and its number is not given again."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.begin(cluster.push_plan())
    cluster.round()
    with _without_catalog(cluster, tmp_path) as again:
        told = _told(_restore(again))
        assert again.status(2) == "failed"
        assert (told["current"], again.store().next_version, len(told["notes"])) == ({"dc-0": 1}, 3, 1)
        again.settle(2)
        assert again.status(2) == "retired"
        assert again.serve(again.repush_plan()) == 3


def test_a_version_that_was_sealed_waits_to_be_chosen(cluster: Cluster, tmp_path: Path) -> None:
    """Complete, but not swapped as far as the record goes: it is deferred, and somebody can swap it."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.seal(cluster.begin(cluster.push_plan()))
    cluster.round()
    with _without_catalog(cluster, tmp_path) as again:
        _restore(again)
        assert (again.status(1), again.status(2), again.store().current) == ("current", "deferred", {"dc-0": 1})
        again.settle(2)
        again.swap(2)
        assert again.store().current == {"dc-0": 2}


def test_a_version_that_the_record_does_not_know_waits(cluster: Cluster, tmp_path: Path) -> None:
    """Sealed and swapped after the last record: it is there again, deferred, and its number is not given again."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.round()
    records = {file.path: cluster.deep.get(file.path) for file in cluster.deep.list(RECORDS)}
    cluster.serve(cluster.push_plan())
    _forget_records(cluster.deep)
    for path, content in records.items():
        cluster.deep.put(path, content)
    with _without_catalog(cluster, tmp_path) as again:
        told = _told(_restore(again))
        assert (told["current"], told["next_version"]) == ({"dc-0": 1}, 3)
        assert (again.status(2), "anew swap flights 2" in told["notes"][0]) == ("deferred", True)


def test_without_records_the_newest_version_serves(cluster: Cluster, tmp_path: Path) -> None:
    """From manifests alone: all complete versions, the newest is current, frozen settings are those of its build."""
    cluster.create(owner="ann")
    cluster.serve(cluster.push_plan())
    cluster.update(partitions=8)
    cluster.serve(cluster.repush_plan())
    cluster.round()
    before = cluster.store()
    _forget_records(cluster.deep)
    with _without_catalog(cluster, tmp_path) as again:
        told = _told(_restore(again))
        after = again.store()
        assert (told["from"], after.current, after.next_version) == ("manifests", {"dc-0": 2}, 3)
        assert [again.status(number) for number in (1, 2)] == ["backup", "current"]
        assert [v.manifest for v in after.versions] == [v.manifest for v in before.versions]
        assert (after.config.frozen, after.schemas, after.uid) == (before.config.frozen, before.schemas, before.uid)
        assert (after.config.owner, before.config.owner) == (None, "ann")
        again.settle(3)
        assert again.there(2).assignment.keys() == set(range(8))
        assert all(again.there(2).assignment.values())
        assert again.serve(again.repush_plan(request=RepushRequest(allow_not_serving=True))) == 3


@pytest.mark.parametrize("loss", ["base file", "manifest", "changed manifest"])
def test_a_version_whose_files_are_gone_does_not_serve(cluster: Cluster, tmp_path: Path, loss: str) -> None:
    """Where the current version's files are not what they were, the newest complete one serves, and it is said."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.push_plan())
    cluster.round()
    manifest = cluster.version(2).manifest
    assert manifest is not None
    content = cluster.deep.get(manifest.path)
    lost = cluster.files(f"{cluster.version(2).path}/base")[0] if loss == "base file" else manifest.path
    cluster.deep.delete(lost)
    if loss == "changed manifest":
        cluster.deep.put(manifest.path, content + b"\n")
    with _without_catalog(cluster, tmp_path) as again:
        told = _told(_restore(again))
        assert (told["current"], again.status(1), again.status(2)) == ({"dc-0": 1}, "current", "failed")
        assert any("version 2" in note for note in told["notes"])


def test_a_bad_record_is_passed_over(cluster: Cluster, tmp_path: Path) -> None:
    """A newest record that cannot be read is told of, and the one before it is used."""
    cluster.create(owner="ann")
    cluster.round()
    cluster.update(owner="bob")
    cluster.round()
    newest = [file.path for file in cluster.deep.list(RECORDS)][-1]
    cluster.deep.delete(newest)
    cluster.deep.put(newest, b"{")
    with _without_catalog(cluster, tmp_path) as again:
        told = _told(_restore(again))
        assert again.store().config.owner == "ann"
        assert newest in told["notes"][0]


def test_a_lost_topic_is_told(cluster: Cluster, tmp_path: Path) -> None:
    """Where the log is lost as well, the restore says which nearline writes cannot be applied."""
    cluster.create()
    cluster.round()
    feed = cluster.store().feeds[0]
    cluster.log.delete_topic(feed.topic, feed.topic_uid)
    with _without_catalog(cluster, tmp_path) as again:
        assert "flights_rt" in _told(_restore(again))["notes"][0]


@pytest.mark.case("rules:R16")
def test_a_number_that_left_only_files_is_not_given_again(cluster: Cluster, tmp_path: Path) -> None:
    """A build that began after the last record and wrote a file, but no manifest: its version number is used up."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.round()
    cluster.deep.put(f"stores/{cluster.store().uid}/v6/lost-e1/base/p00000-s00-x.parquet", b"rows")
    with _without_catalog(cluster, tmp_path) as again:
        assert _told(_restore(again))["next_version"] == 7


@pytest.mark.case("rules:R10")
def test_the_logs_are_told_again(cluster: Cluster, tmp_path: Path) -> None:
    """A topic that was closed after the last record takes writes again, as the restored store says."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.round()
    feed = cluster.store().feeds[0]
    spec = TopicSpec(feed.topic, feed.topic_uid, feed.partitions)
    cluster.log.set_open(spec, is_open=False, epoch=cluster.store().revision + 9)
    with pytest.raises(Refused):
        cluster.write(feed, 1)
    with _without_catalog(cluster, tmp_path) as again:
        _restore(again)
        again.settle(2)
        assert again.write(feed, 1)


@pytest.mark.case("rules:R2")
def test_low_water_is_what_the_log_still_has(cluster: Cluster, tmp_path: Path) -> None:
    """A log that was truncated after the last record is believed: no plan starts below what it holds."""
    cluster.create(rewind_seconds=0)
    cluster.serve(cluster.push_plan())
    cluster.write(cluster.store().feeds[0], 40)
    cluster.serve(cluster.push_plan())
    cluster.round()
    with _without_catalog(cluster, tmp_path) as again:
        begins = {at: offset // 2 for at, offset in cluster.ends(cluster.store().feeds[0]).items()}
        for at, offset in begins.items():
            cluster.log.truncate_below(_topic(cluster, at.partition), offset)
        _restore(again)
        assert again.store().feeds[0].low_water == tuple(begins.values())
        assert sum(begins.values()) > 0


class _Silent:
    """A deep store that takes no files."""

    def __init__(self, inner: DeepStore) -> None:
        self.inner, self.silent = inner, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put(self, path: str, content: bytes) -> None:
        """Refuse while silent."""
        if self.silent:
            raise Unreachable("deep_store_unreachable", "it does not answer")
        self.inner.put(path, content)


def test_a_record_that_could_not_be_written_is_written_later(cluster: Cluster) -> None:
    """While the deep store does not answer everything else goes on; the record comes with a later round."""
    fabric = cluster.context.fabrics["dc-0"]
    silent = _Silent(cluster.deep)
    cluster.context.fabrics["dc-0"] = replace(fabric, deep_store=silent)  # type: ignore[index]  # a dict in this test
    cluster.create()
    cluster.round()
    assert cluster.files(RECORDS) == []
    silent.silent = False
    cluster.round()
    assert len(cluster.files(RECORDS)) == 1


def test_records_are_few(cluster: Cluster) -> None:
    """A record for each change that matters, three are kept, and rounds in which nothing changes write none."""
    cluster.create()
    for number in range(5):
        cluster.update(owner=f"owner {number}")
        cluster.round()
    kept = cluster.files(RECORDS)
    assert len(kept) == 3
    cluster.write(cluster.store().feeds[0], 10)
    cluster.pass_seconds(LIMITS.low_water_interval_seconds + 1)
    cluster.settle(3)
    assert cluster.files(RECORDS) == kept


def test_the_record_of_a_deleted_store_outlives_its_files(cluster: Cluster, tmp_path: Path) -> None:
    """When a deleted store's files are gone its name still knows which numbers were used."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.client.delete_store("flights")
    cluster.round()
    cluster.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
    cluster.round()
    assert cluster.files("stores") == []
    with _without_catalog(cluster, tmp_path) as again:
        assert _told(_restore(again))["deleted"] is True
        assert again.context.catalog.stores() == []
        assert again.context.catalog.next_version("flights") == 2


def test_what_retention_had_let_go_is_reclaimed_all_the_same(cluster: Cluster, tmp_path: Path) -> None:
    """An intent to reclaim that was lost with the catalog is noted again: no file stays for ever."""
    cluster.create(backup_retention_seconds=0)
    for _ in range(2):
        cluster.serve(cluster.push_plan())
    cluster.settle(2)
    assert cluster.status(1) == "retired"
    with _without_catalog(cluster, tmp_path) as again:
        _restore(again)
        again.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
        again.settle(2)
        assert again.status(1) == "reclaimed"


@pytest.mark.case("rules:R16")
def test_what_has_left_is_not_brought_back(cluster: Cluster, tmp_path: Path) -> None:
    """Files that a late driver left behind are of a number that has left: nothing is made of them."""
    cluster.create(backup_retention_seconds=0)
    cluster.serve(cluster.push_plan())
    files = {path: cluster.deep.get(path) for path in cluster.files(cluster.version(1).path)}
    cluster.serve(cluster.push_plan())
    cluster.settle(2)
    cluster.pass_seconds(LIMITS.reclaim_grace_seconds + 1)
    cluster.settle(2)
    for path, content in files.items():
        cluster.deep.put(path, content)
    with _without_catalog(cluster, tmp_path) as again:
        _restore(again)
        assert ([version.number for version in again.store().versions], again.store().has_left(1)) == ([2], True)
        assert again.store().next_version == 3


def _topic(cluster: Cluster, partition: int) -> TopicPartition:
    feed = cluster.store().feeds[0]
    return TopicPartition(feed.topic, feed.topic_uid, partition)


def test_opening_leaves_the_catalog_empty(tmp_path: Path) -> None:
    """A controller that starts with an empty catalog and an old deep store makes nothing up by itself."""
    with opened_cluster(tmp_path) as cluster:
        cluster.create()
        cluster.round()
    (tmp_path / "catalog.sqlite").unlink()
    with opened_cluster(tmp_path) as again:
        again.settle(2)
        assert again.context.catalog.stores() == []
        assert isinstance(again.context.catalog, DatabaseCatalog)
