"""Which brokers a repush reads from, where somebody says so (case A9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.brokers.cluster import Brokers
from anew.brokers.configuration import BrokerSettings
from tests.brokers import running_brokers
from tests.cluster.commands import Anew, wait_until


@pytest.mark.case("stores:A9")
def test_brokers_to_read_from_belong_to_the_fabric(anew: Anew, people: Path, brokers: Brokers) -> None:
    """Another listener of the fabric's cluster is read from; another cluster is refused before anything is made."""
    anew.create("aside", "hybrid=true", "partitions=2")
    anew.push("aside", people)
    anew.write("aside", {"key": "p3", "value": {"name": "written", "age": 3}})
    port = brokers.bootstrap.rpartition(":")[2]
    key = "kafka.input.broker.url"
    done = anew.here("repush", "aside", "-D", f"{key}=localhost:{port}")
    assert (done["status"], done["plan"]["source"]["broker"]) == ("succeeded", f"localhost:{port}")
    wait_until(lambda: anew.value("aside", "p3")["name"] == "written", "the new version")
    with running_brokers(BrokerSettings()) as other:
        answer = anew.run("repush", "aside", "-D", f"{key}={other.cluster.bootstrap}")
        ours, theirs = brokers.status().cluster_id, other.cluster.status().cluster_id
    assert (answer.code, answer.error["code"]) == (3, "broker_of_another_cluster")
    assert (ours in answer.error["expected"], theirs in answer.error["found"]) == (True, True)
    assert _versions(anew, "aside") == [1, 2]


@pytest.mark.case("stores:A9")
def test_brokers_that_do_not_answer_are_not_read_from(anew: Anew, people: Path) -> None:
    """A repush from brokers that are not there is refused with their address, and nothing is made."""
    anew.create("astray", "hybrid=true", "partitions=2")
    anew.push("astray", people)
    answer = anew.run("repush", "astray", "-D", "kafka.input.broker.url=127.0.0.1:9")
    assert (answer.code, answer.error["code"]) == (4, "log_unreachable")
    assert "127.0.0.1:9" in answer.error["found"]
    assert _versions(anew, "astray") == [1]


def _versions(anew: Anew, name: str) -> list[int]:
    return [version["number"] for version in anew.here("store", "show", name)["fabrics"]["dc-0"]["versions"]]
