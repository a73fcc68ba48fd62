"""What every catalog promises of topics of our own, as tests; see `anew.catalog.interface`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anew.catalog.change import PutTopic
from anew.catalog.forget import DropTopic
from anew.catalog.interface import Catalog
from anew.core.errors import Refused
from anew.core.topics.topic import Kept, TopicFormat
from anew.testing.builders import a_topic
from anew.testing.catalog_contract import a_change
from anew.testing.clock import NOON_MS
from anew.testing.opened_catalog import OpenedCatalog

_UID = "uid-clicks"


def _refused(code: str, act: Callable[[], object]) -> None:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code == code


class TopicsCatalogContract(OpenedCatalog):
    """The contract; ``catalog`` is an empty catalog."""

    def test_a_topic_comes_back_whole(self, catalog: Catalog, tmp_path: Path) -> None:
        """Everything in a topic survives, for other handles too, with its first revision; listing goes by name."""
        topic = a_topic(
            format=TopicFormat.AVRO,
            key_schema='"string"',
            key_schema_id=7,
            value_schema='"long"',
            value_schema_id=8,
            kept=Kept(time_ms=1_000, partition_bytes=2_000),
            incarnation=3,
            ready=True,
        )
        catalog.commit(a_change("op-1", PutTopic(topic, None), subject="clicks"))
        catalog.commit(a_change("op-2", PutTopic(a_topic("alerts", columns="a INT"), None)))
        expected = topic.model_copy(update={"revision": 1})
        other = self.open_catalog(tmp_path)
        for handle in (catalog, other):
            assert handle.topic("clicks") == expected
            assert handle.topic_by_uid(topic.uid) == expected
            assert [found.name for found in handle.topics()] == ["alerts", "clicks"]
        assert (catalog.topic("other"), catalog.topic_by_uid("other"), catalog.deleted_topics()) == (None, None, [])
        other.close()

    @pytest.mark.case("rules:R22")
    def test_a_topic_changes_by_compare_and_swap(self, catalog: Catalog) -> None:
        """Of two changes from one revision the first wins; the second leaves nothing, no line of history either."""
        catalog.commit(a_change("op-1", PutTopic(a_topic(), None)))
        catalog.commit(a_change("op-2", PutTopic(a_topic(ready=True), 1)))
        for fence in (1, 3):
            put = PutTopic(a_topic(), fence)
            _refused("revision_conflict", lambda put=put: catalog.commit(a_change("op-refused", put)))  # type: ignore[misc]  # mypy knows no type of a lambda's default
        found = catalog.topic("clicks")
        assert found is not None
        assert (found.revision, found.ready) == (2, True)
        assert [operation.id for operation in catalog.history(None, 9)] == ["op-2", "op-1"]

    def test_a_taken_name_is_refused(self, catalog: Catalog) -> None:
        """Two live topics cannot have one name, nor two topics one identity."""
        catalog.commit(a_change("op-1", PutTopic(a_topic(), None)))
        _refused("topic_exists", lambda: catalog.commit(a_change("op-2", PutTopic(a_topic(uid="uid-2"), None))))
        renamed = a_topic("alerts", uid=_UID)
        _refused("revision_conflict", lambda: catalog.commit(a_change("op-3", PutTopic(renamed, None))))
        assert ([topic.uid for topic in catalog.topics()], len(catalog.history(None, 9))) == ([_UID], 1)

    @pytest.mark.case("rules:R16")
    def test_a_deleted_topic_s_name_comes_back(self, catalog: Catalog) -> None:
        """A deleted topic is found by its identity alone; another one may take its name."""
        catalog.commit(a_change("op-1", PutTopic(a_topic(), None)))
        gone = a_topic(deleted_at_ms=NOON_MS)
        catalog.commit(a_change("op-2", PutTopic(gone, 1)))
        expected = gone.model_copy(update={"revision": 2})
        assert (catalog.topic("clicks"), catalog.topics()) == (None, [])
        assert (catalog.deleted_topics(), catalog.topic_by_uid(_UID)) == ([expected], expected)
        catalog.commit(a_change("op-3", PutTopic(a_topic(uid="uid-2"), None)))
        found = catalog.topic("clicks")
        assert found is not None
        assert found.uid == "uid-2"

    def test_a_deleted_topic_is_dropped(self, catalog: Catalog) -> None:
        """Only a deleted one goes, and only at the revision that was looked at."""
        catalog.commit(a_change("op-1", PutTopic(a_topic(), None)))
        _refused("revision_conflict", lambda: catalog.commit(a_change("op-2", DropTopic(_UID, 1))))
        catalog.commit(a_change("op-3", PutTopic(a_topic(deleted_at_ms=NOON_MS), 1)))
        _refused("revision_conflict", lambda: catalog.commit(a_change("op-4", DropTopic(_UID, 1))))
        catalog.commit(a_change("op-5", DropTopic(_UID, 2)))
        assert (catalog.deleted_topics(), catalog.topic_by_uid(_UID)) == ([], None)

    def test_topics_come_in_pages_by_name(self, catalog: Catalog) -> None:
        """All live ones, each once; none that was deleted."""
        names = ["t4", "t2", "t0", "t3", "t1"]
        catalog.commit(a_change("op-1", *(PutTopic(a_topic(name), None) for name in names)))
        catalog.commit(a_change("op-2", PutTopic(a_topic("t2", deleted_at_ms=NOON_MS), 1)))
        assert [topic.name for topic in catalog.topics_page("", 2)] == ["t0", "t1"]
        assert [topic.name for topic in catalog.topics_page("t1", 2)] == ["t3", "t4"]
        assert catalog.topics_page("t4", 2) == []
