"""Queries and swaps at the same time, in threads of their own and with a real loader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from anew.api.tables.segments import DesiredTable
from anew.core.errors import AnewError
from anew.node.loader import Loader
from tests.component.node.harness import wait_for
from tests.component.node.tables.asking import Asker, Between, Rows, asker, query_processes
from tests.component.node.tables.harness import PLAIN, SORTED, Rig, rig, rows, segment, table

pytestmark = pytest.mark.processes

SEGMENTS, GENERATIONS, REMOTE = 4, 6, 1
PARTS = "SELECT id % 1000 // 100 AS s, id // 1000 AS g, count(*) FROM trips GROUP BY ALL ORDER BY ALL"


@pytest.fixture(scope="module")
def pool() -> Iterator[Between]:
    """The processes that run queries."""
    with query_processes() as made:
        yield made


@pytest.fixture
def loader() -> Iterator[Loader]:
    """A loader with a process of its own."""
    made = Loader()
    yield made
    made.close()


def generation(node: Rig, number: int) -> DesiredTable:
    """All segments with ids that tell segment and generation; the last of them is hosted elsewhere."""
    config = SORTED if number % 2 else PLAIN
    built = [node.build(rows(1_000 * number + 100 * at), config) for at in range(SEGMENTS)]
    here = SEGMENTS - REMOTE
    return table(*(segment(each, f"s{at}", hosted=at < here) for at, each in enumerate(built)), config=config)


class Asking(threading.Thread):
    """Asks again and again, until it is told to end."""

    def __init__(self, asks: Asker) -> None:
        super().__init__(name="asking")
        self.answers: list[Rows] = []
        self.errors: list[AnewError] = []
        self._asks, self._ended = asks, threading.Event()

    def run(self) -> None:
        """See `threading.Thread.run`."""
        while not self._ended.is_set():
            try:
                self.answers.append(self._asks.rows(PARTS))
            except AnewError as error:
                self.errors.append(error)

    def has_more_than(self, answers: int) -> bool:
        """Whether so many questions were answered, and one more."""
        return len(self.answers) > answers

    def end(self) -> None:
        """No more questions."""
        self._ended.set()
        if self.ident is not None:
            self.join(30)
        assert not self.is_alive()


@pytest.mark.case("tables:E1")
def test_no_query_fails_or_sees_two_builds_of_a_segment(tmp_path: Path, pool: Between, loader: Loader) -> None:
    """While all segments are replaced again and again each answer has every segment once, and none goes back."""
    node = rig(tmp_path)
    host = node.restart(loader)
    wanted = generation(node, 0)
    host.accept(node.desired(wanted))
    host.start()
    asking = Asking(asker(node, pool))
    try:
        wait_for("the first builds", partial(serves, node, wanted))
        asking.start()
        for number in range(1, GENERATIONS):
            wanted = generation(node, number)
            host.accept(node.desired(wanted))
            wait_for(f"the builds of generation {number}", partial(serves, node, wanted))
            # The first of the next two may have begun before.
            wait_for("an answer after them", partial(asking.has_more_than, len(asking.answers) + 1))
    finally:
        asking.end()
        host.stop()
    assert asking.errors == []
    newest = [0] * SEGMENTS
    for answer in asking.answers:
        assert [(at, count) for at, _, count in answer] == [(at, 40) for at in range(SEGMENTS)]
        generations = [number for _, number, _ in answer]
        assert all(now >= before for now, before in zip(generations, newest, strict=True))
        newest = generations
    assert newest == [GENERATIONS - 1] * SEGMENTS
    node.work()
    assert len(node.files()) == 2 * (SEGMENTS - REMOTE)


def serves(node: Rig, wanted: DesiredTable) -> bool:
    """Whether every hosted segment's wanted build is served."""
    builds = {each.name: each.build.id for each in wanted.segments if each.hosted}
    return {report.segment: report.build for report in node.host.report()} == builds


def test_the_thread_ends_and_leaves_what_it_serves(tmp_path: Path, loader: Loader) -> None:
    """A host that was stopped has its files on the disk; the next one serves them without any job."""
    node = rig(tmp_path)
    host = node.restart(loader)
    wanted = generation(node, 0)
    host.accept(node.desired(wanted))
    host.start()
    wait_for("the builds", lambda: serves(node, wanted))
    host.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "segments"]
    before = {path: path.stat().st_mtime_ns for path in node.files() if path.suffix == ".parquet"}
    node.restart()
    node.settle(wanted)
    assert (node.loader.done, serves(node, wanted)) == ([], True)
    assert {path: path.stat().st_mtime_ns for path in before} == before
