"""A cluster under test: what it shows of a store, its processes, and their deaths."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil

from anew.api.http import ControllerClient
from anew.api.rebuilds import RebuildView
from anew.api.stores.views import FabricView
from anew.core.errors import AnewError
from anew.runtime.connect import connect
from anew.runtime.supervisor import SOUND_SECONDS
from tests.cluster.account import write_changes
from tests.cluster.commands import Anew, creation, wait_until
from tests.crash.halts import Halts

FORGETFUL = {"ANEW_FAILURE_SHOWN_SECONDS": "0"}
"""A rebuild whose driver a test killed is no reason to call the cluster ill."""


@dataclass(frozen=True, slots=True)
class Crashing:
    """A running cluster whose processes stop at armed points."""

    anew: Anew
    halts: Halts
    controller: ControllerClient
    uids: dict[str, str] = field(default_factory=dict)

    def store(self, name: str, *settings: str) -> str:
        """A hybrid store of twenty people, all written nearline, on two of the nodes; returns its name."""
        wanted = ("hybrid=true", "partitions=2", "rt_partitions=2", *settings)
        self.uids[name] = self.anew.here(*creation(name, *wanted))["uid"]
        self.anew.here("push", name, "--empty")
        self.write(name, {f"p{n}": {"name": f"name {n}", "age": n + 20} for n in range(20)})
        return name

    def write(self, store: str, changes: Mapping[str, Any]) -> None:
        """Write values, or None for a delete, and wait until the current version has them."""
        with connect(home=str(self.anew.home)) as cluster, cluster.store(store).writer() as writer:
            write_changes(writer, changes)
            position = writer.flush()
        self.anew.here("store", "wait", store, "--position", json.dumps(position.to_json()))

    def start(self, halts: Halts, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that stops at points armed for it alone."""
        return Anew(self.anew.home, {**self.anew.extra, **halts.environment}).start(*arguments, start_new_session=True)

    def shown(self, store: str) -> FabricView:
        """What ``store show`` says of the store in its fabric."""
        return self.controller.store(store).fabrics["dc-0"]

    def current(self, store: str) -> int:
        """The current version."""
        return self.shown(store).current

    def status(self, store: str, number: int) -> str | None:
        """A version's status; None when there is no such version."""
        found = [v.status for v in self.shown(store).versions if v.number == number]
        return found[0] if found else None

    def rebuilds(self, store: str) -> list[RebuildView]:
        """A store's rebuilds, newest first."""
        return self.controller.rebuilds(store=store)

    def await_status(self, store: str, number: int, *wanted: str) -> None:
        """Wait until a version has one of these statuses."""
        wait_until(lambda: self.status(store, number) in wanted, f"{store}_v{number} to be {' or '.join(wanted)}")

    def await_current(self, store: str, number: int) -> None:
        """Wait until a version is the current one."""
        wait_until(lambda: self.current(store) == number, f"{store}_v{number} to be current")

    def await_healthy(self) -> None:
        """Wait until the cluster says that nothing is wrong."""
        said = [""]

        def healthy() -> bool:
            answer = self.anew.run_here("status")
            said[0] = answer.out
            return answer.code == 0

        try:
            wait_until(healthy, "the cluster to be healthy")
        except AssertionError as error:
            error.add_note(said[0])
            raise

    def await_controller(self) -> None:
        """Wait until a controller answers."""
        wait_until(self._answers, "the controller to answer")

    def await_sound(self, process: str) -> None:
        """Wait until a process has lived for so long that the supervisor starts it again at once when it dies."""
        wait_until(lambda: self._lived_seconds(process) >= SOUND_SECONDS, f"{process} to have lived for long")

    def _lived_seconds(self, process: str) -> float:
        try:
            began_seconds: float = psutil.Process(self.pid(process)).create_time()
        except psutil.NoSuchProcess:
            # It just died, and its successor is not yet written down.
            return 0.0
        return time.time() - began_seconds

    def _answers(self) -> bool:
        try:
            self.controller.healthz()
        except AnewError:
            return False
        return True

    def files(self, store: str) -> set[str]:
        """The version directories that hold anything, in the deep store."""
        folder = self.anew.home / "deepstore" / "dc-0" / "stores" / self.uids[store]
        return {path.name for path in folder.iterdir() if any(file.is_file() for file in path.rglob("*"))}

    def pid(self, process: str) -> int:
        """The pid of the controller, or of a node by its id."""
        number: int = json.loads((self.anew.home / "cluster.json").read_text(encoding="utf-8"))["pids"][process]
        return number
