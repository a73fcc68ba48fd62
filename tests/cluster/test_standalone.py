"""Pushes and repushes on a real Spark cluster: executors are other processes, with another directory and Python."""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster import notebook
from tests.cluster.commands import Anew, Answer, wait_until
from tests.cluster.standalone import SparkCluster, bare_python, spark_standalone
from tests.crash.halts import APPENDED, FILES, Halts
from tests.needs import missing

pytestmark = pytest.mark.timeout(600)

_PUSH = ("--key", "id", "--value", "name,age")
_SETTINGS = ("hybrid=true", "partitions=2", "rt_partitions=2")
_PATIENCE_SECONDS = 240.0
_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """The Spark cluster of these tests."""
    with spark_standalone() as running:
        yield running


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without anew, and with all that anew imports."""
    python = bare_python(tmp_path_factory.mktemp("pythons") / "bare")
    found = subprocess.run([python, "-c", "import pydantic, pyspark; import anew"], capture_output=True, check=False)
    assert b"No module named 'anew'" in found.stderr
    return python


@pytest.fixture
def healthy(cluster: SparkCluster) -> SparkCluster:
    """The cluster with both workers."""
    cluster.heal()
    return cluster


@dataclass(frozen=True, slots=True)
class Notebook:
    """A running `tests.cluster.notebook`, whose tasks stand still at armed points."""

    process: subprocess.Popen[str]
    halts: Halts

    def begin(self, *arguments: str, **order: Any) -> None:
        """Let a command begin; see `tests.cluster.notebook` for what an order may say."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"arguments": arguments, **order}) + "\n")
        self.process.stdin.flush()

    def end(self) -> Answer:
        """Wait for the command's end."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], _PATIENCE_SECONDS)[0], "the notebook does not answer"
        line = self.process.stdout.readline()
        assert line, "the notebook is gone"
        answer = json.loads(line)
        return Answer(answer["code"], answer["out"], "")

    def run(self, *arguments: str, **order: Any) -> Answer:
        """Run a command to its end."""
        self.begin(*arguments, **order)
        return self.end()


@pytest.fixture(scope="module")
def notebook_(
    cluster: SparkCluster, anew: Anew, bare: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Notebook]:
    """A session that anew did not make: the package comes to its executors as the documents say."""
    folder = tmp_path_factory.mktemp("notebook")
    package = folder / "anew.zip"
    subprocess.run([sys.executable, "-m", "anew.spark.package", package], check=True, stdout=subprocess.DEVNULL)
    halts = Halts(folder)
    conf = {**cluster.conf, "spark.master": cluster.url, "spark.submit.pyFiles": str(package), **_executors(halts)}
    with subprocess.Popen(
        [sys.executable, notebook.__file__, json.dumps(conf)],
        env={**anew.environment, "PYSPARK_PYTHON": str(bare)},
        cwd=folder,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        yield Notebook(process, halts)
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(60)
        finally:
            process.kill()


def _executors(halts: Halts) -> dict[str, str]:
    """The settings by which tasks stand still at armed points."""
    return {f"spark.executorEnv.{name}": value for name, value in halts.environment.items()}


def _options(cluster: SparkCluster, bare: Path, *more: dict[str, str]) -> list[str]:
    settings: dict[str, str] = {"spark.pyspark.python": str(bare)}
    for each in more:
        settings |= each
    return [*cluster.options, *(part for k, v in settings.items() for part in ("--conf", f"{k}={v}"))]


def _base_files(anew: Anew, store: str, version: int) -> list[Path]:
    """The base files of a version that lie in the deep store, whoever wrote them."""
    uid = anew.here("store", "show", store)["uid"]
    return list((anew.home / "deepstore" / "dc-0" / "stores" / uid / f"v{version}").rglob("*.parquet"))


def _people(anew: Anew, store: str) -> dict[Any, Any]:
    """A store of twenty people in two partitions, written in 22 records; returns what it holds."""
    anew.create(store, *_SETTINGS)
    anew.here("push", store, "--empty")
    rows = [{"key": f"p{n}", "value": {"name": f"name {n}", "age": n + 20}} for n in range(20)]
    anew.write(store, *rows, {"key": "p1", "value": {"name": "new", "age": 1}}, {"key": "p2", "delete": True})
    return anew.scan(store)


def _ended(driver: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = driver.communicate(timeout=_PATIENCE_SECONDS)
    finally:
        driver.kill()
    return driver.returncode, out, err


def test_a_push_and_a_repush_on_a_cluster_make_what_local_ones_make(
    anew: Anew, healthy: SparkCluster, bare: Path, tmp_path: Path
) -> None:
    """Executors lack anew and have another directory; the driver's paths are relative; rows and hashes are equal."""
    rows = [f"p{n},name {n},{n + 20}\n" for n in range(200)]
    (tmp_path / "input").mkdir()
    for number in range(2):
        lines = ["id,name,age\n", *rows[number::2], f"bad{number},no age,-\n"]
        (tmp_path / "input" / f"{number}.csv").write_text("".join(lines), encoding="utf-8")
    options = _options(healthy, bare)
    anew.create("far", *_SETTINGS)
    near = anew.here("push", "far", str(tmp_path / "input"), *_PUSH, "--bad-rows-to", str(tmp_path / "near.jsonl"))
    push = anew.start("push", "far", "input", *_PUSH, "--bad-rows-to", "bad.jsonl", *options, cwd=tmp_path)
    code, out, err = _ended(push)
    assert code == 0, (out[-2_000:], err[-2_000:])
    assert "build: read, merge, write" in err
    aside = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sorted((Path(row["file"]).name, row["line"], row["column"]) for row in aside) == [
        ("0.csv", 102, "age"),
        ("1.csv", 102, "age"),
    ]
    assert aside == [json.loads(line) for line in (tmp_path / "near.jsonl").read_text(encoding="utf-8").splitlines()]
    far = anew.here("rebuild", "list", "--store", "far")[0]
    assert far["version"] == 2
    assert far["ledger"] == near["ledger"]
    assert far["fingerprint"] == near["fingerprint"]
    anew.write("far", {"key": "p1", "value": {"name": "new", "age": 1}}, {"key": "p2", "delete": True})
    before = anew.scan("far")
    anew.here("store", "update", "far", "--set", "partitions=3")
    code, out, err = _ended(anew.start("repush", "far", "--json", *options, cwd=tmp_path))
    assert code == 0, (out[-2_000:], err[-2_000:])
    repushed = json.loads(out)
    assert repushed["plan"]["path"] == "general"
    assert repushed["ledger"]["read"] == 202
    anew.here("store", "wait", "far")
    assert anew.scan("far") == before
    again = anew.here("repush", "far")
    assert again["fingerprint"]["target"] == repushed["fingerprint"]["target"]
    assert anew.scan("far") == before


