"""Documents of versions from before a version's life in a fabric was one value."""

from __future__ import annotations

import json
from typing import Any

from anew.core.feed import NOWHERE, PositionMap
from anew.core.stores.oldversions import by_fabric
from anew.core.stores.store import ManifestRef, Store, Version, VersionStatus, VersionTopic
from anew.testing.builders import FABRIC, a_feed, a_store, a_version
from anew.testing.clock import NOON_MS

_FEED = a_feed(partitions=2)
_START = PositionMap(dict.fromkeys(_FEED.feed_partitions(), 5))
_MANIFEST = ManifestRef(path="m", checksum="c", files=1, rows=1, tombstones=0, bytes=1, fingerprint=1 << 63)
_TOPIC = VersionTopic(name="flights_v1", uid="u", ready=True)


def _old(version: Version, **stated: Any) -> dict[str, Any]:
    """The document of a version as releases before wrote it; ``stated`` are the fields that were of all fabrics."""
    document: dict[str, Any] = json.loads(version.model_dump_json(exclude={"fabrics", "replaces"}))
    return document | stated


def test_what_was_said_of_all_fabrics_is_said_of_each() -> None:
    """Each fabric keeps its status and its times; base, start, target and error were one for all."""
    old = _old(
        a_version(1, feeds=(_FEED.id,)),
        statuses={FABRIC: "current", "dc-1": "backup"},
        since_ms={FABRIC: NOON_MS, "dc-1": NOON_MS + 7},
        swap_from={FABRIC: 3},
        assignment={FABRIC: {"0": ["node-1"], "1": []}},
        topics={"dc-1": _TOPIC.model_dump()},
        manifest=_MANIFEST.model_dump(),
        start=_START.to_json(),
        ready_target=_START.to_json(),
        error="it waits",
    )
    read = Version.model_validate_json(json.dumps(old))
    here, there = read.fabrics[FABRIC], read.fabrics["dc-1"]
    assert list(read.fabrics) == [FABRIC, "dc-1"]
    assert (here.status, here.since_ms, here.swap_from) == (VersionStatus.CURRENT, NOON_MS, 3)
    assert (there.status, there.since_ms, there.swap_from) == (VersionStatus.BACKUP, NOON_MS + 7, 0)
    assert (here.assignment, there.assignment) == ({0: ("node-1",), 1: ()}, {})
    assert (here.topic, there.topic) == (None, _TOPIC)
    for each in (here, there):
        assert (each.manifest, each.start, each.ready_target, each.error) == (_MANIFEST, _START, _START, "it waits")


def test_what_was_not_said_is_as_of_a_new_version() -> None:
    """A version that was being built had neither base nor start."""
    old = _old(a_version(1), statuses={FABRIC: "building"}, since_ms={FABRIC: NOON_MS}, manifest=None, start={})
    read = Version.model_validate(old)
    assert read == a_version(1, VersionStatus.BUILDING)
    assert read.fabrics[FABRIC].start == NOWHERE


def test_a_store_reads_its_versions_of_both_kinds() -> None:
    """One document may hold versions of before and of now; what is written is of now, and read again the same."""
    now = a_version(2, manifest=_MANIFEST, start=_START)
    old = _old(a_version(1), statuses={FABRIC: "backup"}, since_ms={FABRIC: NOON_MS})
    document = a_store().model_dump(mode="json") | {"versions": [old, now.model_dump(mode="json")]}
    store = Store.model_validate_json(json.dumps(document))
    assert store.versions == (a_version(1, VersionStatus.BACKUP), now)
    assert "statuses" not in store.model_dump_json()
    assert Store.model_validate_json(store.model_dump_json()) == store


def test_what_is_of_now_is_left_as_it_is() -> None:
    """A document is not changed twice."""
    document = a_version(1).model_dump(mode="json")
    assert by_fabric(document) == document
