"""What is recorded of a cluster of brokers."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from anew.brokers.record import check_ports, new_record, read_record, write_record
from anew.core.errors import Failed, Refused


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Nobody else may read it; where there is none, there is none."""
    assert read_record(tmp_path) is None
    record = replace(new_record(tmp_path, "an id", 3), wanted=True)
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    (path,) = tmp_path.iterdir()
    assert (path.name, path.stat().st_mode & 0o777) == ("kafka.json", 0o600)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"format": 2}', '{"format": 1, "brokers": {"1": {"client": 1}}}']
)
def test_a_file_that_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    """It is never taken for a home without brokers."""
    (tmp_path / "kafka.json").write_text(text, encoding="ascii")
    with pytest.raises(Failed, match=r"kafka\.json is no record") as caught:
        read_record(tmp_path)
    assert caught.value.code == "bad_record"


def test_ports_are_free_distinct_and_not_those_of_outgoing_connections(tmp_path: Path) -> None:
    """A client that tries a broker that is down must never be given that broker's port."""
    ports = [port for broker in new_record(tmp_path, "id", 3).brokers.values() for port in _ports(broker)]
    assert len(set(ports)) == 9
    first_outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    limit = int(first_outgoing.read_text(encoding="ascii").split()[0]) if first_outgoing.exists() else 49_152
    assert all(20_000 <= port < min(limit, 30_000) for port in ports)
    with socket.create_server(("127.0.0.1", ports[0])):
        assert ports[0] not in [
            port for broker in new_record(tmp_path, "id", 3).brokers.values() for port in _ports(broker)
        ]


def test_neighbours_have_other_ports(tmp_path: Path) -> None:
    """Two homes that are made at the same time do not both find the same ports free."""
    homes = [tmp_path / str(number) for number in range(20)]
    firsts = {new_record(home, "id", 1).brokers[1].client for home in homes}
    assert len(firsts) > 15


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """Whichever of the three it is."""
    record = new_record(tmp_path, "id", 1)
    check_ports(record, 1)
    for port in _ports(record.brokers[1]):
        with socket.create_server(("127.0.0.1", port)), pytest.raises(Refused, match=str(port)) as caught:
            check_ports(record, 1)
        assert caught.value.code == "port_in_use"


def _ports(broker: object) -> list[int]:
    return [getattr(broker, name) for name in ("client", "broker", "controller")]
