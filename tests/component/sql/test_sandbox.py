"""Processes that run queries: what goes wrong in one stays there, and it cannot write."""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from anew.core.errors import Failed, InvalidRequest, Unreachable
from anew.sql.guard import Guard
from anew.sql.pool import QueryPool
from anew.sql.sandbox import KEPT_SETS, QueryProcess, Question, read_answer
from anew.sql.views import TableView
from tests.component.sql.tables import LIMITS, columns, segment
from tests.component.sql.unchecked import run_unchecked

pytestmark = pytest.mark.processes

ENDLESS = "SELECT count(*) FROM range(100000000000) a, range(1000) b"


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> TableView:
    """A table of one file."""
    path = tmp_path_factory.mktemp("segments") / "a.parquet"
    return TableView("t", columns(id="bigint"), (segment(path, pa.table({"id": range(1_000)})),))


@pytest.fixture(scope="module")
def process() -> Iterator[QueryProcess]:
    """One process for the tests that do not kill it on purpose, or do not mind."""
    made = QueryProcess()
    yield made
    made.close()


def _question(view: TableView, sql: str, *, seconds: float = LIMITS.seconds, set_id: str = "s") -> Question:
    return Question(set_id, (view,), sql, dataclasses.replace(LIMITS, seconds=seconds))


def _only(process: QueryProcess | QueryPool, question: Question) -> object:
    return read_answer(process.execute(question))[0][0].as_py()


def test_answers_come_as_tables(process: QueryProcess, view: TableView) -> None:
    """A query's answer is an Arrow table; the same process answers the next one."""
    assert _only(process, _question(view, "SELECT sum(id) FROM t")) == 499_500
    pid = process.pid
    assert read_answer(process.execute(_question(view, "SELECT id FROM t WHERE id < 0"))).num_rows == 0
    assert process.pid == pid


def test_errors_come_as_they_are(process: QueryProcess, view: TableView) -> None:
    """The class and the code of an error are those that the engine raised."""
    for sql, code in (
        ("SELECT nosuch FROM t", "bad_query"),
        ("COPY t TO 'x'", "not_a_query"),
        (ENDLESS, "query_timeout"),
    ):
        with pytest.raises(InvalidRequest) as failed:
            process.execute(_question(view, sql, seconds=0.3))
        assert failed.value.code == code


def test_sets_are_kept_and_forgotten(process: QueryProcess, view: TableView) -> None:
    """More sets than are kept, dropped ones and their ids with other views are all answered."""
    for number in (*range(KEPT_SETS + 2), *range(KEPT_SETS + 2)):
        assert _only(process, _question(view, "SELECT count(*) FROM t", set_id=f"set{number}")) == 1_000
    process.drop("set0")
    other = TableView("other", view.columns, ())
    assert _only(process, _question(other, "SELECT count(*) FROM other", set_id="set0")) == 0


