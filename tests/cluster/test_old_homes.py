"""Homes that earlier releases made are opened, read to the last key and row, and gone on with."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.cluster.commands import Anew, wait_until
from tests.old.make import EXPECTED, HOME, contents

_HOMES = sorted(path.parent for path in (Path(__file__).parents[1] / "old").glob(f"*/{HOME}"))


def test_there_is_a_home_of_the_first_release() -> None:
    """What the next test opens is there."""
    assert _HOMES


@pytest.mark.parametrize("old", _HOMES, ids=lambda old: old.name)
def test_an_old_home_serves_what_it_held_and_is_rebuilt(old: Path, lone: Anew) -> None:
    """Moved to another place it has every key and row, and has them after repush, refresh, swap and rollback too."""
    with tarfile.open(old / HOME) as packed:
        packed.extractall(lone.home.parent, filter="data")
    expected = json.loads((old / EXPECTED).read_text(encoding="utf-8"))
    lone.done("up", "--detach")
    wait_until(lambda: _is_served(lone), "all replicas and segments")
    assert contents(lone) == expected
    people = {f'"new {n}"': {"name": f"n{n}", "age": n, "city": None} for n in range(3)}
    lone.write("people", *({"key": json.loads(key), "value": value} for key, value in people.items()))
    for name in ("people", "plain", "expires"):
        lone.here("repush", name)
    lone.here("swap", "waits", "2")
    lone.here("table", "refresh", "trips")
    expected["stores"]["people"] |= people
    assert contents(lone) == expected
    lone.here("rollback", "people")
    assert contents(lone) == expected
    for name in expected["stores"]:
        assert lone.here("store", "verify", name)["equal"]


def _is_served(anew: Anew) -> bool:
    """Whether nothing is unhealthy but what the home itself says, a deferred version."""
    return not [
        problem for problem in anew.run("status").json["problems"] if "waits to be swapped" not in problem["what"]
    ]
