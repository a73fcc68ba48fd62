"""A node's copies over HTTP: what is served, part by part, and never parts of two copies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from anew.api.gate import Gate, Tokens
from anew.api.tables.copy_wire import BYTES_PATH, COPY_PATH, SegmentCopy
from anew.core.errors import AnewError, error_from_json
from anew.core.grants import Grant, Right, format_grants, token_hash
from anew.node.exchange import Answer, Request
from anew.node.tables.copyface import CopyFace
from tests.component.node.tables.harness import PLAIN, SORTED, Rig, rig, rows, segment, table

OPEN = Gate(None, lambda: 0)


@pytest.fixture
def node(tmp_path: Path) -> Rig:
    """A node with an empty disk."""
    return rig(tmp_path)


def asked(node: Rig, path: str, said: dict[str, Any], gate: Gate = OPEN, token: str | None = None) -> Answer:
    """The answer to what is said in a request's body."""
    body = json.dumps({"table": "trips", "segment": "s0", **said}).encode()
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return asyncio.run(CopyFace(node.host, gate).answer(Request("POST", path, {}, headers.get, body)))


def described(node: Rig) -> SegmentCopy:
    """What the node says of its copy."""
    answer = asked(node, COPY_PATH, {})
    assert answer.status == 200
    return SegmentCopy.model_validate_json(answer.body)


def part(node: Rig, copy: SegmentCopy, offset: int) -> Answer:
    """A part of the copy that was described."""
    return asked(node, BYTES_PATH, {"build": copy.build, "config_hash": copy.config_hash, "offset": offset})


def refusal(answer: Answer) -> AnewError:
    """The error that an answer carries."""
    return error_from_json(answer.status, json.loads(answer.body)["error"])


def test_a_copy_comes_part_by_part(node: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a copy are together its file; after the last there is nothing more."""
    monkeypatch.setattr("anew.node.tables.copyface.MOST_BYTES", 500)
    build = node.build(rows(0))
    node.settle(table(segment(build)))
    copy = described(node)
    assert (copy.build, copy.config_hash, copy.rebuilt, copy.bytes) == (build.id, PLAIN.hash, False, build.bytes)
    assert copy.contents == build.contents
    parts = [part(node, copy, offset).body for offset in range(0, build.bytes + 500, 500)]
    assert [len(each) for each in parts[:2]] == [500, 500]
    assert (b"".join(parts), parts[-1]) == (node.in_deep_store(build).read_bytes(), b"")


@pytest.mark.case("tables:E5")
def test_a_copy_that_was_made_again_says_so(node: Rig) -> None:
    """A local rebuild is told as one, with its own contents; back at the build's bytes it is the build again."""
    build = node.build(rows(0))
    told = []
    for reload, config in enumerate((PLAIN, SORTED, PLAIN)):
        wanted = table(segment(build, reload=reload), config=config)
        node.settle(wanted)
        copy = described(node)
        assert part(node, copy, 0).body == node.path(wanted).read_bytes()
        told.append((copy.rebuilt, copy.config_hash))
    assert told == [(False, PLAIN.hash), (True, SORTED.hash), (False, PLAIN.hash)]


@pytest.mark.case("tables:E1", "tables:E5")
@pytest.mark.parametrize("swapped_by", ["build", "reload"])
def test_parts_of_two_copies_never_come_together(node: Rig, swapped_by: str) -> None:
    """Once another copy is served, parts of the one that was described are refused."""
    build = node.build(rows(0))
    node.settle(table(segment(build)))
    copy = described(node)
    if swapped_by == "build":
        node.settle(table(segment(node.build(rows(100)))))
    else:
        node.settle(table(segment(build, reload=1), config=SORTED))
    answer = part(node, copy, 0)
    assert (refusal(answer).code, answer.status) == ("other_copy", 409)
    assert part(node, described(node), 0).status == 200


def test_what_is_not_here_is_told(node: Rig) -> None:
    """Tables and segments that are unknown, hosted elsewhere or not loaded yet have no copy here."""
    lost = node.build(rows(0))
    node.deep.delete(lost.path)
    elsewhere = segment(node.build(rows(100)), "s1", hosted=False)
    node.settle(table(segment(lost), elsewhere))
    for said in ({}, {"segment": "s1"}, {"segment": "nosuch"}, {"table": "nosuch"}):
        answer = asked(node, COPY_PATH, said)
        assert (refusal(answer).code, answer.status) == ("not_here", 404)


def test_what_names_no_copy_is_refused(node: Rig) -> None:
    """Bytes without a build, and words that mean nothing, are bad requests."""
    node.settle(table(segment(node.build(rows(0)))))
    for path, said in ((BYTES_PATH, {}), (COPY_PATH, {"also": 1}), (COPY_PATH, {"table": 7})):
        answer = asked(node, path, said)
        assert (refusal(answer).code, answer.status) == ("bad_request", 422)


def test_a_token_opens_the_copies_of_its_own_tables_alone(node: Rig, tmp_path: Path) -> None:
    """With tokens asked for, neither what is served nor its bytes are told to others."""
    node.settle(table(segment(node.build(rows(0)))))
    copy = described(node)
    tokens = tmp_path / "tokens.toml"
    grants = [Grant(name, Right.READ, token_hash(name), frozenset({name})) for name in ("trips", "others")]
    tokens.write_text(format_grants(grants), encoding="utf-8")
    tokens.chmod(0o600)
    gate = Gate(Tokens(tokens), lambda: 0)
    wanted = {"build": copy.build, "config_hash": copy.config_hash, "offset": 0}
    for path, said in ((COPY_PATH, {}), (BYTES_PATH, wanted)):
        assert asked(node, path, said, gate, "trips").status == 200
        assert refusal(asked(node, path, said, gate, "others")).code == "not_allowed"
        assert refusal(asked(node, path, said, gate)).code == "token_missing"
