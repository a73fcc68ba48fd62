"""SIGKILL of driver, controller or node at seeded moments of refreshes under query load."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest

from anew.core.errors import AnewError
from anew.runtime.connect import connect
from tests.cluster.commands import wait_until
from tests.crash.crashing import Crashing
from tests.processes import kill_family

_SEED = 20261123
_TABLES, _ROUNDS, _SEGMENTS, _ROWS = 3, 2, 6, 12_000
_VICTIMS = ("driver", "controller", "controller", "node", "node")
_CONVERGENCE_SECONDS = 400.0
_PAUSE_SECONDS = 0.1
"""Between two questions: who comes back from the dead needs the processors too."""
_SORTS = (("city",), ("fare", "city"))
_COLUMNS = [
    {"name": "id", "type": "bigint", "nullable": False},
    {"name": "city", "type": "varchar"},
    {"name": "fare", "type": "double"},
]
_QUESTIONS = (
    "SELECT count(*), sum(id)::BIGINT FROM {table}",
    "SELECT city, count(*), sum(fare)::BIGINT FROM {table} GROUP BY city ORDER BY city",
    "SELECT count(*) FROM {table} WHERE id BETWEEN 3000 AND 5999",
    "SELECT max(id), min(fare) FROM {table} WHERE city = 'city-3'",
)

pytestmark = pytest.mark.timeout(1_500)


@dataclass(slots=True)
class Asking:
    """A reader that asks the tables in turn, and knows each answer from plain DuckDB on the source file."""

    home: Path
    tables: list[str]
    expected: list[list[tuple[Any, ...]]]
    asked: int = 0
    failed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until told to end."""
        with connect(home=str(self.home)) as cluster:
            while not self.ended.is_set():
                for table in self.tables:
                    for question, expected in zip(_QUESTIONS, self.expected, strict=True):
                        self._ask(cluster, question.format(table=table), expected)
                        self.ended.wait(_PAUSE_SECONDS)

    def _ask(self, cluster: Any, sql: str, expected: list[tuple[Any, ...]]) -> None:
        try:
            answered = cluster.query(sql)
        except AnewError as error:
            self.failed.append(f"{sql}: {error}")
            return
        found = [tuple(row.values()) for row in answered.table.to_pylist()]
        self.asked += 1
        if found != expected:
            self.wrong.append(f"{sql} on {answered.node}: {found[:3]} for {expected[:3]}")


def _source(folder: Path) -> Path:
    path = folder / "source.csv"
    lines = (f"{n},city-{n * 7 % 11},{n * 13 % 101}.0\n" for n in range(_ROWS))
    path.write_text("id,city,fare\n" + "".join(lines))
    return path


def _answers(source: Path) -> list[list[tuple[Any, ...]]]:
    with duckdb.connect() as plain:
        plain.execute(f"CREATE TABLE source AS SELECT * FROM read_csv('{source}')")
        return [plain.execute(question.format(table="source")).fetchall() for question in _QUESTIONS]


