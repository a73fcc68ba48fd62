"""What brokers are started with."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from anew.brokers.configuration import BrokerFolder, BrokerSettings, logging_text, properties_of, properties_text
from anew.brokers.record import BrokerPorts, ClusterRecord


def _record(count: int) -> ClusterRecord:
    ports = {id: BrokerPorts(100 + id, 200 + id, 300 + id) for id in range(1, count + 1)}
    return ClusterRecord("id", ports, wanted=False)


def _properties(count: int, broker: int, extra: dict[str, str] | None = None) -> dict[str, str]:
    return properties_of(_record(count), BrokerSettings(count, extra or {}), BrokerFolder(Path("/home/kafka"), broker))


@pytest.mark.parametrize(("count", "copies", "enough"), [(1, "1", "1"), (3, "3", "2")])
def test_everything_has_as_many_copies_as_there_are_brokers(count: int, copies: str, enough: str) -> None:
    """Of three brokers one may go: of every topic of Kafka's own too."""
    found = _properties(count, 1)
    factors = {name: value for name, value in found.items() if name.endswith("replication.factor")}
    assert len(factors) == 4
    assert set(factors.values()) == {copies}
    assert {value for name, value in found.items() if name.endswith(("min.isr", "min.insync.replicas"))} == {enough}
    assert found["unclean.leader.election.enable"] == found["auto.create.topics.enable"] == "false"


def test_brokers_know_one_another_and_listen_on_this_machine_alone() -> None:
    """Each votes, and each has three ports of its own."""
    found = _properties(3, 2)
    assert found["controller.quorum.voters"] == "1@127.0.0.1:301,2@127.0.0.1:302,3@127.0.0.1:303"
    assert found["listeners"] == "CLIENT://127.0.0.1:102,BROKER://127.0.0.1:202,CONTROLLER://127.0.0.1:302"
    assert (found["node.id"], found["log.dirs"]) == ("2", "data")
    assert _record(3).bootstrap == "127.0.0.1:101,127.0.0.1:102,127.0.0.1:103"


def test_settings_of_a_test_come_last() -> None:
    """They win over what is said here."""
    found = _properties(1, 1, {"node.id": "7", "authorizer.class.name": "some.Authorizer"})
    assert (found["node.id"], found["authorizer.class.name"]) == ("7", "some.Authorizer")


def test_values_reach_java_as_they_are() -> None:
    """A backslash or a line's end would end, or change, a value."""
    assert properties_text({"a": "b\\c", "d": "e\nf"}) == "a=b\\\\c\nd=e\\nf\n"


def test_a_broker_s_log_is_bounded() -> None:
    """Three files of 10 MB; wherever the home lies, its path is nowhere in the text."""
    text = logging_text(BrokerFolder(Path("/home & <more>/kafka"), 1))
    appender = ElementTree.fromstring(text).find(".//RollingFile")
    assert appender is not None
    assert appender.attrib["fileName"] == "../logs/broker-1.log"
    assert [policy.attrib.get("size", policy.attrib.get("max")) for policy in appender[1:]] == ["10 MB", "2"]