@pytest.mark.usefixtures("healthy")
def test_files_map_onto_files_on_a_cluster_too(anew: Anew, notebook_: Notebook, people: Path) -> None:
    """The co-partitioned path in a session of the user's own makes what a local one makes."""
    anew.create("mapped", *_SETTINGS)
    anew.push("mapped", people)
    anew.write("mapped", {"key": "p1", "value": {"name": "new", "age": 1}}, {"key": "p2", "delete": True})
    before = anew.scan("mapped")
    anew.here("store", "update", "mapped", "--set", "partitions=4")
    done = notebook_.run("repush", "mapped")
    assert done.code == 0, done.out
    assert done.json["plan"]["path"] == "copartitioned"
    anew.here("store", "wait", "mapped")
    assert anew.scan("mapped") == before
    again = anew.here("repush", "mapped")
    assert again["fingerprint"]["target"] == done.json["fingerprint"]["target"]


def test_killing_a_rebuild_stops_its_tasks_on_the_executors(
    anew: Anew, healthy: SparkCluster, bare: Path, tmp_path: Path
) -> None:
    """While a task stands still the progress is shown; the kill ends the driver and the task's process."""
    before = _people(anew, "cancelled")
    halts = Halts(tmp_path)
    halt = halts.arm(FILES, "before")
    driver = anew.start("repush", "cancelled", "--json", *_options(healthy, bare, _executors(halts)))
    task = halt.wait()
    (rebuild,) = [r for r in anew.here("rebuild", "list", "--store", "cancelled") if r["status"] == "running"]

    def counted() -> bool:
        progress = anew.here("rebuild", "show", rebuild["id"])["progress"]
        return bool(progress["unit"] == "tasks" and 0 < progress["done"] < progress["total"])

    wait_until(counted, "the progress to count tasks")
    anew.here("rebuild", "kill", rebuild["id"])
    code, out, _ = _ended(driver)
    assert code == 1
    assert json.loads(out)["error"]["code"] == "rebuild_killed"
    wait_until(lambda: not psutil.pid_exists(task), "the task's process to end")
    assert anew.scan("cancelled") == before


