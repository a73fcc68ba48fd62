"""A cluster of brokers below a directory: started, stopped, looked at.

`start` goes these steps, each under the directory's lock. It may be killed after any of them; the next `start` goes
through them again and finds done what is done, and `stop` ends whatever runs:

1. The jars are in the cache (`anew.jars.fetching`): left is a cache, or a part that does not count.
2. ``kafka.json`` names cluster id and ports: left is a cluster that was never formatted.
3. Settings are written, from ``kafka.json`` alone: written again each time.
4. Each broker's data is formatted beside its place and renamed: left is a ``formatting.*``, removed next time.
5. ``kafka.json`` says that the cluster is wanted: left are brokers that do not run, which `status` calls dead.
6. Brokers are launched, one after the other: left are brokers that run, whose locks say so (`anew.brokers.process`).
7. They answer, and know one another.
"""

from __future__ import annotations

import base64
import fcntl
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from anew.brokers.asking import ask
from anew.brokers.configuration import BrokerFolder, BrokerSettings, java_options, write_configuration
from anew.brokers.java import BrokerJava, broker_java, format_data, last_words
from anew.brokers.process import BrokerProcess, locks, until
from anew.brokers.record import ClusterRecord, check_ports, new_record, read_record, write_record
from anew.core.errors import Failed, InvalidRequest, Refused, Unreachable
from anew.runtime.clock import new_id

_COUNTS = (1, 3)
_LOCK_SECONDS = 120.0
_READY_SECONDS = 60.0
_END_SECONDS, _KILLED_SECONDS = 10.0, 10.0
_ANSWER_SECONDS = 5.0
_ENDING = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker as it is now.

    Attributes:
        port: Where clients reach it, on 127.0.0.1.
        pid: Its process; None when it does not live.
        answers: Whether it serves, and knows all brokers of its cluster.
    """

    id: int
    port: int
    pid: int | None
    alive: bool
    answers: bool


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster as it is now; healthy when all its brokers answer."""

    healthy: bool
    bootstrap: str
    cluster_id: str
    brokers: tuple[BrokerStatus, ...]


