"""A base file is what was meant to be written, whatever the disk makes of it, and its rows are what they say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anew.codec.compression import compressor
from anew.core.admission import with_hashes
from anew.core.arrow import concat, replaced
from anew.core.errors import Failed
from anew.deepstore.arrow import ArrowDeepStore
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.segments import basefile
from anew.segments.basefile import BaseFileWriter
from anew.segments.provenfile import prove_whole, read_proven
from tests.component.segments_base.damage import PLAIN, ROWS_OF_A_GROUP, Flip, base_rows, of_format_1, write_file


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeepStore:
    """A deep store whose base files have several row groups."""
    monkeypatch.setattr(basefile, "ROW_GROUP_ROWS", ROWS_OF_A_GROUP)
    return open_deep_store(str(tmp_path / "deep"))


@pytest.mark.parametrize("batch_rows", [1, 333, 500, 2_000])
def test_rows_come_back_from_both_formats_and_in_slices(store: DeepStore, batch_rows: int) -> None:
    """However they were written, and whether the manifest has proofs or a checksum; the bytes are the same."""
    rows = base_rows(2_000)
    writer = BaseFileWriter.open(store, "v1/a", PLAIN)
    for first in range(0, rows.num_rows, batch_rows):
        writer.write(rows.slice(first, batch_rows))
    file = writer.close()
    assert file is not None
    assert file.proof is not None
    assert (file.proof.row_groups, file.proof.size_bytes, file.checksum) == (4, file.bytes, store.checksum("v1/a"))
    assert prove_whole(store, "v1/a", file.checksum) == file.proof
    assert write_file(store, "v1/b", rows).checksum == file.checksum
    for named in (file, of_format_1(file)):
        assert concat(list(read_proven(store, named))).equals(rows)
    sliced = [batch for slice_ in range(3) for batch in read_proven(store, file, slice_, 3)]
    assert concat(sliced).equals(rows)


def test_a_row_group_is_bounded_in_bytes(store: DeepStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large values end a row group before its rows are many: who reads one holds all of it."""
    monkeypatch.setattr(basefile, "_ROW_GROUP_BYTES", 10_000)
    file = write_file(store, "v1/a", base_rows(2_000))
    assert file.proof is not None
    assert file.proof.row_groups > 4
    assert concat(list(read_proven(store, file))).equals(base_rows(2_000))


def test_the_same_rows_give_the_same_bytes_however_large(tmp_path: Path) -> None:
    """Pages and row groups end by what the rows are: a file made again from its rows is the one that was lost."""
    few, large = base_rows(6_000), [None, *(bytes([n % 251]) * (n * 37 % 9_000) for n in range(1, 6_000))]
    rows = with_hashes(replaced(few, "value", pa.array(large, few.column("value").type)))
    store, checksums = open_deep_store(str(tmp_path)), set[str]()
    for batch_rows in (6_000, 1_024, 777, 50):
        writer = BaseFileWriter.open(store, f"v1/{batch_rows}", PLAIN)
        for first in range(0, rows.num_rows, batch_rows):
            # A copy of its own: a slice shares the buffers, whose padding nobody counts.
            writer.write(concat([rows.slice(first, batch_rows)]))
        file = writer.close()
        assert file is not None
        checksums.add(file.checksum)
    assert len(checksums) == 1


class _DamagingStore(ArrowDeepStore):
    """Turns over one bit of what is written, between the writer and the disk."""

    @contextmanager
    def write(self, path: str) -> Iterator[pa.NativeFile]:
        """See `DeepStore.write`."""
        with super().write(path) as stream:
            yield stream
        Flip(Path(self.absolute(path)), 700, 3).apply()


def test_what_a_disk_changes_while_it_is_written_is_found(tmp_path: Path) -> None:
    """The file is read back and compared with what was meant to be written."""
    store = _DamagingStore(str(tmp_path), str(tmp_path))
    with pytest.raises(Failed) as caught:
        write_file(store, "v1/a", base_rows(300))
    assert (caught.value.code, "v1/a" in caught.value.message) == ("checksum_mismatch", True)


@pytest.mark.case("rules:R19")
@pytest.mark.parametrize("column", ["key", "value", "time", "offset"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_that_are_not_what_was_read_are_found(tmp_path: Path, column: str, codec: str) -> None:
    """A gather that is off by one in any column keeps every sum of hashes; the rows themselves tell."""
    rows, packer = base_rows(400), compressor(codec)
    rows = replaced(rows, "value", packer.compress_array(rows.column("value")))
    shifted: Any = rows.column(column).take(np.roll(np.arange(400), 1))
    if column == "key":
        wrong: Any = rows.column("value").take(np.roll(np.arange(400), -1))
        rows = replaced(rows, "value", wrong)
    else:
        rows = replaced(rows, column, shifted)
    with pytest.raises(Failed) as caught:
        write_file(open_deep_store(str(tmp_path)), "v1/a", rows, packer)
    assert (caught.value.code, "v1/a" in caught.value.message) == ("rows_altered", True)
