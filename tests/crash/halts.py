"""Arming points at which processes stand still, and what is done to them there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from tests.cluster.commands import wait_until

When = Literal["before", "after"]

BEGIN = "anew.api.http:ControllerClient.begin_rebuild"
"""The driver asks for a version."""
FILES = "anew.spark.stores.outputs:Outputs.close"
"""A task of the build finishes its base files, in a Python worker of Spark."""
MANIFEST = "anew.rebuild.stores.making:_seal"
"""The driver writes the manifest's file and commits it."""
SEAL = "anew.rebuild.stores.making:_commit_seal"
"""The driver commits the manifest."""
COMMIT = "anew.catalog.database:DatabaseCatalog.commit"
"""The controller commits a change; named by its operation."""
DELETE = "anew.controller.upkeep.reclaim:_remove"
"""The controller removes what was noted, such as a retired version's files."""
LOAD = "anew.node.stores.loadjob:run_load"
"""A node's loader downloads and sorts a replica's base."""
SST = "anew.storage.sst:build_sst"
"""A node's loader writes a sorted file."""
CREATE = "anew.storage.replica:Replica.create"
"""A node's loader makes an instance of the sorted files, and marks its base as complete."""
INGEST = "anew.storage.replica:_ingest"
"""In between: the instance takes the sorted files in."""
OPEN = "anew.storage.replica:Replica.open_existing"
"""A node opens an instance that lies there."""
APPLY = "anew.storage.replica:Replica._write"
"""A node writes a batch of its feeds with their position."""
REPORT = "anew.api.http:ControllerClient.report"
"""A node tells what it holds."""
APPEND = "anew.log.embedded:EmbeddedLog.append"
"""A writer appends a batch to the log."""
RECORD = "anew.api.jobs.http:JobCalls.record_batch"
"""The driver of a generation has appended a batch, and records it."""
ASK = "anew.rebuild.jobs.driving:_Recorder.may_append"
"""Spark has planned a batch of a generation, and its driver asks whether it may append."""
FLUSH = "anew.spark.jobs.sink:_Output.flush"
"""A task of a batch begins to append its rows, in a Python worker of Spark."""
APPENDED = "anew.spark.jobs.sink:_Output.report"
"""A task of a batch waits until its rows are appended, and says so."""
PUT_BATCH = "anew.catalog.jobrows:DatabaseJobs.put_batch"
"""The controller keeps the record of a batch."""
POINTS = (
    *(BEGIN, FILES, MANIFEST, SEAL, COMMIT, DELETE, LOAD, SST, CREATE, INGEST, OPEN, APPLY, REPORT, APPEND),
    *(RECORD, ASK, FLUSH, APPENDED, PUT_BATCH),
)

_PATIENCE_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Halts:
    """The points of all processes that were started in this environment."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to stand still at armed points."""
        path = [str(Path(__file__).parent / "halting"), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"HALT_FOLDER": str(self.folder), "HALT_POINTS": ",".join(POINTS), "PYTHONPATH": os.pathsep.join(path)}

    def arm(self, point: str, when: When, *parts: str) -> Halt:
        """The next process that comes to the point, with all these parts in what the call is given, stops there."""
        waiting = self.folder / f".{point}@{when}"
        waiting.write_text("\n".join(parts))
        waiting.rename(self.folder / f"{point}@{when}")
        return Halt(self.folder, f"{point}@{when}")

    def disarm(self) -> None:
        """No point is armed any more, and whoever stands still goes on."""
        for path in self.folder.glob("*:*@*"):
            pid = path.name.rpartition("@")[2]
            path.unlink(missing_ok=True)
            if pid.isdigit():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGCONT)

    @contextmanager
    def clock_shifted(self, shift_ms: int) -> Iterator[None]:
        """The wall clock of all processes is off by this much."""
        (self.folder / "clock_shift_ms").write_text(str(shift_ms))
        try:
            yield
        finally:
            (self.folder / "clock_shift_ms").unlink()


@dataclass(frozen=True, slots=True)
class Halt:
    """One armed point."""

    folder: Path
    name: str

    @property
    def pid(self) -> int | None:
        """The process that stands still there; None while none has come."""
        found = list(self.folder.glob(f"{self.name}@*"))
        return int(found[0].name.rpartition("@")[2]) if found else None

    @property
    def reached(self) -> bool:
        """Whether a process stands still there."""
        pid = self.pid
        with suppress(psutil.NoSuchProcess):
            return pid is not None and psutil.Process(pid).status() == psutil.STATUS_STOPPED
        return False

    def wait(self) -> int:
        """Wait until a process stands still there; returns its pid."""
        wait_until(lambda: self.reached, f"a process at {self.name}", _PATIENCE_SECONDS)
        pid = self.pid
        assert pid is not None
        return pid

    def kill(self) -> None:
        """SIGKILL to the process that stands still there, once it does."""
        pid = self.wait()
        os.kill(pid, signal.SIGKILL)
        self._forget(pid)

    def go_on(self) -> None:
        """Let the process go on."""
        pid = self.wait()
        os.kill(pid, signal.SIGCONT)
        self._forget(pid)

    def _forget(self, pid: int) -> None:
        (self.folder / f"{self.name}@{pid}").unlink()