@pytest.mark.case("rules:R19", "rules:R22")
def test_a_speculative_copy_of_a_task_counts_once(
    anew: Anew, healthy: SparkCluster, bare: Path, tmp_path: Path
) -> None:
    """A task stands still with its file written; its copy on the other worker counts, the other file is reclaimed."""
    before = _people(anew, "twice")
    halts = Halts(tmp_path)
    halt = halts.arm(FILES, "after")
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
    }
    driver = anew.start("repush", "twice", "--json", *_options(healthy, bare, _executors(halts), speculation))
    halt.wait()
    code, out, err = _ended(driver)
    assert code == 0, (out[-2_000:], err[-2_000:])
    _check_counted_once(anew, "twice", json.loads(out), before)


@pytest.mark.case("rules:R19", "rules:R22")
def test_a_worker_that_dies_costs_nothing_but_time(anew: Anew, healthy: SparkCluster, notebook_: Notebook) -> None:
    """Worker, executor and a task with its file written die: the other worker does it again, nothing counts twice."""
    before = _people(anew, "survivor")
    halt = notebook_.halts.arm(FILES, "after")
    notebook_.begin("repush", "survivor")
    task = halt.wait()
    assert len(_base_files(anew, "survivor", 2)) >= 1
    healthy.kill_worker_of(task)
    done = notebook_.end()
    assert done.code == 0, done.out
    _check_counted_once(anew, "survivor", done.json, before)


def _check_counted_once(anew: Anew, store: str, done: Any, before: dict[Any, Any]) -> None:
    ledger = done["ledger"]
    assert (ledger["read"], ledger["superseded"], ledger["written"]) == (22, 2, 20)
    assert done["fingerprint"]["source"] == done["fingerprint"]["target"]
    anew.here("store", "wait", store)
    assert anew.scan(store) == before
    wait_until(lambda: len(_base_files(anew, store, 2)) == 2, "the dead attempt's file to be reclaimed")


_SHUFFLED = """
from pyspark.sql import functions as F


def shuffled(events):
    return events.repartition(2, "key").select("key", "value", "deleted", F.lit(10**12).alias("written_at"))
"""
_AGAIN = 5


@pytest.mark.case("rules:R20", "streams:C7")
def test_rows_that_a_job_shuffles_count_once_and_in_order_when_a_worker_dies(
    anew: Anew, healthy: SparkCluster, bare: Path, tmp_path: Path
) -> None:
    """Blocks of the shuffle come over the network, and a worker dies with a task that has appended, and its blocks.

    A plain reader gets rows twice. Those that count are there once, and of equal times the later one comes later.
    """
    (tmp_path / "shuffling.py").write_text(_SHUFFLED, encoding="utf-8")
    for topic in ("deal_in", "deal_out"):
        anew.here("topic", "create", topic, "--partitions", "3", "--key-schema", '"string"', "--value-schema", '"int"')
    rows = [{"key": f"k{n}", "value": again} for again in range(_AGAIN) for n in range(200)]
    wanted = {f"k{n}": list(range(_AGAIN)) for n in range(200)}
    anew.here("topic", "write", "deal_in", stdin="\n".join(json.dumps(row) for row in rows))
    halts = Halts(tmp_path)
    halt = halts.arm(APPENDED, "after")
    # Executors of one host would read one another's blocks from its disk.
    remote = {"spark.shuffle.readHostLocalDisk": "false"}
    code = f"{tmp_path / 'shuffling.py'}:shuffled"
    where = ("--input", "events=deal_in", "--output", "topic:deal_out")
    anew.done("job", "submit", "deal", code, *where, *_options(healthy, bare, _executors(halts), remote))
    anew.here("job", "run", "deal@1")
    healthy.kill_worker_of(halt.wait())

    def counted() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in anew.here("topic", "read", "deal_out_g1", "--limit", "10000", "--committed")["records"]:
            found.setdefault(row["key"], []).append(row["value"])
        return found

    wait_until(lambda: counted() == wanted, "each row to count once, in order", _PATIENCE_SECONDS)
    assert len(anew.here("topic", "read", "deal_out_g1", "--limit", "10000")) > len(rows)
    anew.here("job", "stop", "deal@1")
    anew.here("job", "delete", "deal", "--yes")


