"""The cache of segments that other nodes host: bounded, checked, cleaned, and fetched once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from anew.core.tables.segment import Build
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.node.tables.cache import SegmentCache
from tests.component.node.tables.harness import Rig, cut, damage, flipped, raised, rig, rows
from tests.disks import filled, small_disk


@pytest.fixture
def node(tmp_path: Path) -> Rig:
    """A deep store, and a node with an empty disk."""
    return rig(tmp_path)


def cache_of(node: Rig, most_bytes: int) -> SegmentCache:
    """An empty cache of the node."""
    return SegmentCache(node.folder / "cache", most_bytes, node.host.is_read)


def fetched(cache: SegmentCache, node: Rig, build: Build) -> bytes:
    """The bytes of a build, as a query gets them."""
    with node.host.reading([cache.path_of(build)]):
        return cache.fetch(node.deep.root_uri, build).read_bytes()


def kept(node: Rig) -> set[str]:
    """The builds of which there are files, and nothing else."""
    return {path.name.removesuffix(".parquet") for path in (node.folder / "cache").iterdir()}


def builds(node: Rig, count: int) -> list[Build]:
    """So many builds of about the same size."""
    return [node.build(rows(1_000 * number)) for number in range(count)]


def test_a_build_is_fetched_whole_and_read_only(node: Rig) -> None:
    """What is given out are the deep store's bytes, in a file that nobody may write, named by the build."""
    (build,) = builds(node, 1)
    cache = cache_of(node, 1_000_000)
    assert fetched(cache, node, build) == node.in_deep_store(build).read_bytes()
    path = cache.path_of(build)
    assert (path.name, path.stat().st_mode & 0o222) == (f"{build.id}.parquet", 0)


def test_it_keeps_what_was_used_last(node: Rig) -> None:
    """When there is too much, what was used longest ago goes; a use is no download when the file is there."""
    one, two, three, four = builds(node, 4)
    cache = cache_of(node, 2 * max(build.bytes for build in (one, two, three, four)))
    fetched(cache, node, one)
    fetched(cache, node, two)
    inode = cache.path_of(one).stat().st_ino
    fetched(cache, node, one)
    assert cache.path_of(one).stat().st_ino == inode
    fetched(cache, node, three)
    cache.trim()
    assert kept(node) == {one.id, three.id}
    fetched(cache, node, four)
    cache.trim()
    assert kept(node) == {three.id, four.id}


def test_what_is_read_stays_beyond_the_bound(node: Rig) -> None:
    """A cache without any room keeps each file as long as it is read, and not longer."""
    one, two = builds(node, 2)
    cache = cache_of(node, 0)
    with node.host.reading([cache.path_of(one)]):
        cache.fetch(node.deep.root_uri, one)
        fetched(cache, node, two)
        cache.trim()
        assert kept(node) == {one.id}
    cache.trim()
    assert kept(node) == set()
    assert fetched(cache, node, one) == node.in_deep_store(one).read_bytes()


def test_what_no_table_wants_goes(node: Rig) -> None:
    """Builds that were replaced or dropped go at once, or when nobody reads them any more, though there is room."""
    one, two, three = builds(node, 3)
    cache = cache_of(node, 1_000_000)
    for build in (one, two, three):
        fetched(cache, node, build)
    with node.host.reading([cache.path_of(two)]):
        cache.keep_only({three.id})
        assert kept(node) == {two.id, three.id}
    cache.trim()
    assert kept(node) == {three.id}
    fetched(cache, node, one)
    cache.trim()
    assert kept(node) == {three.id}


@pytest.mark.case("tables:E4")
@pytest.mark.parametrize("harm", [cut, flipped], ids=["cut", "flipped"])
def test_a_file_that_changed_is_refused(node: Rig, harm: Callable[[bytes], bytes]) -> None:
    """A file that was changed in the deep store is refused by its checksum, each time, until it is right again."""
    (build,) = builds(node, 1)
    cache, right = cache_of(node, 1_000_000), node.in_deep_store(build).read_bytes()
    damage(node.in_deep_store(build), harm(right))
    for _ in range(2):
        error = raised("checksum_mismatch", lambda: fetched(cache, node, build))
        assert (error.expected, kept(node)) == (build.sha256, set())
    node.deep.delete(build.path)
    raised("file_missing", lambda: fetched(cache, node, build))
    node.deep.put(build.path, right)
    assert fetched(cache, node, build) == right


class Counting:
    """A deep store whose downloads begin when so many have asked for a build."""

    def __init__(self, inside: DeepStore, asked: threading.Barrier) -> None:
        self.downloads: Counter[str] = Counter()
        self._inside, self._asked = inside, asked

    def download(self, path: str, target: Path, expected_checksum: str) -> None:
        """See `DeepStore.download`."""
        self.downloads[path] += 1
        self._asked.wait(timeout=10)
        self._inside.download(path, target, expected_checksum)


def test_a_build_that_many_ask_for_is_fetched_once(node: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries that need the same build at the same time wait for one download; each gets its file."""
    (build,) = builds(node, 1)
    cache, asked = cache_of(node, 1_000_000), threading.Barrier(4)
    deep = Counting(open_deep_store(node.deep.root_uri), asked)
    monkeypatch.setattr("anew.node.tables.cache.open_deep_store", lambda _root: deep)
    first = cache.path_of(build)

    def ask(at: int) -> bytes:
        if at:
            asked.wait(timeout=10)
        return fetched(cache, node, build)

    with ThreadPoolExecutor(4) as threads:
        answers: list[Any] = list(threads.map(ask, range(4)))
    assert answers == [first.read_bytes()] * 4
    assert deep.downloads == {build.path: 1}


def test_it_begins_empty(node: Rig) -> None:
    """What a process left, whole or not, is not trusted by the next one."""
    one, two = builds(node, 2)
    fetched(cache_of(node, 1_000_000), node, one)
    (node.folder / "cache" / "half.tmp").write_bytes(b"x")
    cache = cache_of(node, 1_000_000)
    assert kept(node) == set()
    fetched(cache, node, two)
    assert kept(node) == {two.id}


@pytest.mark.processes
def test_a_full_disk_leaves_nothing_half_written(node: Rig) -> None:
    """Without room the asker is told that the node is not ready for it; with room the same cache works."""
    build = node.build(rows(0, 30_000))
    with small_disk(node.folder / "cache", 1):
        cache = cache_of(node, 1_000_000)
        with filled(node.folder / "cache"):
            error = raised("not_ready", lambda: fetched(cache, node, build))
            assert ("No space left" in error.found, error.http_status) == (True, 503)
            assert kept(node) == {"filler"}
        assert fetched(cache, node, build) == node.in_deep_store(build).read_bytes()
        cache.keep_only(set())
        assert kept(node) == set()
