"""A version's life in one fabric is that fabric's own: what fails, waits or goes there changes nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.api.stores.requests import Swap
from anew.controller.restore.findings import look
from anew.controller.restore.stores import rebuilt
from anew.core.errors import Refused, Unreachable
from anew.core.stores.plan import Plan
from anew.core.stores.planning import PushOptions, RepushRequest
from anew.core.stores.properties import RepushProperties
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import VersionStatus
from anew.testing.builders import FABRIC
from tests.component.controller.harness import Change, Cluster, node_report, opened_cluster, refused

_OTHER = "dc-1"
_NODE = "node-9"
_WEEK_SECONDS = 7 * 86_400


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A store in two fabrics; the second one has one node."""
    with opened_cluster(tmp_path, others=(_OTHER,)) as cluster:
        cluster.client.report(node_report(_NODE, fabric=_OTHER))
        cluster.create(hybrid=False)
        yield cluster


def _of(cluster: Cluster, number: int) -> dict[str, str]:
    return {fabric: status.value for fabric, status in cluster.version(number).statuses.items()}


def _sealed(cluster: Cluster, plan: Plan) -> StoreRebuild:
    """A rebuild of the plan whose base lies in all of its fabrics."""
    rebuild = cluster.begin(plan)
    seal = cluster.seal_of(rebuild)
    for fabric in plan.target.fabrics:
        deep = cluster.context.fabrics[fabric].deep_store
        for path in cluster.files():
            if deep.stat(path) is None:
                deep.put(path, cluster.deep.get(path))
    cluster.client.seal(rebuild.id, seal)
    return rebuild


def _settle(cluster: Cluster, here: Change | None = None, there: Change | None = None) -> None:
    """Five rounds: the nodes of both fabrics report their replicas, whole or as they are changed."""
    for _ in range(5):
        for node in cluster.nodes:
            cluster.report(node, here)
        cluster.report(_NODE, there, fabric=_OTHER)
        cluster.round()


def _served(cluster: Cluster) -> int:
    rebuild = _sealed(cluster, cluster.push_plan())
    _settle(cluster)
    assert cluster.client.rebuild(rebuild.id).status == "succeeded"
    return rebuild.version


def _broken(replica: ReplicaReport) -> ReplicaReport:
    wrong = {"state": ReplicaState.ERROR, "error": "a damaged base", "error_code": "checksum_mismatch"}
    return replica.model_copy(update=wrong)


def test_what_fails_in_one_fabric_serves_in_the_other(cluster: Cluster) -> None:
    """The replicas of one fabric cannot be made: the other one swaps, the rebuild says where it came and why not."""
    rebuild = _sealed(cluster, cluster.push_plan())
    _settle(cluster, there=_broken)
    assert _of(cluster, 1) == {FABRIC: "current", _OTHER: "failed"}
    assert cluster.store().current == {FABRIC: 1, _OTHER: 0}
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, "a damaged base" in str(view.error)) == ("partly", True)
    (problem,) = [p for p in cluster.client.status().problems if "failed in" in p.what]
    assert problem.what.startswith("flights_v1 failed in dc-1, which serves version 0: ")
    _sealed(cluster, cluster.repush_plan(request=RepushRequest(target_fabrics=(_OTHER,))))
    _settle(cluster)
    assert (cluster.store().current, cluster.client.status().problems) == ({FABRIC: 1, _OTHER: 2}, ())
    shown = cluster.client.store("flights").fabrics
    assert shown[FABRIC].versions[0].error is None
    assert "a damaged base" in str(shown[_OTHER].versions[0].error)


def test_a_version_that_failed_in_one_fabric_is_read_in_the_other(cluster: Cluster) -> None:
    """It is the source of the next repush, which reads it where it is whole."""
    _sealed(cluster, cluster.push_plan())
    _settle(cluster, there=_broken)
    plan = cluster.repush_plan()
    assert (plan.source.version, plan.source.fabric) == (1, FABRIC)
    _sealed(cluster, plan)
    _settle(cluster)
    assert _of(cluster, 2) == {FABRIC: "current", _OTHER: "current"}
    there = RepushRequest(RepushProperties(input_topic="flights_v1", input_fabric=_OTHER), allow_not_serving=True)
    assert refused(Refused, lambda: cluster.repush_plan(request=there)).code == "not_sealed"


def test_a_rebuild_that_fails_everywhere_has_failed(cluster: Cluster) -> None:
    """Of each fabric its own error is kept; the rebuild ends with the last one."""
    rebuild = _sealed(cluster, cluster.push_plan())
    _settle(cluster, here=_broken, there=_broken)
    assert set(_of(cluster, 1).values()) <= {"failed", "retired"}
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, "a damaged base" in str(view.error)) == ("failed", True)


