"""A replica's life: load, reopen, scan, close."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.codec.compression import compressor
from anew.core.errors import Failed
from anew.core.feed import FeedPartition, PositionMap
from anew.storage.applying import Floors
from anew.storage.memory import NodeMemory
from anew.storage.replica import Base, Replica
from tests.component.storage.test_replica_merge import Record, portion_of, rows_of

AT = FeedPartition("f1", 0)
BASE = Base("manifest-1", 0, 0, PositionMap({AT: 5}), b"dictionary")


def applied(replica: Replica, values: dict[bytes, bytes | None], first: int) -> int:
    """Write values as feed records from an offset; the next offset."""
    cells = [(k, Record(k, 1, 0, 9, True, v).cell(first + i)) for i, (k, v) in enumerate(values.items())]
    replica.apply([portion_of(AT, rows_of(cells), first + len(cells))])
    return first + len(cells)


def opened(directory: Path, memory: NodeMemory) -> Replica:
    """The replica in a directory, ready."""
    replica = Replica.open_existing(directory, memory, BASE.manifest)
    assert replica is not None
    replica.use(compressor("zstd"), Floors())
    return replica


@pytest.mark.case("rules:R4", "rules:R5")
def test_base_positions_and_values_survive_a_close(tmp_path: Path) -> None:
    """What was loaded and applied is there after closing and opening, with the position that belongs to it."""
    memory = NodeMemory()
    replica = Replica.create(tmp_path / "r", memory, [], BASE)
    replica.use(compressor("zstd"), Floors())
    assert replica.position == BASE.start
    applied(replica, {b"": b"empty", b"a": b"1" * 5000, b"b": None}, 5)
    replica.advance(FeedPartition("a/b", 3), 17)
    replica.close()
    again = opened(tmp_path / "r", memory)
    assert again.base == BASE
    assert again.position == PositionMap({AT: 8, FeedPartition("a/b", 3): 17})
    found = again.get_many([b"", b"a", b"b", b"c"])
    assert [live and live.body for live in found] == [b"empty", b"1" * 5000, None, None]
    again.close()


@pytest.mark.case("rules:R4")
def test_only_the_wanted_and_complete_base_is_opened(tmp_path: Path) -> None:
    """Nothing, another manifest's replica and a taken directory are not what is asked for."""
    memory = NodeMemory()
    assert Replica.open_existing(tmp_path / "none", memory, BASE.manifest) is None
    Replica.create(tmp_path / "r", memory, [], BASE).close()
    assert Replica.open_existing(tmp_path / "r", memory, "manifest-2") is None
    with pytest.raises(Failed, match="a load needs a fresh directory"):
        Replica.create(tmp_path / "r", memory, [], BASE)
    opened(tmp_path / "r", memory).discard()
    assert not (tmp_path / "r").exists()


def test_a_scan_ends_and_lets_go_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages bounded by count and by bytes cover each live key once, and closing after a scan frees the lock."""
    monkeypatch.setattr("anew.storage.portions.BATCH_RECORDS", 500)
    memory = NodeMemory()
    replica = Replica.create(tmp_path / "r", memory, [], BASE)
    replica.use(compressor("zstd"), Floors())
    keys = [f"k{number:04}".encode() for number in range(1_005)]
    end = applied(replica, dict.fromkeys(keys, b"v" * 10), 5)
    applied(replica, {keys[3]: None, keys[-1]: None}, end)
    del keys[3], keys[-1]
    for limit, max_bytes in ((100, 1 << 20), (10_000, 300), (1, 1)):
        found: list[bytes] = []
        page = replica.scan(None, limit, max_bytes)
        while True:
            assert len(page.items) <= limit
            found += [key for key, _ in page.items]
            if page.next_after is None:
                break
            page = replica.scan(page.next_after, limit, max_bytes)
        assert found == keys
    replica.close()
    with pytest.raises(Failed, match="the replica was closed"):
        replica.get(b"a")
    with pytest.raises(Failed, match="the replica was closed"):
        replica.scan(None, 1, 1)
    opened(tmp_path / "r", memory).close()


@pytest.mark.case("rules:R25")
def test_the_file_limit_is_checked(tmp_path: Path) -> None:
    """More replicas than the process may have files for are refused with what to do."""
    memory = NodeMemory()
    memory.check_room(memory.instance_limit)
    with pytest.raises(Failed, match="raise the limit of open files"):
        memory.check_room(memory.instance_limit + 1)
