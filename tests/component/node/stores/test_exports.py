"""Replicas that stand for a lost base: written where they all agree, given up with their verification."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anew.api.node_http import NodeClient
from anew.api.stores.verifying import ExportReplica, VerifyStage
from anew.client.verify import Round, Sources, standing
from anew.core.arrow import concat
from anew.core.errors import Failed
from anew.segments.provenfile import read_proven
from tests.component.node.harness import config, wait_for, world
from tests.component.node.stores.fleet import Fleet, fleet, subject_of

pytestmark = pytest.mark.processes

_BASE: dict[str, str | None] = {f"k{number:03}": f"base {number}" for number in range(120)}
_PLACE = (0, 0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes with the same version of one partition, and a write on top of it."""
    folder = tmp_path_factory.mktemp("pair")
    with world(folder) as words:
        words.version(1, _BASE, config=config("none", partitions=1))
        words.write("k001", "new")
        with fleet(words, folder) as nodes:
            yield nodes


@contextmanager
def _standing(pair: Fleet) -> Iterator[Round]:
    subject, nodes = subject_of(pair.words, pair.urls), NodeClient(20.0)
    try:
        with standing(Sources(lambda: subject, nodes, pair.words.log, pair.words.deep)) as made:
            yield made
    finally:
        nodes.close()


def test_what_a_replica_holds_is_written_as_a_base(pair: Fleet) -> None:
    """All of it, with what was written since; or of the base alone what nobody has written over."""
    with _standing(pair) as made:
        whole = made.export(_PLACE, "stores/u1/repairs/whole", base_only=False)
        base = made.export(_PLACE, "stores/u1/repairs/base", base_only=True)
    assert whole.file is not None
    assert base.file is not None
    assert (whole.file.rows, base.file.rows) == (120, 119)
    keys: list[Any] = concat(list(read_proven(pair.words.deep, whole.file))).column("key").to_pylist()
    assert keys == sorted(keys)


def test_replicas_that_differ_stand_for_no_base(pair: Fleet) -> None:
    """Nobody knows which is right: none is read in the place of what was lost, and nothing is written."""
    with (
        pair.planted("n2", ["k000"], lambda cell: None if cell is None else cell[:-1] + bytes([cell[-1] ^ 1])),
        _standing(pair) as made,
    ):
        with pytest.raises(Failed) as caught:
            made.export(_PLACE, "stores/u1/repairs/differs", base_only=False)
        assert caught.value.code == "replicas_differ"
        assert list(pair.words.deep.list("stores/u1/repairs/differs")) == []


def test_an_export_ends_with_its_verification(pair: Fleet) -> None:
    """What waits for the loader is cancelled when the caller gives up, and nothing appears under its path."""
    engine = pair.nodes["n1"].engine
    verifications = engine.verifications
    job = verifications.begin("u1", 1).job
    verifications.aim(job, pair.words.ends())
    wait_for("the scan", lambda: verifications.view(job).stage is VerifyStage.DONE)
    path = "stores/u1/repairs/late/p0"
    asked = [
        verifications.export(job, ExportReplica(partition=0, sub_partition=0, path=f"{path}-{n}", base_only=False))
        for n in range(20)
    ]
    verifications.end(job)
    wait_for("the end of all", lambda: all(one.done() for one in asked))
    cancelled = [one.cancelled() for one in asked]
    assert any(cancelled), "the loader has begun with some at most"
    written = {stored.path for stored in pair.words.deep.list("stores/u1/repairs/late")}
    assert written == {f"{path}-{n}" for n, gone in enumerate(cancelled) if not gone}
    wait_for("the checkpoints to go", lambda: pair.checkpoints() == [])


def test_the_disk_of_checkpoints_is_free_again(pair: Fleet, tmp_path: Path) -> None:
    """Each of many exports leaves nothing on the nodes."""
    for number in range(3):
        with _standing(pair) as made:
            made.export(_PLACE, f"stores/u1/repairs/{tmp_path.name}-{number}", base_only=False)
    wait_for("the checkpoints to go", lambda: pair.checkpoints() == [])
