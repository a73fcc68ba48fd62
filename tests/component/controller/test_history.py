"""Who did what when: every command leaves a line, the controller's own steps as well."""

from __future__ import annotations

import io
from typing import Any

import pytest

from anew.api.models import Collect, DrainNode, EndRebuild, ResumeRebuild
from anew.api.rebuilds import StoreStart
from anew.api.stores.requests import CreateStore, HoldVersion, RollBack, Swap, UpdateStore
from anew.api.upkeep import HistoryLine
from anew.cli.main import INTERRUPTED
from anew.core.errors import InvalidRequest, NotFound
from anew.core.stores.planning import RepushRequest
from anew.testing.builders import KEY_SCHEMA, VALUE_SCHEMA
from tests.component.controller.conftest import Told
from tests.component.controller.harness import Cluster, refused

_SECRET = "SECRET_OF_THE_SOURCE"
_SOURCE = f"""
import numpy as np
import pyarrow as pa

# {_SECRET}
class Mine:
    def __init__(self, partitions):
        self.partitions = partitions

    def __call__(self, keys):
        lengths = np.array([len(key) for key in keys.to_pylist()], dtype=np.int32)
        return pa.array(lengths % self.partitions, pa.int32())
"""


def _newest(cluster: Cluster, subject: str, what: str) -> HistoryLine:
    return next(row for row in cluster.client.history(subject, 200) if row.what == what)


def test_history_of_nothing_is_refused(cluster: Cluster, told: Told) -> None:
    """A name that nothing ever had is unknown; what was deleted keeps its history; no lines are no history."""
    cluster.create()
    cluster.client.delete_store("flights")
    assert cluster.client.history("flights")[0].what == "delete store"
    assert refused(NotFound, lambda: cluster.client.history("nosuch")).code == "unknown_store"
    assert refused(InvalidRequest, lambda: cluster.client.history(limit=0)).code == "bad_request"
    assert "(usage)" in told("history", "--limit", "0", code=2)[0]


