"""Several real nodes over one world, and what a client needs to verify what they hold."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from anew.api.node_http import NodeClient
from anew.api.stores.replicas import DesiredVersion
from anew.client.verdict import Verification
from anew.client.verify import Sources, Subject, verify
from anew.core.stores.store import Version
from anew.node.process import Node, NodeSettings
from anew.node.stores.holding import Holding
from anew.storage.library import library_path
from anew.storage.rocks import Database
from anew.testing.builders import a_config, a_store, a_version
from tests.component.node.harness import KEY_SCHEMA, World, caught_up, clock, key_of, place_of, wait_for
from tests.component.node.test_node import PlayedController, free_port, running


def remove(database: Database, key: bytes) -> None:
    """Take a cell away, which the product never does: a deletion is a cell too."""
    # The structure in `rocks.c` begins with RocksDB's own handle and that of the cells.
    own = ctypes.cast(database._handle, ctypes.POINTER(ctypes.c_void_p * 2)).contents
    library, error = ctypes.CDLL(str(library_path())), ctypes.c_char_p()
    library.rocksdb_writeoptions_create.restype = ctypes.c_void_p
    options = ctypes.c_void_p(library.rocksdb_writeoptions_create())
    arguments = (ctypes.c_void_p(own[0]), options, ctypes.c_void_p(own[1]), key, ctypes.c_size_t(len(key)))
    library.rocksdb_delete_cf(*arguments, ctypes.byref(error))
    library.rocksdb_writeoptions_destroy(options)
    assert error.value is None


@dataclass
class Fleet:
    """Running nodes that all hold every partition of the world's versions.

    Attributes:
        urls: Node → where it answers.
        clients: Node → a client for it.
    """

    words: World
    nodes: dict[str, Node] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    clients: dict[str, httpx.Client] = field(default_factory=dict)

    def verify(self, timeout_seconds: float = 60.0) -> Verification:
        """Verify the world's current version."""
        return verified(self.words, self.urls, timeout_seconds)

    def settle(self) -> None:
        """Wait until every node has applied all that the log holds now."""
        wait_for("all nodes", lambda: all(stands_at_end(self.words, node) for node in self.nodes.values()))

    def holding(self, node: str, text: str) -> Holding:
        """A node's entry of the replica of a key."""
        partition, sub = place_of(self.words.versions[self.words.current].config, text)
        return next(
            holding
            for key, holding in self.nodes[node].engine._holdings.items()
            if (key.version, key.partition, key.sub_partition) == (self.words.current, partition, sub)
        )

    def change(self, node: str, text: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        """Change the bytes of a key's cell behind the replica's back; what they were."""
        replica = self.holding(node, text).replica
        assert replica is not None
        database, key = replica._database, key_of(text)
        before: bytes | None = database.get(key)
        after = change(before)
        if after is None:
            remove(database, key)
        else:
            database.write([key], [after])
        return before

    @contextmanager
    def planted(self, node: str, texts: list[str], change: Callable[[bytes | None], bytes | None]) -> Iterator[None]:
        """Cells that are changed for as long as the block runs."""
        before = {text: self.change(node, text, change) for text in texts}
        try:
            yield
        finally:
            for text, cell in before.items():
                self.change(node, text, lambda _, cell=cell: cell)  # type: ignore[misc]  # bound now

    def checkpoints(self) -> list[Path]:
        """All files that verifications have on the nodes' disks now."""
        folders = [node.engine._identity.verifying for node in self.nodes.values()]
        walked = [entry for folder in folders for entry in os.walk(folder)]
        return [Path(folder) / name for folder, _, names in walked for name in names]


def stands_at_end(words: World, node: Node) -> bool:
    """Whether a node is at the log's ends as they are now, or at its version's stop."""
    stop = words.versions[words.current].stop
    ends = words.ends() if stop is None else stop
    reports = node.engine.report().replicas
    return caught_up(node.engine) and all(
        offset >= ends[at] for report in reports for at, offset in report.position.items()
    )


@contextmanager
def fleet(words: World, folder: Path, names: tuple[str, ...] = ("n1", "n2")) -> Iterator[Fleet]:
    """Nodes that have loaded the world's versions and applied the log."""
    made = Fleet(words)
    controller = PlayedController()
    controller.state = words.desired()
    with ExitStack() as stack:
        for name in names:
            settings = NodeSettings(name, "dc-0", folder / name, "http://unused", "127.0.0.1", free_port(), clock)
            made.nodes[name], made.clients[name] = stack.enter_context(running(settings, controller))
            made.urls[name] = f"http://127.0.0.1:{settings.port}"
        made.settle()
        yield made


def verified(words: World, urls: dict[str, str], timeout_seconds: float = 60.0) -> Verification:
    """Verify the world's current version on nodes that hold all of it."""
    subject = subject_of(words, urls)
    nodes = NodeClient(5.0)
    try:
        return verify(Sources(lambda: subject, nodes, words.log, words.deep), timeout_seconds)
    finally:
        nodes.close()


def subject_of(words: World, urls: dict[str, str]) -> Subject:
    """The world's current version as the catalog would have it."""
    desired = words.versions[words.current]
    holders = {partition: tuple(urls) for partition in range(desired.config.partitions)}
    store = a_store(
        "words",
        uid="u1",
        key_schema=KEY_SCHEMA,
        schemas=words.schemas,
        config=a_config(hybrid=True),
        feeds=(words.feed,),
        versions=(_version(desired, holders),),
        current={"dc-0": words.current},
    )
    return Subject(store, "dc-0", urls)


def _version(desired: DesiredVersion, holders: dict[int, tuple[str, ...]]) -> Version:
    names = ("config", "feeds", "start", "stop", "ttl_floor_ms", "tombstone_floor_ms", "manifest")
    fields: dict[str, Any] = {name: getattr(desired, name) for name in names}
    return a_version(desired.number, assignment=holders, **fields)
