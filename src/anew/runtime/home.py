"""The home of an embedded cluster: what lies where, who holds it, which processes run."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from anew.core.errors import Refused, Unreachable


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What ``anew up`` wrote of the cluster, for every other command.

    Attributes:
        pids: Process name → pid; informative, the lock says who lives.
        nodes: Node id → port.
        advertise: The host under which others reach them; empty: what they bind to.
        tls: Whether they speak TLS.
    """

    fabric: str
    bind: str
    port: int
    nodes: dict[str, int]
    supervisor: int
    pids: dict[str, int]
    advertise: str = ""
    tls: bool = False

    @property
    def url(self) -> str:
        """Where the controller is reached."""
        return self._url(self.port)

    def node_url(self, node: str) -> str:
        """Where a node is reached."""
        return self._url(self.nodes[node])

    def _url(self, port: int) -> str:
        host = self.advertise if self.advertise else self.bind
        return f"{'https' if self.tls else 'http'}://{host}:{port}"


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
        """Create the directories; nobody but this user may look into a home, one of an earlier release neither."""
        for directory in (self.path, self.path / "logs", self.path / "nodes"):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)

    def write_cluster(self, cluster: ClusterFile) -> None:
        """Replace the cluster file, whole or not at all."""
        temporary = self.cluster_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(cluster), indent=1), encoding="utf-8")
        temporary.replace(self.cluster_file)

    def read_cluster(self) -> ClusterFile | None:
        """What the last ``anew up`` wrote, None when there never was one."""
        if not self.cluster_file.is_file():
            return None
        return ClusterFile(**json.loads(self.cluster_file.read_text(encoding="utf-8")))

    def lock(self) -> IO[str]:
        """Take the home for this process until the file is closed or the process ends, however it ends.

        Raises:
            Refused: ``already_up``.
        """
        self.make()
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
        """Whether a supervisor lives."""
        path = self.path / "lock"
        if not path.is_file():
            return False
        with path.open("r", encoding="utf-8") as holder:
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
                found="no cluster was made there" if cluster is None else "it was stopped",
                expected="a running cluster, or ANEW_URL",
                hint="anew up --detach, or set ANEW_HOME or ANEW_URL",
            )
        return cluster