def test_without_any_worker_a_rebuild_fails_and_the_store_serves(
    anew: Anew, healthy: SparkCluster, notebook_: Notebook
) -> None:
    """Both workers die: Spark would wait for ever, the rebuild ends and says why; with workers again it works."""
    before = _people(anew, "deserted")
    halt = notebook_.halts.arm(FILES, "before")
    notebook_.begin("repush", "deserted", environment={"ANEW_EXECUTOR_WAIT_SECONDS": "3"})
    halt.wait()
    healthy.kill_workers()
    failed = notebook_.end()
    assert failed.code == 1
    assert failed.error["code"] == "no_executors"
    assert healthy.url in failed.error["found"]
    assert anew.scan("deserted") == before
    healthy.heal()
    assert notebook_.run("repush", "deserted").code == 0
    assert anew.scan("deserted") == before


@pytest.mark.usefixtures("healthy")
def test_executors_without_the_package_are_named_and_told_what_to_do(
    anew: Anew, notebook_: Notebook, tmp_path: Path
) -> None:
    """Without Python, without anew, or with another build of it the rebuild fails with one clear error for each."""
    _people(anew, "unfit")
    lacking = bare_python(tmp_path / "lacking")
    other = bare_python(tmp_path / "other", tmp_path / "build")
    shutil.copytree(_ROOT / "src" / "anew", tmp_path / "build" / "anew")
    with (tmp_path / "build" / "anew" / "core" / "merge.py").open("a", encoding="utf-8") as changed:
        changed.write("# Another build.\n")
    found = {
        name: notebook_.run("repush", "unfit", python=str(python), sent=False)
        for name, python in {"none": tmp_path / "nothing", "lacking": lacking, "other": other}.items()
    }
    assert {name: (answer.code, answer.error["code"]) for name, answer in found.items()} == {
        "none": (1, "python_missing_on_executors"),
        "lacking": (1, "package_missing_on_executors"),
        "other": (1, "package_differs_on_executors"),
    }
    assert str(tmp_path / "nothing") in found["none"].error["found"]
    assert found["lacking"].error["found"] == "No module named 'anew'"
    assert str(tmp_path / "build" / "anew") in found["other"].error["found"]
    assert "anew.spark.package" in found["other"].error["hint"]


@pytest.mark.parametrize(
    "case",
    [
        ("log", "repush", "unseen_by_executors", "the log"),
        ("deepstore", "repush", "unseen_by_executors", "the source's deep store"),
        ("deepstore", "push", "unseen_by_driver", "the deep store"),
        ("input", "push", "unseen_by_executors", "the input"),
    ],
    ids=lambda case: f"{case[1]} without {case[0]}",
)
@pytest.mark.usefixtures("healthy")
def test_what_executors_do_not_see_is_said_before_the_build(
    anew: Anew, notebook_: Notebook, bare: Path, tmp_path: Path, case: tuple[str, str, str, str]
) -> None:
    """An executor with another disk where log, deep store or input should be: a clear error, nothing is made."""
    hidden, command, code, named = case
    store = f"unseen_{command}_{hidden}"
    (tmp_path / "input").mkdir()
    people = tmp_path / "input" / "people.csv"
    people.write_text("id,name,age\np1,Ada,36\n", encoding="utf-8")
    folder = tmp_path / "input" if hidden == "input" else anew.home / hidden
    python = _python_elsewhere(tmp_path / "python", bare, folder)
    _people(anew, store)
    arguments: Sequence[str] = ("push", store, str(people), *_PUSH) if command == "push" else ("repush", store)
    failed = notebook_.run(*arguments, python=str(python))
    assert (failed.code, failed.error["code"]) == (1, code)
    assert named in failed.error["message"]
    assert _base_files(anew, store, 2) == []


def _python_elsewhere(path: Path, python: Path, folder: Path) -> Path:
    """An interpreter whose processes have an empty disk of their own where a folder is."""
    path.write_text(
        f'#!/bin/sh\nexec unshare --mount sh -c \'mount -t tmpfs none {folder} && exec {python} "$@"\' sh "$@"\n'
    )
    path.chmod(0o755)
    tried = subprocess.run([path, "-c", f"import os; assert not os.listdir({str(folder)!r})"], check=False)
    if tried.returncode != 0:
        missing("the right to mount a disk", "run as root")
    return path


def test_a_master_that_does_not_answer_is_named(anew: Anew, people: Path) -> None:
    """A wrong address fails the rebuild with the address in the error, before Spark would try for a minute."""
    anew.create("nobody", *_SETTINGS)
    pushed = anew.run("push", "nobody", str(people), *_PUSH, "--master", "spark://127.0.0.1:9")
    assert (pushed.code, pushed.error["code"]) == (1, "spark_unreachable")
    assert "127.0.0.1:9" in pushed.error["found"]
