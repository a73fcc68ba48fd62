"""A checkpoint is a replica at one moment, whatever happens to the replica afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from anew.codec.compression import compressor
from anew.core.arrow import bytes_list, concat
from anew.core.errors import Failed
from anew.core.feed import FeedPartition, PositionMap
from anew.core.hashing import row_hashes
from anew.storage.applying import Floors
from anew.storage.checkpoint import BATCH_ROWS, open_checkpoint
from anew.storage.memory import NodeMemory
from anew.storage.replica import Base, Replica
from anew.storage.sst import Promised, build_sst
from tests.component.storage.test_replica import AT, BASE, applied, opened
from tests.unit.storage.test_sst import rows_of

ZSTD = compressor("zstd")


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    """An empty replica."""
    made = Replica.create(tmp_path / "r", NodeMemory(), [], BASE)
    made.use(ZSTD, Floors())
    return made


def rows_in(directory: Path, after: bytes | None = None) -> pa.RecordBatch:
    """All rows of a checkpoint behind a key."""
    with open_checkpoint(directory) as found:
        return concat(list(found.rows(ZSTD, after)))


def test_data_and_position_are_of_one_moment(replica: Replica, tmp_path: Path) -> None:
    """Values, tombstones and positions of the moment are there, with hashes of what was written; later ones are not."""
    end = applied(replica, {b"a": b"one", b"b": None, b"": b"empty"}, 5)
    replica.advance(FeedPartition("f2", 1), 17)
    replica.checkpoint(tmp_path / "c")
    applied(replica, {b"a": b"two", b"z": b"late"}, end)
    replica.close()
    with open_checkpoint(tmp_path / "c") as found:
        assert found.base == BASE
        assert found.position == PositionMap({AT: 8, FeedPartition("f2", 1): 17})
    rows = rows_in(tmp_path / "c")
    assert bytes_list(rows.column("key")) == [b"", b"a", b"b"]
    assert rows.column("value").to_pylist() == [b"empty", b"one", None]
    assert rows.column("offset").to_pylist() == [7, 5, 6]
    assert rows.column("hash").to_numpy().view(np.uint64).tolist() == row_hashes(rows).tolist()


def test_nothing_of_a_checkpoint_keeps_the_replica_locked(replica: Replica, tmp_path: Path) -> None:
    """A replica with checkpoints closes, opens again and can be thrown away; they outlive it."""
    applied(replica, {b"a": b"one"}, 5)
    replica.checkpoint(tmp_path / "c1")
    replica.checkpoint(tmp_path / "c2")
    replica.close()
    opened(tmp_path / "r", NodeMemory()).discard()
    assert rows_in(tmp_path / "c1").num_rows == rows_in(tmp_path / "c2").num_rows == 1


def test_a_scan_of_many_batches_has_each_row_once(replica: Replica, tmp_path: Path) -> None:
    """Batches part the keys; a scan behind a key, present or not, begins with the next one."""
    keys = [f"k{number:05}".encode() for number in range(2 * BATCH_ROWS + 3)]
    applied(replica, dict.fromkeys(keys, b"v"), 5)
    replica.checkpoint(tmp_path / "c")
    replica.close()
    assert bytes_list(rows_in(tmp_path / "c").column("key")) == keys
    assert bytes_list(rows_in(tmp_path / "c", keys[BATCH_ROWS]).column("key")) == keys[BATCH_ROWS + 1 :]
    assert bytes_list(rows_in(tmp_path / "c", keys[-2] + b"x").column("key")) == keys[-1:]


def test_a_cell_that_nobody_can_read_is_a_row_like_no_other(replica: Replica, tmp_path: Path) -> None:
    """A broken cell does not end the scan: its row is there with a hash of its own, its neighbours are whole."""
    applied(replica, {b"a": b"one", b"b": b"two", b"c": b"three"}, 5)
    replica._database.write([b"b"], [b"\x01\x00broken"])
    replica.checkpoint(tmp_path / "c")
    replica.close()
    rows = rows_in(tmp_path / "c")
    assert bytes_list(rows.column("key")) == [b"a", b"b", b"c"]
    assert rows.column("value").to_pylist() == [b"one", b"\x01\x00broken", b"three"]
    assert len(set(rows.column("hash").to_pylist())) == 3
    assert rows.column("schema_id").to_pylist() == [1, -1, 1]


def test_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    """A directory without a database, or with one that never became a replica, cannot be opened."""
    with pytest.raises(Failed, match="RocksDB cannot open a checkpoint"), open_checkpoint(tmp_path / "none"):
        raise AssertionError("nothing to see")
    replica = Replica.create(tmp_path / "r", NodeMemory(), [], BASE)
    with pytest.raises(Failed, match="RocksDB cannot keep a checkpoint"):
        replica.checkpoint(tmp_path / "r")
    replica.close()


@pytest.mark.case("stores:G2")
@pytest.mark.parametrize("promised", [(1, 1), (3, 0), (0, 0)])
def test_a_load_counts_what_rocksdb_holds(tmp_path: Path, promised: tuple[int, int]) -> None:
    """Another number of entries than the base has is refused, and the directory can be loaded into afterwards."""
    batch = rows_of([b"a", b"b", b"c"], [b"1", None, b"3"])
    memory, hashes = NodeMemory(), batch.column("hash").to_numpy()

    def load(rows: int, tombstones: int) -> Replica:
        base = Promised("base.parquet", 2, 1, int(hashes.sum()))
        built = build_sst(tmp_path / "x.sst", [batch], base)
        assert built is not None
        return Replica.create(tmp_path / "r", memory, [[built.path]], Base("m", rows, tombstones, PositionMap()))

    if sum(promised) == 3:
        load(*promised).close()
        return
    with pytest.raises(Failed, match="RocksDB does not hold what the base does") as refusal:
        load(*promised)
    assert (refusal.value.code, refusal.value.found) == ("fingerprint_mismatch", "3 entries")
    assert Replica.open_existing(tmp_path / "r", memory, "m") is None
