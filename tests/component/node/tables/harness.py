"""A node's segments over a real deep store, step by step: real files, a loader and a clock that are told when."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pytest

from anew.api.location import LogLocation
from anew.api.models import DesiredState
from anew.api.tables.segments import DesiredSegment, DesiredTable, SegmentReport
from anew.core.errors import AnewError, Unreachable
from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import Build
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.node.loader import Job, Submits
from anew.node.tables.fetchjob import SegmentJob
from anew.node.tables.hosting import SegmentHost
from anew.segments.tables.rebuild import make_file
from anew.sql.query import Limits
from tests.component.segments_tables.rows import config_of

LIMITS = Limits(memory_bytes=512_000_000, seconds=30.0, rows=1_000_000, threads=1)
COLUMNS: dict[str, Any] = {"id": "bigint", "city": "varchar", "fare": "double"}
PLAIN = config_of(COLUMNS)
SORTED = config_of(COLUMNS, sort="city")
WIDER = config_of({**COLUMNS, "tip": {"type": "bigint", "default": 7}})

_Made = TypeVar("_Made")


class ManualLoader:
    """Does jobs at once, or, while it holds, one by one when it is told.

    Attributes:
        done: What it has done so far, failed or not.
        waiting: What it was given and has not done yet.
    """

    def __init__(self) -> None:
        self.holds = False
        self.done: list[SegmentJob] = []
        self.waiting: list[tuple[SegmentJob, Future[Any]]] = []

    def submit(self, job: Job[_Made]) -> Future[_Made]:
        """See `Submits`."""
        future: Future[_Made] = Future()
        assert isinstance(job, SegmentJob)
        self.waiting.append((job, future))
        if not self.holds:
            self.work()
        return future

    def work(self) -> None:
        """Do all that waits."""
        while self.waiting:
            job, future = self.waiting.pop(0)
            self.done.append(job)
            try:
                future.set_result(job.run())
            except AnewError as error:
                future.set_exception(error)
            except OSError as error:
                future.set_exception(Unreachable("load_failed", "the loader could not read or write", found=str(error)))


class Clock:
    """A monotonic clock that stands still until it is moved."""

    seconds = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.seconds


@dataclass
class Rig:
    """A node's segments in a folder, and the deep store that they come from.

    Attributes:
        host: The segments, as of the last `restart`.
        told: How often the host said that its report changed.
    """

    folder: Path
    deep: DeepStore
    clock: Clock = field(default_factory=Clock)
    loader: ManualLoader = field(default_factory=ManualLoader)
    host: SegmentHost = field(init=False)
    told: int = 0
    revision: int = 0
    made: int = 0

    def __post_init__(self) -> None:
        """Begin with an empty disk."""
        self.restart()

    @property
    def directory(self) -> Path:
        """Where the host has its copies."""
        return self.folder / "segments"

    def restart(self, loader: Submits | None = None) -> SegmentHost:
        """A fresh host over what the one before left on the disk."""
        self.loader = ManualLoader()

        def changed() -> None:
            self.told += 1

        self.host = SegmentHost(self.directory, self.loader if loader is None else loader, changed, self.clock)
        return self.host

    def build(self, rows: pa.Table, config: SegmentConfig = PLAIN, **changes: Any) -> Build:
        """Rows as a build in the deep store, made with a configuration."""
        self.made += 1
        name = f"b{self.made}"
        local = self.folder / "made" / f"{name}.parquet"
        local.parent.mkdir(exist_ok=True)
        rebuilt = make_file(rows, local, config)
        path = f"tables/{name}.parquet"
        self.deep.put(path, local.read_bytes())
        build = Build(
            id=name,
            path=path,
            bytes=rebuilt.bytes,
            sha256=rebuilt.sha256,
            config_hash=config.hash,
            contents=rebuilt.contents,
            built_at_ms=1,
        )
        return build.model_copy(update=changes)

    def in_deep_store(self, build: Build) -> Path:
        """The file behind a build."""
        return self.folder / "deep" / build.path

    def desired(self, *tables: DesiredTable) -> DesiredState:
        """The desired state of now, newer than the last."""
        self.revision += 1
        log = LogLocation(kind="embedded", address=str(self.folder / "log"))
        return DesiredState(
            revision=self.revision, fabric="dc-0", log=log, deep_store=self.deep.root_uri, stores=(), tables=tables
        )

    def settle(self, *tables: DesiredTable) -> None:
        """Let the host take tables as the desired state, and work until there is nothing to do."""
        self.host.accept(self.desired(*tables))
        self.work()

    def work(self) -> None:
        """Let the host work until there is nothing to do."""
        rounds = 0
        while self.host.step():
            rounds += 1
            assert rounds < 100, "the host works without end"

    def report(self, segment: str = "s0") -> SegmentReport:
        """What the host says of a segment."""
        return next(report for report in self.host.report() if report.segment == segment)

    def path(self, table: DesiredTable, segment: str = "s0") -> Path:
        """The file that queries of a segment read."""
        found = next(file.path for file in self.host.files_of(table) if file.segment.name == segment)
        assert found is not None
        return found

    def files(self) -> set[Path]:
        """All files below the host's directory."""
        return {path for path in self.directory.rglob("*") if path.is_file()}


def rig(folder: Path) -> Rig:
    """A rig over a deep store in a folder."""
    return Rig(folder, open_deep_store(str(folder / "deep")))


def rows(first: int = 0, count: int = 40) -> pa.Table:
    """Rows of `COLUMNS`: numbers from ``first`` on, seven cities, a fare that is null now and then."""
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": pa.array([f"city {number * 5 % 7}" for number in ids], pa.string()),
            "fare": pa.array([None if number % 9 == 0 else number / 4 for number in ids], pa.float64()),
        }
    )


def segment(build: Build, name: str = "s0", **changes: Any) -> DesiredSegment:
    """A segment that the node is to host."""
    return DesiredSegment(**{"name": name, "build": build, "hosted": True, **changes})


def table(*segments: DesiredSegment, config: SegmentConfig = PLAIN, **changes: Any) -> DesiredTable:
    """A table of these segments."""
    fields = {
        "uid": "u1",
        "name": "trips",
        "revision": 1,
        "columns": config.columns,
        "config": config,
        "config_hash": config.hash,
        "skip_segment_preprocess": False,
        "segments": segments,
    }
    return DesiredTable(**{**fields, **changes})


def damage(path: Path, content: bytes) -> None:
    """Put other bytes in the place of a file's, as a broken disk does."""
    path.chmod(0o644)
    path.write_bytes(content)


def cut(content: bytes) -> bytes:
    """The first half of a file."""
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    """A file with one other bit."""
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def plain_answer(source: pa.Table, sql: str, name: str = "trips") -> list[tuple[Any, ...]]:
    """What DuckDB answers over rows in memory, without any of this project's code."""
    connection = duckdb.connect(":memory:")
    try:
        connection.register(name, source)
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def raised(code: str, call: Callable[[], Any]) -> AnewError:
    """The error of that code that a call ends with."""
    with pytest.raises(AnewError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value
