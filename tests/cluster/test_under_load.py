"""A repush while writers write and a reader reads: nothing is lost, nothing comes back, no read fails."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anew.core.errors import AnewError
from anew.core.feed import PositionMap
from anew.runtime.connect import connect
from tests.cluster.commands import Anew, wait_until

_KEYS = 400


@dataclass(slots=True)
class _Writer:
    """Writes its own keys round and round, each key's value growing, every seventh write a delete."""

    home: Path
    prefix: str
    stopped: threading.Event
    held: dict[str, Any] = field(default_factory=dict)
    acknowledged: int = 0
    position: PositionMap = field(default_factory=PositionMap)

    def run(self) -> None:
        """Until told to stop; what is in ``held`` is acknowledged."""
        with connect(home=str(self.home)) as cluster, cluster.store("busy").writer() as writer:
            count = 0
            while not self.stopped.is_set():
                written: dict[str, Any] = {}
                for _ in range(50):
                    key = f"{self.prefix}{count % _KEYS}"
                    written[key] = None if count % 7 == 6 else {"name": self.prefix, "age": count}
                    if written[key] is None:
                        writer.delete(key)
                    else:
                        writer.put(key, written[key])
                    count += 1
                self.position = writer.flush()
                self.held.update(written)
                self.acknowledged = count
                self.stopped.wait(0.02)


@dataclass(slots=True)
class _Reader:
    """Reads keys that nobody writes, and notes every answer that is not as it must be."""

    home: Path
    stopped: threading.Event
    keys: list[str]
    batches: int = 0
    versions: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Until told to stop."""
        with connect(home=str(self.home)) as cluster:
            store = cluster.store("busy")
            while not self.stopped.is_set():
                try:
                    found = store.get_many(self.keys)
                except AnewError as error:
                    self.wrong.append(f"failed: {error}")
                    continue
                self.batches += 1
                seen = {cell.version for cell in found if cell is not None}
                names = [None if cell is None else cell.value["name"] for cell in found]
                if len(seen) != 1 or names != [f"name {key[1:]}" for key in self.keys]:
                    self.wrong.append(f"{seen}: {names}")
                elif not self.versions or self.versions[-1] not in seen:
                    self.versions += seen


@pytest.mark.case("stores:H6", "stores:I1", "stores:I2", "stores:H9", "rules:R17")
def test_a_repush_under_load_keeps_every_write_and_every_delete(anew: Anew, people: Path) -> None:
    """Partitions and compression change under load; both versions hold just what was acknowledged."""
    anew.create("busy", "hybrid=true", "partitions=2", "rt_partitions=6")
    anew.push("busy", people)
    stopped = threading.Event()
    writers = [_Writer(anew.home, prefix, stopped) for prefix in ("a", "b")]
    reader = _Reader(anew.home, stopped, [f"p{number}" for number in range(20)])
    threads = [threading.Thread(target=run) for run in (*(writer.run for writer in writers), reader.run)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: all(w.acknowledged > _KEYS for w in writers) and reader.batches > 0, "load")
        anew.done("store", "update", "busy", "--set", "partitions=5", "--set", "compression=zstd")
        done = anew.here("repush", "busy")
        at_swap = [writer.acknowledged for writer in writers]
        wait_until(
            lambda: (
                all(w.acknowledged > at + _KEYS for w, at in zip(writers, at_swap, strict=True))
                and 2 in reader.versions
            ),
            "writes after the swap",
        )
        anew.done("rollback", "busy")
        wait_until(lambda: reader.versions[-1] == 1, "the reader to go back")
    finally:
        stopped.set()
        for thread in threads:
            thread.join(30)
    expected = {json.dumps(key): value for w in writers for key, value in w.held.items() if value is not None}
    expected |= {f'"p{n}"': {"name": f"name {n}", "age": n + 20} for n in range(20)}
    position = json.dumps(PositionMap().merged(_furthest(writers)).to_json())
    anew.done("store", "wait", "busy", "--position", position)
    assert anew.scan("busy") == expected
    anew.done("swap", "busy", "2")
    anew.done("store", "wait", "busy", "--position", position)
    assert anew.scan("busy") == expected
    assert reader.wrong == []
    assert reader.versions == [1, 2, 1]
    assert done["ledger"]["read"] == done["ledger"]["superseded"] + done["ledger"]["written"]
    assert done["ledger"]["superseded"] > 0


def _furthest(writers: list[_Writer]) -> PositionMap:
    offsets: dict[Any, int] = {}
    for writer in writers:
        for at, offset in writer.position.items():
            offsets[at] = max(offset, offsets.get(at, 0))
    return PositionMap(offsets)
