"""``anew store verify``: its exit codes, its one document and its table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from anew.cli.main import run_command
from anew.client.verdict import Difference, Expected, ReplicaVerdict, Verification, verdict_error
from anew.core.feed import FeedPartition, PositionMap
from anew.core.fingerprint import Fingerprint

_BASE = Fingerprint(12, 3, (15, *[0] * 255), (0xABC, *[0] * 255))
_LESS = Fingerprint(11, 3, (14, *[0] * 255), (0xDEF, *[0] * 255))
_POSITION = PositionMap({FeedPartition("dc-0/flights_rt#1", 0): 12})
_EQUAL = ReplicaVerdict.of("node-1", (0, 0), _BASE, _BASE)
_DIFFERS = ReplicaVerdict.of("node-2", (0, 0), _LESS, _BASE)
_DAMAGED = ReplicaVerdict.unverified("node-2", (0, 0), "damaged: Corruption", is_damaged=True)
_AWAY = ReplicaVerdict.unverified("node-2", (0, 0), "the node does not answer")


def _found(other: ReplicaVerdict) -> Verification:
    """What a verification of one replica that is equal and another one says."""
    missing = Difference(partition=0, sub_partition=0, node="node-2", key="p7", kind="missing")
    differences = (missing,) if other.equal is False else ()
    return Verification(
        store="flights",
        version=7,
        fabric="dc-0",
        position=_POSITION,
        equal=bool(other.equal),
        replicas=(_EQUAL, other),
        expected=(Expected.of((0, 0), _BASE),),
        differences=differences,
        difference_count=len(differences),
        error=verdict_error("flights", (_EQUAL, other), len(differences)),
    )


@dataclass(frozen=True)
class _Cluster:
    """A cluster whose verification is known."""

    found: Verification

    def verify(self, name: str, *, timeout_seconds: float) -> Verification:
        """What was found."""
        assert (name, timeout_seconds) == ("flights", 30.0)
        return self.found


def _run(monkeypatch: pytest.MonkeyPatch, other: ReplicaVerdict, *options: str) -> int:
    @contextmanager
    def cluster() -> Iterator[_Cluster]:
        yield _Cluster(_found(other))

    monkeypatch.setattr("anew.cli.stores.commands.cluster", cluster)
    return run_command(["store", "verify", "flights", "--timeout", "30", *options])


@pytest.mark.parametrize(
    ("other", "code", "error"),
    [
        (_EQUAL, 0, None),
        (_DIFFERS, 1, "replicas_differ"),
        (_DAMAGED, 1, "replica_damaged"),
        (_AWAY, 4, "replicas_unverified"),
    ],
    ids=["equal", "differs", "damaged", "away"],
)
def test_the_document_and_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    other: ReplicaVerdict,
    code: int,
    error: str | None,
) -> None:
    """One document with all replicas, whatever became of them; 0 equal, 1 something differs, 4 somebody is away."""
    assert _run(monkeypatch, other, "--json") == code
    document = json.loads(capsys.readouterr().out)
    assert list(document) == [
        "store",
        "version",
        "fabric",
        "position",
        "equal",
        "replicas",
        "expected",
        "differences",
        "difference_count",
        "error",
    ]
    assert (document["error"] or {"code": None})["code"] == error
    assert document["position"] == {"dc-0/flights_rt#1": {"0": 12}}
    assert document["replicas"][0] == {
        "node": "node-1",
        "partition": 0,
        "sub_partition": 0,
        "rows": 12,
        "tombstones": 3,
        "fingerprint": "0000000000000abc",
        "equal": True,
        "error": None,
        "damaged": False,
    }
    assert document["equal"] is (code == 0)


def test_people_get_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Base ⊕ feeds and each replica are a line each, differing keys are listed, the error is on stderr."""
    assert _run(monkeypatch, _DIFFERS) == 1
    shown = capsys.readouterr()
    lines = [line.split() for line in shown.out.splitlines() if line]
    assert ["0", "0", "base", "⊕", "feeds", "12", "3", "0000000000000abc"] in lines
    assert ["0", "0", "node-1", "12", "3", "0000000000000abc", "yes"] in lines
    assert ["0", "0", "node-2", "11", "3", "0000000000000def", "no"] in lines
    assert ["node-2", "0", "0", '"p7"', "missing"] in lines
    assert "replicas_differ" in shown.err


def test_a_replica_that_is_unknown_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line of a replica whose node does not answer has the reason in the place of the verdict."""
    assert _run(monkeypatch, _AWAY) == 4
    shown = capsys.readouterr()
    assert any("node-2" in line and "the node does not answer" in line for line in shown.out.splitlines())
    assert "replicas_unverified" in shown.err