def test_what_is_not_there_is_not_asked_about(cluster: Cluster, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked whether a store is to be deleted that does not exist; of one that does, somebody is."""
    cluster.create()
    assert told("store", "delete", "nosuch", code=2)[0] == "error: there is no store nosuch (unknown_store)"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "Delete the store flights" in "".join(told("store", "delete", "flights", code=INTERRUPTED))
    assert cluster.store().name == "flights"


def test_commands_about_a_store_are_on_record(cluster: Cluster) -> None:
    """Take-overs, kills, swaps, rollbacks, pauses and collections: who did it, when, and to which version."""
    ops = cluster.acting("ops@desk")
    ops.create_store(CreateStore(name="flights", key_schema=KEY_SCHEMA, value_schema=VALUE_SCHEMA))
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan(request=RepushRequest(defer_swap=True)))
    cluster.pass_seconds(10)
    taken = ops.resume_rebuild(rebuild.id, ResumeRebuild(driver="second"), StoreStart).rebuild
    cluster.seal(taken)
    cluster.settle()
    ops.swap("flights", Swap(version=2))
    ops.roll_back("flights", RollBack())
    ops.hold_version("flights", HoldVersion(version=2, seconds=60))
    waiting = cluster.begin(cluster.repush_plan(request=RepushRequest(defer_swap=True)))
    cluster.seal(waiting)
    cluster.settle()
    ops.kill_rebuild(waiting.id)
    ops.pause("flights")
    ops.unpause("flights")
    ops.collect(Collect(store="flights"))
    ops.update_store("flights", UpdateStore(settings={"owner": "me"}))
    killed = cluster.begin(cluster.repush_plan())
    ops.kill_rebuild(killed.id)
    ops.delete_store("flights")
    expected: dict[str, dict[str, Any]] = {
        "create store": {},
        "resume rebuild": {"rebuild": rebuild.id, "version": 2},
        "swap": {"fabric": "dc-0", "from": 1, "to": 2},
        "rollback": {"fabric": "dc-0", "from": 2, "to": 1},
        "hold version": {"version": 2},
        "give up version": {"rebuild": waiting.id, "version": 3},
        "retire version": {"version": 3},
        "pause": {},
        "unpause": {},
        "gc": {"skipped": []},
        "update store": {"settings": {"owner": "me"}},
        "rebuild killed": {"rebuild": killed.id, "version": 4, "error": "killed by ops@desk"},
        "delete store": {},
    }
    for what, detail in expected.items():
        row = _newest(cluster, "flights", what)
        assert (row.actor, detail.items() <= row.detail.items()) == ("ops@desk", True), what
        assert row.at_ms <= cluster.clock()


def test_the_controller_s_own_steps_are_on_record(cluster: Cluster) -> None:
    """Aim, ready and swap name version and rebuild, so that a rebuild's own lines can be told from others'."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    rebuild = cluster.begin(cluster.repush_plan())
    cluster.seal(rebuild)
    cluster.settle()
    of_it = [row for row in cluster.client.history("flights") if row.detail.get("rebuild") == rebuild.id]
    assert [row.what for row in reversed(of_it)] == [
        "begin repush",
        "seal version",
        "aim",
        "ready",
        "swap",
        "rebuild succeeded",
    ]
    assert {row.detail["version"] for row in of_it if "version" in row.detail} == {2}
    assert [row.actor for row in reversed(of_it)] == ["tester", "driver", *["controller"] * 4]


def test_commands_about_nodes_and_the_cluster_are_on_record(cluster: Cluster) -> None:
    """Drains, removals and pauses of everything are found under what they are about."""
    ops = cluster.acting("ops@desk")
    ops.drain_node("node-1", DrainNode())
    ops.drain_node("node-1", DrainNode(undo=True))
    ops.remove_node("node-1")
    ops.pause(None)
    ops.unpause(None)
    ops.collect(Collect())
    nodes = [(row.what, row.actor) for row in cluster.client.history("node-1")]
    assert nodes == [("remove node", "ops@desk"), ("undo drain", "ops@desk"), ("drain node", "ops@desk")]
    cluster_wide = [(row.what, row.actor) for row in cluster.client.history("cluster")]
    assert cluster_wide == [("gc", "ops@desk"), ("unpause", "ops@desk"), ("pause", "ops@desk")]


@pytest.mark.case("stores:H10")
def test_a_deferral_is_no_swap(cluster: Cluster) -> None:
    """What became of a ready version is said as it was: deferred by the controller, swapped by somebody later."""
    cluster.create()
    cluster.serve(cluster.push_plan())
    cluster.serve(cluster.repush_plan(request=RepushRequest(defer_swap=True)))
    cluster.acting("ops@desk").swap("flights", Swap(version=2))
    rows = [row for row in cluster.client.history("flights") if "swap" in row.what]
    assert [(row.what, row.actor) for row in rows] == [
        ("swap", "ops@desk"),
        ("defer swap", "controller"),
        ("swap", "controller"),
    ]


def test_a_partitioner_s_source_is_nowhere_in_it(cluster: Cluster) -> None:
    """Through making, changing, planning, failing and repushing, no line of history and no view has the source."""
    settings: dict[str, Any] = {"hybrid": True, "rt_partitions": 4, "replicas": 1, "partitions": 2}
    mine = {**settings, "partitioner": "mine:Mine"}
    cluster.client.create_store(
        CreateStore(
            name="flights",
            key_schema=KEY_SCHEMA,
            value_schema=VALUE_SCHEMA,
            settings=mine,
            partitioner_source=_SOURCE,
            request_id="make-it",
        )
    )
    cluster.serve(cluster.push_plan())
    changed = UpdateStore(
        settings={"partitioner": "mine:Mine"}, partitioner_source=_SOURCE.replace("lengths %", "-lengths %")
    )
    views: list[Any] = [cluster.client.update_store("flights", changed)]
    failing = cluster.begin(cluster.repush_plan())
    traceback = f"TypeError: no length\n  File '<partitioner mine:Mine>', line 5\n    # {_SECRET}"
    views += [cluster.client.status().model_dump(mode="json"), cluster.client.rebuilds()]
    failed = cluster.client.fail_rebuild(failing.id, EndRebuild(epoch=1, error=traceback))
    assert failed.error == traceback
    assert _newest(cluster, "flights", "rebuild failed").detail["error"] == "TypeError: no length"
    cluster.serve(cluster.repush_plan())
    views += [cluster.client.store("flights"), cluster.client.stores()]
    views += [cluster.client.reclaims(), cluster.client.collect(Collect(dry_run=True))]
    views += [cluster.client.history(None, 1_000), cluster.client.history("flights", 1_000)]
    assert [view for view in views if _SECRET in str(view)] == []
    source = cluster.version(3).config.partitioner_source
    assert _SECRET in source, "the version itself has it: whoever places keys needs it"
