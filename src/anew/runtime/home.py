"""The home of an embedded cluster: what lies where, who holds it, which processes run."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from anew.core.errors import InvalidRequest, Refused, Unreachable

MOST_NODES = 1_000


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What ``anew up`` wrote of the cluster, for every other command.

    Attributes:
        supervisor: Its pid; 0 before it started anything and once it has ended everything.
        pids: Process name → pid; informative, the lock says who lives.
        nodes: Node id → port.
        advertise: The host under which others reach them; empty: what they bind to.
        tls: Whether they speak TLS.
        removed: Nodes that were removed: their names are not used again, unless a node is added under one of them.
    """

    fabric: str
    bind: str
    port: int
    nodes: dict[str, int]
    supervisor: int
    pids: dict[str, int]
    advertise: str = ""
    tls: bool = False
    removed: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """Where the controller is reached."""
        return self._url(self.port)

    def node_url(self, node: str) -> str:
        """Where a node is reached."""
        return self._url(self.nodes[node])

    def with_node(self, node: str) -> ClusterFile:
        """The cluster with one more node, at the port that its number says."""
        nodes = {**self.nodes, node: self.port + number_of(node)}
        return replace(self, nodes=nodes, removed=tuple(name for name in self.removed if name != node))

    def without_node(self, node: str) -> ClusterFile:
        """The cluster without a node that was removed."""
        left = {name: port for name, port in self.nodes.items() if name != node}
        return replace(self, nodes=left, removed=(*self.removed, node))

    def next_node(self) -> str:
        """The name of a node that never was."""
        numbers = (number_of(name) for name in (*self.nodes, *self.removed))
        return f"node-{max(numbers, default=0) + 1}"

    def _url(self, port: int) -> str:
        host = self.advertise if self.advertise else self.bind
        return f"{'https' if self.tls else 'http'}://{host}:{port}"


def cluster_from_json(text: str) -> ClusterFile:
    """What `ClusterFile` was as JSON, also of an earlier release."""
    body = json.loads(text)
    return ClusterFile(**{**body, "removed": tuple(body.get("removed", ()))})


def number_of(node: str) -> int:
    """The number in a node's name.

    Raises:
        InvalidRequest: ``bad_node``.
    """
    prefix, _, digits = node.partition("-")
    if prefix != "node" or not digits.isdecimal() or not 1 <= int(digits) <= MOST_NODES:
        raise InvalidRequest(
            "bad_node",
            "a node of a home has a name with its number",
            found=node,
            expected=f"node-1 to node-{MOST_NODES}",
        )
    return int(digits)


@contextmanager
def using_home(path: Path) -> Iterator[None]:
    """What the operating system does not allow below a home is a refusal that names it.

    Raises:
        Refused: ``home_unusable``.
    """
    try:
        yield
    except OSError as error:
        at = Path(str(error.filename)) if error.filename else path
        in_the_way = next((part for part in (at, *at.parents) if part.is_file()), None)
        of_no_use = isinstance(error, FileExistsError | NotADirectoryError) and in_the_way is not None
        raise Refused(
            "home_unusable",
            f"the home {path} cannot be used",
            found=f"{in_the_way} is a file" if of_no_use else f"{at}: {error.strerror or error}",
            expected="a directory in which this user may read and write, or room to make one",
            hint="mend that, or set ANEW_HOME to another directory",
        ) from error