def test_a_deadline_is_of_one_fabric(cluster: Cluster) -> None:
    """A fabric whose nodes are away is not ready in time; what serves in the other one goes on."""
    rebuild = _sealed(cluster, cluster.push_plan())
    cluster.settle()
    assert _of(cluster, 1) == {FABRIC: "current", _OTHER: "loading"}
    cluster.pass_seconds(301)
    cluster.settle()
    assert _of(cluster, 1) == {FABRIC: "current", _OTHER: "failed"}
    view = cluster.client.rebuild(rebuild.id)
    assert (view.status, "was not ready in time" in str(view.error)) == ("partly", True)


def test_files_go_in_each_fabric_by_themselves(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose deep store is away keeps its files and its version, and both go once it is back."""
    _served(cluster)
    _served(cluster)
    deep = cluster.context.fabrics[_OTHER].deep_store
    path = cluster.version(1).path
    with monkeypatch.context() as away:

        def silent(_path: str) -> None:
            raise Unreachable("deep_store_unreachable", "the deep store does not answer")

        away.setattr(deep, "delete_tree", silent)
        for _ in range(2):
            cluster.pass_seconds(_WEEK_SECONDS)
            _settle(cluster)
        assert _of(cluster, 1) == {FABRIC: "reclaimed", _OTHER: "retired"}
        assert (list(cluster.deep.list(path)), bool(list(deep.list(path)))) == ([], True)
    cluster.pass_seconds(_WEEK_SECONDS)
    _settle(cluster)
    assert (cluster.store().has_left(1), list(deep.list(path))) == (True, [])


def test_a_push_waits_for_nothing_in_other_fabrics(cluster: Cluster) -> None:
    """What loads, or waits for its swap, in one fabric is in the way of no rebuild for another one."""
    there = PushOptions(target_fabrics=(_OTHER,), defer_swap=True)
    waiting = _sealed(cluster, cluster.push_plan(options=there))
    here = partial(cluster.push_plan, options=PushOptions(target_fabrics=(FABRIC,)))
    _sealed(cluster, here())
    _settle(cluster)
    assert cluster.store().current == {FABRIC: 2, _OTHER: 0}
    assert _of(cluster, waiting.version) == {_OTHER: "deferred"}
    _sealed(cluster, here())
    _settle(cluster)
    assert cluster.store().current == {FABRIC: 3, _OTHER: 0}
    assert refused(Refused, lambda: cluster.begin(cluster.push_plan())).code == "swap_deferred"
    answer = cluster.client.swap("flights", Swap(version=waiting.version))
    assert list(answer.done) == [_OTHER]
    assert answer.failed[FABRIC].code == "not_in_fabric"
    assert cluster.store().current == {FABRIC: 3, _OTHER: 1}


def test_each_fabric_aims_for_itself(cluster: Cluster) -> None:
    """What replicas must reach before the swap is frozen per fabric, once those there are loaded."""
    _sealed(cluster, cluster.push_plan())
    for _ in range(2):
        for node in cluster.nodes:
            cluster.report(node)
        cluster.round()
    version = cluster.version(1)
    assert version.fabrics[FABRIC].ready_target is not None
    assert (version.fabrics[_OTHER].ready_target, version.status_in(_OTHER)) == (None, VersionStatus.LOADING)


def test_a_restored_version_is_in_each_fabric_what_its_files_there_say(cluster: Cluster) -> None:
    """Where its manifest is lost it has failed, where it was being loaded it waits, where it is whole it serves."""
    _served(cluster)
    _sealed(cluster, cluster.push_plan())
    cluster.settle()
    assert _of(cluster, 2) == {FABRIC: "current", _OTHER: "loading"}
    there, record = cluster.context.fabrics[_OTHER].deep_store, cluster.store()
    there.delete_tree(cluster.version(1).path)
    found = look(cluster.context.fabrics.values())
    (made,) = [rebuilt(replace(each, record=record), (FABRIC, _OTHER), cluster.clock()) for each in found]
    assert made is not None
    first, second = made.store.versions
    assert {f: s.value for f, s in first.statuses.items()} == {FABRIC: "backup", _OTHER: "failed"}
    assert {f: s.value for f, s in second.statuses.items()} == {FABRIC: "current", _OTHER: "current"}
    assert made.store.current == {FABRIC: 2, _OTHER: 2}
    assert any("which dc-1 served, is lost: it serves 2" in note for note in made.notes)