@dataclass(frozen=True, slots=True)
class Brokers:
    """A cluster of brokers that was started. It does not end with this object, nor with this process.

    Attributes:
        started: Which brokers `start` launched; none: all of them ran.
    """

    directory: Path
    record: ClusterRecord
    settings: BrokerSettings = field(default_factory=BrokerSettings)
    started: tuple[int, ...] = ()

    @property
    def bootstrap(self) -> str:
        """Where clients find it, as they write it: ``127.0.0.1:PORT,…``."""
        return self.record.bootstrap

    def pid(self, broker: int) -> int | None:
        """The process of a broker; None when it does not live."""
        return _process(self.directory, broker).pid

    def kill(self, broker: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a broker, and wait for its end where it has to end.

        Raises:
            Refused: ``broker_down``: it does not run.
            Failed: ``stop_failed``: it does not end.
        """
        process = _process(self.directory, broker)
        if not process.send(number):
            raise Refused("broker_down", f"broker {broker} does not run", expected="one that runs")
        if number in _ENDING and not process.await_end(_END_SECONDS if number == signal.SIGKILL else _READY_SECONDS):
            raise Failed("stop_failed", f"broker {broker} does not end", found=f"process {process.pid}")

    def restart(self, broker: int) -> None:
        """Stop a broker, when it runs, start it, and wait until all brokers that run know one another.

        Raises:
            Failed: ``start_failed``, ``stop_failed``.
            Refused: ``port_in_use``.
            Unreachable: As `start`.
        """
        java = broker_java()
        with _locked(self.directory):
            _end([_process(self.directory, broker)])
            check_ports(self.record, broker)
            _launch(self, java, BrokerFolder(self.directory, broker))
            running = frozenset(id for id in self.record.brokers if _process(self.directory, id).lives)
            # Without a majority there is no controller, and nobody that would let a broker serve.
            if 2 * len(running) > len(self.record.brokers):
                _await_answers(self, running)

    def stop(self) -> bool:
        """End all brokers; False when none ran. What they hold stays.

        Raises:
            Failed: ``stop_failed``.
        """
        return stop(self.directory)

    def status(self) -> ClusterStatus:
        """How it is now."""
        whole = frozenset(self.record.brokers)
        found = []
        for id, ports in self.record.brokers.items():
            pid = _process(self.directory, id).pid
            view = None if pid is None else ask(ports.broker, _ANSWER_SECONDS)
            answers = view is not None and view.cluster_id == self.record.cluster_id and view.brokers == whole
            found.append(BrokerStatus(id, ports.client, pid, alive=pid is not None, answers=answers))
        healthy = self.record.wanted and all(broker.answers for broker in found)
        return ClusterStatus(healthy, self.bootstrap, self.record.cluster_id, tuple(found))


def start(directory: Path, settings: BrokerSettings | None = None) -> Brokers:
    """Start the brokers that do not run, and wait until all of them answer.

    Args:
        directory: Where all that is theirs lies; made where it is missing.
        settings: What they are to be; None: as many as there are, or one.

    Raises:
        InvalidRequest: ``bad_brokers``: neither one nor three.
        Refused: ``brokers_fixed``: the directory holds another number; ``port_in_use``, ``brokers_busy``.
        Unreachable: ``java_missing``, ``java_too_old``, ``maven_missing``, ``jars_unreachable``.
        Failed: ``start_failed``, ``format_failed``; what was launched is ended again.
    """
    if settings is not None and settings.brokers not in _COUNTS:
        raise InvalidRequest(
            "bad_brokers", "a cluster has one broker, or three", found=settings.brokers, expected="1, 3"
        )
    java = broker_java()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    with _locked(directory):
        before = _recorded(directory, settings)
        wanted = replace(before, wanted=True)
        cluster = Brokers(directory, wanted, BrokerSettings(len(wanted.brokers)) if settings is None else settings)
        absent = [BrokerFolder(directory, id) for id in wanted.brokers if not _process(directory, id).lives]
        for broker in absent:
            check_ports(wanted, broker.id)
        for broker in absent:
            write_configuration(wanted, cluster.settings, broker)
        format_data(java, wanted, absent)
        write_record(directory, wanted)
        try:
            for broker in absent:
                _launch(cluster, java, broker)
            _await_answers(cluster, frozenset(wanted.brokers))
        except BaseException:
            _end([BrokerProcess(broker) for broker in absent])
            write_record(directory, before)
            raise
    return replace(cluster, started=tuple(broker.id for broker in absent))


def find(directory: Path) -> Brokers:
    """The cluster below a directory, whether it runs or not.

    Raises:
        Unreachable: ``no_brokers``: none was made there, or it was stopped.
    """
    record = read_record(directory)
    if record is not None:
        found = Brokers(directory, record, BrokerSettings(len(record.brokers)))
        if record.wanted or any(_process(directory, id).lives for id in record.brokers):
            return found
    raise Unreachable(
        "no_brokers",
        f"no brokers run below {directory}",
        found="none were started there" if record is None else "they were stopped",
        expected="running brokers",
        hint="anew kafka up",
    )


def stop(directory: Path) -> bool:
    """End all brokers below a directory; False when none ran. What they hold stays.

    Raises:
        Refused: ``brokers_busy``.
        Failed: ``stop_failed``.
    """
    if read_record(directory) is None:
        return False
    with _locked(directory):
        record = read_record(directory)
        if record is None:
            return False
        write_record(directory, replace(record, wanted=False))
        return _end([_process(directory, id) for id in record.brokers])


def _process(directory: Path, broker: int) -> BrokerProcess:
    return BrokerProcess(BrokerFolder(directory, broker))


def _recorded(directory: Path, settings: BrokerSettings | None) -> ClusterRecord:
    record = read_record(directory)
    if record is None:
        # Kafka's ids are 16 bytes in the alphabet of URLs.
        id = base64.urlsafe_b64encode(bytes.fromhex(new_id())).decode("ascii").rstrip("=")
        record = new_record(directory, id, 1 if settings is None else settings.brokers)
        write_record(directory, record)
    if settings is not None and settings.brokers != len(record.brokers):
        raise Refused(
            "brokers_fixed",
            f"{directory} holds a cluster of another size",
            found=f"{len(record.brokers)} brokers",
            expected=f"{settings.brokers}",
            hint="use another ANEW_HOME; or stop them, and remove that directory with what they hold",
        )
    return record


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Alone: nobody else starts or ends brokers here."""
    with (directory / "lock").open("a", encoding="ascii") as held:
        if not until(lambda: locks(held.fileno(), fcntl.LOCK_EX), _LOCK_SECONDS):
            raise Refused(
                "brokers_busy",
                f"another process starts or ends the brokers below {directory}",
                found=f"no end of it within {_LOCK_SECONDS:.0f} s",
                hint=f"see which: fuser -v {directory / 'lock'}",
            )
        yield


def _launch(cluster: Brokers, java: BrokerJava, broker: BrokerFolder) -> None:
    command = java.command(java_options(broker), "kafka.Kafka", str(broker.properties))
    BrokerProcess(broker).launch(command, cluster.settings.environment.get(broker.id, {}))


def _await_answers(cluster: Brokers, wanted: frozenset[int]) -> None:
    """Wait until each of these brokers serves and knows all of them."""
    missing = set(wanted)

    def answered() -> bool:
        for id in sorted(missing):
            if not _process(cluster.directory, id).lives:
                raise _not_started(cluster, id, "its process ended")
            view = ask(cluster.record.brokers[id].broker, _ANSWER_SECONDS)
            if view is not None and view.cluster_id == cluster.record.cluster_id and view.brokers >= wanted:
                missing.discard(id)
        return not missing

    if not until(answered, _READY_SECONDS):
        raise _not_started(cluster, min(missing), f"no answer within {_READY_SECONDS:.0f} s")


def _not_started(cluster: Brokers, broker: int, found: str) -> Failed:
    folder = BrokerFolder(cluster.directory, broker)
    words = last_words(folder)
    return Failed(
        "start_failed",
        f"broker {broker} did not start",
        found=f"{found}; it said: {words}" if words else found,
        expected="an answer from each broker that names them all",
        hint=f"look into {folder.log} and {folder.printed}; anew kafka down ends what runs",
    )


def _end(processes: Sequence[BrokerProcess]) -> bool:
    """End them in order, and those that do not end by force; whether any ran."""
    running = [process for process in processes if process.send(signal.SIGTERM)]
    for process in running:
        # One that was stopped could not hear.
        process.send(signal.SIGCONT)
    until(lambda: not any(process.lives for process in running), _END_SECONDS)
    for process in running:
        process.send(signal.SIGKILL)
    for process in running:
        if not process.await_end(_KILLED_SECONDS):
            raise Failed(
                "stop_failed",
                f"broker {process.folder.id} does not end",
                found=f"process {process.pid}",
                expected="no process",
                hint=f"see why: cat /proc/{process.pid}/status",
            )
    return bool(running)