@dataclass(frozen=True, slots=True)
class Home:
    """Paths below one directory."""

    path: Path

    @property
    def catalog_url(self) -> str:
        """The embedded catalog."""
        return f"sqlite:///{self.path / 'catalog.sqlite'}"

    def log(self, fabric: str) -> Path:
        """A fabric's embedded log."""
        return self.path / "log" / fabric

    def deep_store(self, fabric: str) -> Path:
        """A fabric's local deep store."""
        return self.path / "deepstore" / fabric

    def node(self, node: str) -> Path:
        """A node's replicas."""
        return self.path / "nodes" / node

    def log_file(self, process: str) -> Path:
        """A process's structured log."""
        return self.path / "logs" / f"{process}.log"

    @property
    def cluster_token(self) -> Path:
        """The token of the cluster's own processes."""
        return self.path / "cluster.token"

    @property
    def cluster_file(self) -> Path:
        """What ``anew up`` wrote."""
        return self.path / "cluster.json"

    def make(self) -> None:
        """Create the directories; nobody but this user may look into a home, one of an earlier release neither.

        Raises:
            Refused: ``home_unusable``.
        """
        with using_home(self.path):
            for directory in (self.path, self.path / "logs", self.path / "nodes"):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                directory.chmod(0o700)

    def look(self) -> None:
        """Raise where this user cannot look into the home; one that is not there yet is none of these.

        Raises:
            Refused: ``home_unusable``.
        """
        with using_home(self.path), suppress(FileNotFoundError), os.scandir(self.path):
            pass

    def write_cluster(self, cluster: ClusterFile) -> None:
        """Replace the cluster file, whole or not at all.

        Raises:
            Refused: ``home_unusable``.
        """
        temporary = self.cluster_file.with_suffix(".tmp")
        with using_home(self.path):
            temporary.write_text(json.dumps(asdict(cluster), indent=1), encoding="utf-8")
            temporary.replace(self.cluster_file)

    def read_cluster(self) -> ClusterFile | None:
        """What the last ``anew up`` wrote, None when there never was one.

        Raises:
            Refused: ``home_unusable``.
        """
        with using_home(self.path):
            try:
                return cluster_from_json(self.cluster_file.read_text(encoding="utf-8"))
            except FileNotFoundError:
                return None

    def ask_for_node(self, node: str) -> None:
        """Ask the supervisor, which looks for it all the time, to start a node that it does not have."""
        with using_home(self.path):
            self._asked.mkdir(mode=0o700, exist_ok=True)
            (self._asked / node).touch()

    def asked_nodes(self) -> list[str]:
        """The nodes that were asked for since; each is told once."""
        if not self._asked.is_dir():
            return []
        asked = sorted(path.name for path in self._asked.iterdir())
        for name in asked:
            (self._asked / name).unlink(missing_ok=True)
        return asked

    @property
    def _asked(self) -> Path:
        return self.path / "asked-nodes"

    def lock(self) -> IO[str]:
        """Take the home for this process until the file is closed or the process ends, however it ends.

        Raises:
            Refused: ``already_up``, ``home_unusable``.
        """
        self.make()
        with using_home(self.path):
            # Not truncated on open: the pid inside belongs to the holder until the lock is ours.
            holder = (self.path / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder.seek(0)
            pid = holder.read().strip()
            holder.close()
            raise Refused(
                "already_up",
                f"a cluster runs in {self.path} already",
                found=f"process {pid}",
                expected="a home of its own for each cluster",
                hint="anew status, or: anew down",
            ) from error
        holder.truncate(0)
        holder.write(str(os.getpid()))
        holder.flush()
        return holder

    def is_held(self) -> bool:
        """Whether a supervisor lives.

        Raises:
            Refused: ``home_unusable``.
        """
        with using_home(self.path):
            try:
                holder = (self.path / "lock").open("r", encoding="utf-8")
            except FileNotFoundError:
                return False
        with holder:
            try:
                fcntl.flock(holder, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def running(self) -> ClusterFile:
        """The cluster that runs here.

        Raises:
            Unreachable: ``no_cluster``: none was made here, or it does not run.
        """
        cluster = self.read_cluster()
        if cluster is None or not self.is_held():
            raise Unreachable(
                "no_cluster",
                f"no cluster runs in {self.path}",
                found=_why_none_runs(cluster),
                expected="a running cluster, or ANEW_URL",
                hint="anew up --detach, or set ANEW_HOME or ANEW_URL",
            )
        return cluster


def _why_none_runs(cluster: ClusterFile | None) -> str:
    if cluster is None:
        return "no cluster was made there"
    if cluster.supervisor == 0:
        return "it was stopped"
    return f"its process {cluster.supervisor} ended without anew down: it was killed, or the machine went down"