def test_a_process_that_stands_still_is_killed(
    process: QueryProcess, view: TableView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not even answer that time is up is killed, and the next query has a fresh one."""
    monkeypatch.setattr("anew.sql.sandbox.GRACE_SECONDS", 0.3)
    assert _only(process, _question(view, "SELECT 1")) == 1
    stopped = process.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    with pytest.raises(InvalidRequest) as failed:
        process.execute(_question(view, "SELECT 1", seconds=0.2))
    assert failed.value.code == "query_timeout"
    assert not psutil.pid_exists(stopped)
    assert _only(process, _question(view, "SELECT 1")) == 1


def test_a_process_that_dies_is_replaced(process: QueryProcess, view: TableView) -> None:
    """A query whose process is killed fails as such; the next one is answered."""
    assert _only(process, _question(view, "SELECT 1")) == 1
    killed = process.pid
    assert killed is not None
    threading.Timer(0.3, os.kill, (killed, signal.SIGKILL)).start()
    with pytest.raises(Failed) as failed:
        process.execute(_question(view, ENDLESS))
    assert (failed.value.code, "-9" in failed.value.found) == ("query_process_died", True)
    assert _only(process, _question(view, "SELECT count(*) FROM t")) == 1_000
    assert process.pid != killed


def test_the_process_yields_to_others(process: QueryProcess, view: TableView) -> None:
    """It runs at lower priority, and is the first to go when the machine runs out of memory."""
    process.execute(_question(view, "SELECT 1"))
    child = psutil.Process(process.pid)
    assert child.nice() == psutil.Process().nice() + 5
    assert Path(f"/proc/{child.pid}/oom_score_adj").read_text() == "500\n"


def test_a_process_ends_with_its_parent() -> None:
    """When the parent is killed no query process stays."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    parent = context.Process(target=_own_a_process, args=(theirs,))
    parent.start()
    assert ours.poll(60)
    child = psutil.Process(ours.recv())
    parent.kill()
    parent.join()
    child.wait(timeout=10)


def _own_a_process(connection: multiprocessing.connection.Connection) -> None:
    process = QueryProcess()
    process.execute(Question("s", (), "SELECT 1", LIMITS))
    connection.send(process.pid)
    threading.Event().wait(60)


def test_nothing_can_be_written(view: TableView) -> None:
    """Past the check of statements a COPY over a segment's file fails, and every byte of it stays."""
    path = Path(view.files[0].path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    statements = [
        f"COPY (SELECT 1) TO '{path}' (FORMAT parquet, USE_TMP_FILE false)",
        f"COPY (SELECT 1) TO '{path}' (FORMAT csv, USE_TMP_FILE false)",
        f"COPY (SELECT 1) TO '{path}'",
        f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{path}' (FORMAT parquet, USE_TMP_FILE false)",
    ]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=run_unchecked, args=(theirs, view, statements))
    child.start()
    assert ours.poll(60)
    guard, *told = ours.recv()
    child.join()
    if guard != Guard.LANDLOCK:
        pytest.skip("this kernel has no Landlock")
    assert all("ermission" in line for line in told), told
    assert len(told) == len(statements) + 3
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_a_spill_directory_can_be_written(view: TableView, tmp_path: Path) -> None:
    """The folder for what does not fit into memory is the exception to the guard."""
    process = QueryProcess(spill_directory=str(tmp_path))
    sql = (
        "SELECT count(*) FROM (SELECT i::VARCHAR || repeat('x', 100) AS s FROM range(900000) r(i) ORDER BY s OFFSET 1)"
    )
    limits = dataclasses.replace(LIMITS, memory_bytes=60_000_000)
    try:
        assert _only(process, Question("s", (view,), sql, limits)) == 899_999
    finally:
        process.close()
    assert list(tmp_path.iterdir()) == []


def test_a_pool_answers_several_at_once(view: TableView) -> None:
    """A long query does not keep a short one waiting; when all processes are busy, waiting has an end."""
    pool = QueryPool(processes=2)
    try:
        assert _only(pool, _question(view, "SELECT count(*) FROM t")) == 1_000
        codes: list[str] = []
        threads = [threading.Thread(target=_expect_error, args=(pool, view, codes)) for _ in range(2)]
        threads[0].start()
        assert _only(pool, _question(view, "SELECT count(*) FROM t")) == 1_000
        threads[1].start()
        # The second thread has to have its process before a third query can find none.
        deadline = time.monotonic() + 10
        while not pool._free.empty() and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        with pytest.raises(Unreachable) as busy:
            pool.execute(_question(view, "SELECT 1", seconds=0.2))
        assert busy.value.code == "queries_busy"
        for thread in threads:
            thread.join()
        assert codes == ["query_timeout"] * 2
        pool.drop("s")
        assert _only(pool, _question(view, "SELECT count(*) FROM t")) == 1_000
    finally:
        pool.close()


def _expect_error(pool: QueryPool, view: TableView, codes: list[str]) -> None:
    try:
        pool.execute(_question(view, ENDLESS, seconds=4))
    except InvalidRequest as error:
        codes.append(error.code)
