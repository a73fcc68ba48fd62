"""Files of the deep store that were changed or removed behind our back: found, refused, and brought back from nodes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.commands import Anew
from tests.cluster.tables.making import Trips, rows


def _file(anew: Anew, segment: dict[str, Any]) -> Path:
    return anew.home / "deepstore" / "dc-0" / str(segment["path"])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(bytes(content))


def _rebuilt_rows(trips: Trips) -> set[int]:
    return {copy["rebuilt_rows"] for segment in trips.segments() for copy in segment["replicas"]}


def test_changed_and_removed_files_come_back_from_nodes(anew: Anew, tmp_path: Path) -> None:
    """A refresh refuses to read them and holds it against nobody; the repair brings the very bytes to fresh paths."""
    trips = Trips.monthly(anew, "damaged", tmp_path)
    trips.load(rows())
    changed, removed, whole = trips.segments()
    _flip(_file(anew, changed))
    _file(anew, removed).unlink()
    trips.update(sort=["city"])
    refused = anew.run_here("table", "refresh", "damaged").json
    assert {each["segment"] for each in refused["failed"]} == {changed["name"], removed["name"]}
    assert refused["refreshed"] == [whole["name"]]

    plan = anew.here("table", "repair", "damaged", "--dry-run")
    reasons = {each["segment"]: each["reasons"][0] for each in plan["segments"]}
    assert set(reasons) == {changed["name"], removed["name"]}
    assert "other bytes" in reasons[changed["name"]]
    assert "is gone" in reasons[removed["name"]]
    done = anew.here("table", "repair", "damaged")
    assert (done["status"], done["refreshed"]) == ("succeeded", [changed["name"], removed["name"]])
    for before, after in zip((changed, removed), trips.segments()[:2], strict=True):
        assert after["build"] == before["build"], "the same bytes: no node fetches them again"
        assert after["path"] != before["path"], "no path is ever written twice"
        assert hashlib.sha256(_file(anew, after).read_bytes()).hexdigest() == after["sha256"] == before["sha256"]
    assert anew.here("table", "repair", "damaged")["chosen"] == []

    assert len(trips.refresh()["refreshed"]) == 2, "what failed on the damaged files is tried again by itself"
    trips.await_served()
    assert trips.query("SELECT count(*), sum(id) FROM damaged") == [[len(rows()), sum(row["id"] for row in rows())]]


def test_a_copy_that_nodes_made_again_takes_the_place_of_a_lost_file(anew: Anew, tmp_path: Path) -> None:
    """After a reload no node has the lost bytes; what they made of them is as good, and in sync besides."""
    trips = Trips.monthly(anew, "remade", tmp_path)
    trips.load(rows())
    trips.update(sort=["city"])
    anew.here("table", "reload", "remade")
    trips.await_hashes(trips.wanted)
    lost, *others = trips.segments()
    _file(anew, lost).unlink()
    done = anew.here("table", "repair", "remade", "--segment", lost["name"])
    assert done["refreshed"] == [lost["name"]]
    trips.await_served()
    after = {segment["name"]: segment for segment in trips.segments()}
    assert not after[lost["name"]]["stale"]
    assert all(after[other["name"]]["stale"] for other in others)
    assert hashlib.sha256(_file(anew, after[lost["name"]]).read_bytes()).hexdigest() == after[lost["name"]]["sha256"]
    assert trips.query("SELECT count(*), sum(id) FROM remade") == [[len(rows()), sum(row["id"] for row in rows())]]


@pytest.mark.case("tables:E10")
def test_more_replicas_are_made_of_what_lies_in_the_deep_store(anew: Anew, tmp_path: Path) -> None:
    """Segments go to other nodes as they are: after a refresh no node writes a row again."""
    trips = Trips.monthly(anew, "widened", tmp_path, replicas=1)
    trips.load_unserved(rows())
    trips.update(sort=["city"])
    assert len(trips.refresh()["refreshed"]) == 3
    trips.update(replicas=2)
    trips.await_served()
    assert _rebuilt_rows(trips) == {0}
    assert trips.hashes() == {trips.wanted}
