"""What is recorded of a cluster of brokers: ``kafka.json``, written whole or not at all."""

from __future__ import annotations

import json
import socket
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from anew.core.errors import Failed, Refused
from anew.runtime.security import write_private

_FORMAT = 1
_FIRST_PORT, _PORTS = 20_000, 10_000
"""Below those from which systems take the ports of outgoing connections: a client that tries a broker that is down
would sooner or later be given that broker's port, and be connected to itself."""


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Where a broker listens, on 127.0.0.1: for clients, for other brokers, for controllers."""

    client: int
    broker: int
    controller: int


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster of brokers below a directory.

    Attributes:
        cluster_id: Kafka's id of it.
        brokers: Broker id → its ports.
        wanted: Whether it was started and not stopped since: then a broker that does not run has died.
    """

    cluster_id: str
    brokers: dict[int, BrokerPorts]
    wanted: bool

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return ",".join(f"127.0.0.1:{ports.client}" for ports in self.brokers.values())


def read_record(directory: Path) -> ClusterRecord | None:
    """What is recorded below a directory; None when nothing is.

    Raises:
        Failed: ``bad_record``.
    """
    path = directory / "kafka.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise ValueError(f"format {found['format']}")
        brokers = {int(id): BrokerPorts(**ports) for id, ports in found["brokers"].items()}
        return ClusterRecord(str(found["cluster_id"]), brokers, bool(found["wanted"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failed(
            "bad_record",
            f"{path} is no record of brokers",
            found=repr(error),
            expected=f"JSON of format {_FORMAT}",
            hint=f"end brokers that run there, then remove {directory}: what they hold goes with it",
        ) from error


def write_record(directory: Path, record: ClusterRecord) -> None:
    """Replace what is recorded."""
    write_private(directory / "kafka.json", json.dumps({"format": _FORMAT, **asdict(record)}, indent=1) + "\n")


def new_record(directory: Path, cluster_id: str, brokers: int) -> ClusterRecord:
    """A cluster on ports that are free now; which ones depends on the directory, so that neighbours differ."""
    first = zlib.crc32(str(directory).encode()) % _PORTS
    with ExitStack() as held:
        free = _free_ports(first, held)
        ports = {id: BrokerPorts(next(free), next(free), next(free)) for id in range(1, brokers + 1)}
    return ClusterRecord(cluster_id, ports, wanted=False)


def check_ports(record: ClusterRecord, broker: int) -> None:
    """Raise when somebody else listens where a broker is to.

    Raises:
        Refused: ``port_in_use``.
    """
    ports = record.brokers[broker]
    for port in (ports.client, ports.broker, ports.controller):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise Refused(
                    "port_in_use",
                    f"broker {broker} cannot listen on 127.0.0.1:{port}",
                    found=error.strerror,
                    expected="the port free that is recorded for it: clients know it",
                    hint=f"see who has it (ss -ltnp 'sport = :{port}'), end that, and run this again",
                ) from error


def _free_ports(first: int, held: ExitStack) -> Iterator[int]:
    """Free ports from one on, round the range; each is held until the stack is left, so that none comes twice."""
    for step in range(_PORTS):
        port = _FIRST_PORT + (first + step) % _PORTS
        probe = held.enter_context(socket.socket())
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        yield port
    raise Refused(
        "no_free_port", "there are no ports left for brokers", expected=f"one from {_FIRST_PORT} on, on 127.0.0.1"
    )
