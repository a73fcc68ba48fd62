"""SIGKILL of a driver before, inside and after each stage of a push and of a repush."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.commands import wait_until
from tests.crash.crashing import Crashing
from tests.crash.halts import BEGIN, FILES, MANIFEST, SEAL, Halt, Halts, When
from tests.processes import kill_family

pytestmark = pytest.mark.timeout(700)

_COLUMNS = ("--key", "id", "--value", "name,age")
_AT_ONCE = 2
_WRITTEN = {"name": "written", "age": 1}


@dataclass(frozen=True, slots=True)
class Death:
    """Where a driver dies, and what it leaves: a version in this status, and files of it or none (None: either)."""

    name: str
    point: str
    when: When
    leaves: str | None
    files: bool | None


_ALSO: dict[str | None, set[str]] = {
    "begun": {"building", "failed", "retired", "reclaimed"},
    "sealed": {"sealed", "loading", "ready", "current"},
}
"""What may be seen a moment later, when nobody is needed to go on."""
DEATHS = (
    Death("before-begin", BEGIN, "before", None, files=False),
    # Nobody gives signs of life yet: its lease may be over before anybody looks.
    Death("after-begin", BEGIN, "after", "begun", files=False),
    Death("inside-build", FILES, "before", "building", files=None),
    Death("after-first-files", FILES, "after", "building", files=True),
    Death("before-manifest", MANIFEST, "before", "building", files=True),
    Death("before-seal", SEAL, "before", "building", files=True),
    Death("after-seal", SEAL, "after", "sealed", files=True),
)


@dataclass(frozen=True, slots=True)
class Dead:
    """What a driver left when it died."""

    store: str
    left: str | None
    files: set[str]


@pytest.fixture(scope="module", params=["push", "repush"])
def dead(
    request: pytest.FixtureRequest, crashing: Crashing, people: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Dead]:
    """A driver dead at each point; two run at a time, because each needs a JVM of its own."""
    kind: str = request.param
    drivers: dict[Death, tuple[str, subprocess.Popen[str], Halt]] = {}
    found: dict[str, Dead] = {}
    try:
        stores = [crashing.store(f"{kind}_{death.name.replace('-', '_')}") for death in DEATHS]
        for death, store in zip(DEATHS, stores, strict=True):
            crashing.write(store, {"w": _WRITTEN, "p2": None})
            halts = Halts(tmp_path_factory.mktemp("driver"))
            halt = halts.arm(death.point, death.when)
            command = ["push", store, str(people), *_COLUMNS] if kind == "push" else ["repush", store]
            # More would keep one another from the processors for longer than a lease.
            wait_until(
                lambda: _still_running(crashing, drivers, found) < _AT_ONCE, "a driver to come to its point", 240
            )
            drivers[death] = store, crashing.start(halts, *command), halt
        wait_until(lambda: _still_running(crashing, drivers, found) == 0, "each driver to come to its point", 240)
    finally:
        for _, driver, _ in drivers.values():
            kill_family(driver.pid)
            driver.communicate()
    return found


def _still_running(
    crashing: Crashing, drivers: dict[Death, tuple[str, subprocess.Popen[str], Halt]], found: dict[str, Dead]
) -> int:
    """Look at the stores of the drivers that stand still at their points by now, and kill these; how many are left."""
    for death, (store, driver, halt) in drivers.items():
        if death.name not in found and halt.reached:
            found[death.name] = Dead(store, crashing.status(store, 2), crashing.files(store) - {"v1"})
            kill_family(driver.pid)
    return len(drivers) - len(found)


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.name)
def test_a_driver_that_dies_loses_nothing(dead: dict[str, Dead], death: Death, crashing: Crashing) -> None:
    """Before the seal its version fails and its files go; from the seal on the version is finished without it."""
    found = dead[death.name]
    assert found.left in _ALSO.get(death.leaves, {death.leaves})
    assert death.files in (None, bool(found.files))
    store, anew = found.store, crashing.anew
    if death.leaves == "sealed":
        crashing.await_current(store, 2)
    elif death.leaves is not None:
        crashing.await_status(store, 2, "failed", "retired", "reclaimed")
        wait_until(lambda: crashing.files(store) == {"v1"}, "the dead driver's files to be reclaimed")
    before = anew.scan(store)
    assert before['"w"'] == _WRITTEN
    assert '"p2"' not in before
    assert len(before) == 20
    done = anew.here("repush", store)
    assert done["version"] == (2 if death.leaves is None else 3)
    anew.here("store", "wait", store)
    assert anew.scan(store) == before


def test_a_driver_that_slept_past_its_lease_changes_nothing(crashing: Crashing, tmp_path: Path) -> None:
    """Stopped right before its seal for longer than the lease, it is turned away, and says that its version ended."""
    store = crashing.store("sleeper")
    halts = Halts(tmp_path)
    halt = halts.arm(SEAL, "before")
    driver = crashing.start(halts, "repush", store, "--json")
    halt.wait()
    crashing.await_status(store, 2, "failed", "retired", "reclaimed")
    successor = crashing.anew.here("repush", store)
    assert successor["version"] == 3
    halt.go_on()
    printed, _ = driver.communicate(timeout=60)
    assert driver.returncode == 1
    assert "lease" in printed
    assert crashing.current(store) == 3
    wait_until(lambda: crashing.files(store) == {"v1", "v3"}, "the sleeper's files to be reclaimed")