@pytest.fixture(scope="module")
def tables(crashing: Crashing, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """Loaded tables whose refresh task looks every minute, and the file that they were loaded from."""
    folder = tmp_path_factory.mktemp("tables")
    source, schema = _source(folder), folder / "schema.json"
    schema.write_text(json.dumps({"columns": _COLUMNS}))
    names = [f"killed_{number}" for number in range(_TABLES)]
    for name in names:
        settings = [f"segment_rows={_ROWS // _SEGMENTS}", "sort=id", 'refresh={"schedule": "* * * * *"}']
        arguments = [word for setting in settings for word in ("--set", setting)]
        crashing.anew.here("table", "create", name, "--schema", str(schema), *arguments)
        crashing.anew.here("table", "load", name, str(source), "--prefix", "s")
    for name in names:
        wait_until(lambda name=name: _converged(crashing, name), f"nodes to serve {name}")  # type: ignore[misc]  # now
    return names, source


@contextmanager
def _asking(crashing: Crashing, names: list[str], source: Path) -> Iterator[Asking]:
    asking = Asking(crashing.anew.home, names, _answers(source))
    reader = threading.Thread(target=asking.run)
    reader.start()
    try:
        yield asking
    finally:
        asking.ended.set()
        reader.join()


def test_refreshes_outlast_thirty_deaths(crashing: Crashing, tables: tuple[list[str], Path]) -> None:
    """No query fails, none is answered wrongly, and all tables converge without a command."""
    names, source = tables
    dice = random.Random(_SEED)
    deaths = 0
    with _asking(crashing, names, source) as asking:
        for sort in _SORTS[:_ROUNDS]:
            deaths += _round(crashing, names, sort, dice)
            for name in names:
                wait_until(
                    lambda name=name: _converged(crashing, name),  # type: ignore[misc]  # bound now
                    f"{name} to converge",
                    _CONVERGENCE_SECONDS,
                )
    assert deaths == len(_VICTIMS) * _TABLES * _ROUNDS == 30
    assert (asking.failed[:3], asking.wrong[:3]) == ([], [])
    assert asking.asked > 50
    crashing.await_healthy()


_DEALS = ((_ROWS, 1), (1_000, 12), (5_000, 3))
"""How many rows a segment holds at most, and how many segments that makes."""


def test_a_prefix_loaded_again_is_never_there_twice_or_not_at_all(crashing: Crashing, tmp_path: Path) -> None:
    """While a controller dies in each load that deals the same rows otherwise, every query sees each row once."""
    name, source, schema = "loaded_again", _source(tmp_path), tmp_path / "schema.json"
    schema.write_text(json.dumps({"columns": _COLUMNS}))
    crashing.await_controller()
    crashing.anew.here("table", "create", name, "--schema", str(schema), "--set", "segment_rows=2000")
    crashing.anew.here("table", "load", name, str(source), "--prefix", "s")
    wait_until(lambda: _served(crashing, name, _SEGMENTS), f"nodes to serve {name}")
    with _asking(crashing, [name], source) as asking:
        for rows, count in _DEALS:
            crashing.await_controller()
            crashing.anew.here("table", "update", name, "--set", f"segment_rows={rows}")
            _load_under_death(crashing, name, source)
            wait_until(
                lambda count=count: _served(crashing, name, count),  # type: ignore[misc]  # bound now
                f"{count} segments to be served",
                _CONVERGENCE_SECONDS,
            )
    assert (asking.failed[:3], asking.wrong[:3]) == ([], [])
    assert asking.asked > len(_QUESTIONS) * len(_DEALS)


def _load_under_death(crashing: Crashing, name: str, source: Path) -> None:
    driver = crashing.anew.start("table", "load", name, str(source), "--prefix", "s", start_new_session=True)
    try:
        wait_until(lambda: _begun(crashing, name, driver), "the load to begin")
        crashing.await_sound("controller")
        os.kill(crashing.pid("controller"), signal.SIGKILL)
        assert driver.wait(_CONVERGENCE_SECONDS) == 0
    finally:
        kill_family(driver.pid)
        driver.communicate()


def _begun(crashing: Crashing, name: str, driver: subprocess.Popen[str]) -> bool:
    try:
        running = crashing.controller.rebuilds(table=name, running=True)
    except AnewError:
        return False
    return bool(running) or driver.poll() is not None


def _served(crashing: Crashing, name: str, count: int) -> bool:
    """Whether the table has so many segments, each served by its nodes as it is."""
    try:
        found = crashing.controller.segments(name)
    except AnewError:
        return False
    return len(found) == count and all(
        copy.state == "serving" and copy.build == segment.build for segment in found for copy in segment.replicas
    )


def _round(crashing: Crashing, names: list[str], sort: tuple[str, ...], dice: random.Random) -> int:
    """Change every table and refresh it; in each driver, controller and nodes die; returns how often."""
    deaths = 0
    for name in names:
        crashing.await_controller()
        crashing.anew.here("table", "update", name, "--set", f"sort={','.join(sort)}")
        driver = crashing.anew.start("table", "refresh", name, start_new_session=True)
        try:
            for victim in dice.sample(_VICTIMS, len(_VICTIMS)):
                _await_progress(crashing, name, driver, dice.randrange(_SEGMENTS))
                threading.Event().wait(dice.random() / 4)
                _kill(crashing, victim, driver, dice)
                deaths += 1
        finally:
            kill_family(driver.pid)
            driver.communicate()
    return deaths


def _await_progress(crashing: Crashing, name: str, driver: subprocess.Popen[str], segments: int) -> None:
    """Until a refresh of the table has done so many segments, or its driver has gone."""

    def reached() -> bool:
        try:
            running = [r for r in crashing.controller.rebuilds(table=name, running=True) if r.kind == "refresh"]
        except AnewError:
            return driver.poll() is not None
        return driver.poll() is not None or any(r.progress.done >= segments for r in running)

    wait_until(reached, f"a refresh of {name} to have done {segments} segments")


def _kill(crashing: Crashing, victim: str, driver: subprocess.Popen[str], dice: random.Random) -> None:
    if victim == "driver":
        kill_family(driver.pid)
        driver.communicate()
        return
    process = "controller" if victim == "controller" else f"node-{dice.randrange(3) + 1}"
    # One that just began to live is started again only after a pause: nothing would be learnt from that.
    crashing.await_sound(process)
    os.kill(crashing.pid(process), signal.SIGKILL)
    if victim == "controller":
        crashing.await_controller()


def _converged(crashing: Crashing, name: str) -> bool:
    """Whether every segment is made with the wanted configuration, and served so by each of its nodes."""
    try:
        found = crashing.controller.segments(name)
    except AnewError:
        return False
    return len(found) == _SEGMENTS and all(
        not segment.stale
        and len(segment.replicas) == 2
        and all(c.state == "serving" and c.build == segment.build for c in segment.replicas)
        for segment in found
    )
