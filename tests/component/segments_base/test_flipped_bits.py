"""Bits turned over: who reads what they are part of names the file, and what is whole stays readable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anew.core.arrow import concat
from anew.core.errors import Failed
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.log.embedded import EmbeddedLog
from anew.log.interface import TopicPartition, TopicSpec
from anew.segments import basefile
from anew.segments.base import BaseReader
from anew.segments.baserange import BaseRangeWriter, read_range, start_of_push
from anew.segments.dictionary import read_dictionary
from anew.segments.manifest import parse_manifest
from anew.testing.builders import a_config, some_records
from anew.testing.clock import NOON_MS
from tests.component.segments_base.damage import (
    PLAIN,
    ROWS_OF_A_GROUP,
    Flip,
    base_rows,
    flips,
    of_format_1,
    write_file,
    write_manifest,
)

Read = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that is read.

    Attributes:
        read: Reads all of it.
        name: How an error names it.
        codes: What an error may say.
        flips: The bits that are turned over, one at a time.
        control: Reads another thing of its kind, which is whole.
    """

    read: Read
    name: str
    codes: frozenset[str]
    flips: list[Flip]
    control: Read


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeepStore:
    """A deep store whose base files have several row groups."""
    monkeypatch.setattr(basefile, "ROW_GROUP_ROWS", ROWS_OF_A_GROUP)
    return open_deep_store(str(tmp_path / "deep"))


def _damaged(*more: str) -> frozenset[str]:
    return frozenset({"checksum_mismatch", *more})


def _file_rows(store: DeepStore, file: Any) -> Read:
    return lambda: concat(list(BaseReader(store, _no_log).rows(file)))


def _no_log() -> Any:
    raise AssertionError("no part lies in the log")


def _files(store: DeepStore, *, proven: bool) -> Iterator[Subject]:
    """Base files: everywhere, in the pages' headers, and in the footer."""
    file, other = write_file(store, "v1/a", base_rows(2_000)), write_file(store, "v1/b", base_rows(700, 5_000))
    assert file.proof is not None
    path = Path(store.absolute("v1/a"))
    footer = file.proof.span(file.proof.row_groups)[0]
    headers = [Flip(path, file.proof.span(group)[0] + 8, group) for group in range(file.proof.row_groups)]
    places = [*flips(path, 46, 1, end=footer), *headers, *flips(path, 20, 2, begin=footer)]
    named, control = (file, other) if proven else (of_format_1(file), of_format_1(other))
    yield Subject(_file_rows(store, named), "v1/a", _damaged(), places, _file_rows(store, control))


def _beside_files(store: DeepStore) -> Iterator[Subject]:
    """The dictionary and the manifest."""
    file = write_file(store, "v1/c", base_rows(10))
    manifest = write_manifest(store, file, bytes(range(256)) * 4)
    ref = manifest.ref("v1/manifest.json")

    def read_manifest() -> Any:
        return parse_manifest(store.get(ref.path), ref)

    def dictionary() -> Any:
        return read_dictionary(store, manifest)

    at_dictionary, at_manifest = Path(store.absolute("v1/dictionary.zstd")), Path(store.absolute(ref.path))
    yield Subject(dictionary, "dictionary.zstd", _damaged(), flips(at_dictionary, 10, 3), read_manifest)
    yield Subject(read_manifest, "manifest.json", _damaged(), flips(at_manifest, 10, 4), dictionary)


def _log(folder: Path) -> Iterator[Subject]:
    """Batches of a feed, and the base in a version topic."""
    with closing(EmbeddedLog(folder / "log", clock=lambda: NOON_MS)) as log:
        made = log.create_topic(TopicSpec("flights_rt", "uid-rt", 2))
        feed, other = (TopicPartition(made.name, made.uid, partition) for partition in range(2))
        log.append(feed, some_records(300, "damaged"))
        log.append(other, some_records(300))
        version = log.create_topic(TopicSpec("flights_v7", "uid-v7", 1, 4 << 20))
        at, start = TopicPartition(version.name, version.uid, 0, 4), start_of_push(a_config().frozen, None, "t1")
        writer = BaseRangeWriter(log, at, "t1", start, PLAIN)
        writer.write(base_rows(1_000))
        part = writer.close()
        assert part is not None

    # Opened anew for each read: what a process holds in memory is not what is on the disk.
    def reading(act: Callable[[EmbeddedLog], Any]) -> Read:
        def read() -> Any:
            with closing(EmbeddedLog(folder / "log", clock=lambda: NOON_MS)) as log:
                return act(log)

        return read

    of_feed = reading(lambda log: log.read(feed, 0, 1_000, 300).records)
    of_other = reading(lambda log: log.read(other, 0, 1_000, 300).records)
    of_version = reading(lambda log: concat(list(read_range(log, part, start))))
    codes = frozenset({"log_corrupt"})
    for read, topic, inside in ((of_feed, "flights_rt", b"damaged"), (of_version, "flights_v7", b"value of")):
        path = next((folder / "log").rglob(f"{topic}/p-00000-*.sqlite"))
        places = _within(path, inside, 25, 5)
        yield Subject(read, path.name, codes, places, of_other)


def _within(path: Path, text: bytes, count: int, seed: int) -> list[Flip]:
    """Bits of where a text is in a file, first to last."""
    content = path.read_bytes()
    return flips(path, count, seed, content.index(text), content.rindex(text) + len(text))


def _check(subject: Subject) -> None:
    """Each bit alone is found, by name; and with none turned over all is as it was."""
    whole, control = subject.read(), subject.control()
    for flip in subject.flips:
        flip.apply()
        try:
            with pytest.raises(Failed) as caught:
                subject.read()
            assert caught.value.code in subject.codes, flip
            assert subject.name in str(caught.value), (flip, str(caught.value))
            assert subject.control() == control
        finally:
            flip.apply()
    assert subject.read() == whole


@pytest.mark.parametrize("proven", [True, False], ids=["format 2", "format 1"])
def test_a_bit_of_a_base_file_is_found(store: DeepStore, *, proven: bool) -> None:
    """Wherever it is: in a value, a page's header or the footer; whether the manifest has proofs or a checksum."""
    for subject in _files(store, proven=proven):
        assert len(subject.flips) == 70
        _check(subject)


def test_a_bit_beside_the_files_is_found(store: DeepStore) -> None:
    """In the compression dictionary, which every value of a version needs, and in the manifest."""
    for subject in _beside_files(store):
        _check(subject)


def test_a_bit_of_a_log_is_found(tmp_path: Path) -> None:
    """In a batch of a feed, which holds acknowledged writes, and in a base that went through the log."""
    for subject in _log(tmp_path):
        assert len(subject.flips) == 25
        _check(subject)


@pytest.mark.parametrize("seed", range(40))
def test_a_bit_anywhere_in_a_file_of_the_log_changes_no_record(tmp_path: Path, seed: int) -> None:
    """The records come back as they were appended, or the read fails: SQLite's own structures included."""
    at = TopicPartition("flights_rt", "uid-rt", 0)
    with closing(EmbeddedLog(tmp_path / "log", clock=lambda: NOON_MS)) as log:
        log.create_topic(TopicSpec(at.topic, at.uid, 1))
        log.append(at, some_records(60))
        log.append(at, some_records(60, "more"))
        whole = log.read(at, 0, 1_000, 120).records
    path = next((tmp_path / "log").rglob("p-00000-*.sqlite"))
    flips(path, 1, seed)[0].apply()
    with closing(EmbeddedLog(tmp_path / "log", clock=lambda: NOON_MS)) as log:
        found, code = _outcome(lambda: _read_to(log, at, 120))
    assert code == "log_corrupt" or (found is not None and found.equals(whole))


def _read_to(log: EmbeddedLog, at: TopicPartition, end: int) -> pa.RecordBatch:
    """All records: a read comes up to what is damaged, and the next one fails."""
    found = list[pa.RecordBatch]()
    offset = 0
    while offset < end:
        read = log.read(at, offset, 1_000, end)
        assert read.next_offset > offset
        found.append(read.records)
        offset = read.next_offset
    return concat(found)


def _outcome(read: Callable[[], pa.RecordBatch]) -> tuple[pa.RecordBatch | None, str | None]:
    """What a read gives, or the code of its failure."""
    try:
        return read(), None
    except Failed as error:
        return None, error.code


def test_a_slice_is_proved_alone(store: DeepStore) -> None:
    """A task that reads a part of a file finds the damage of that part, and is not stopped by that of another."""
    rows = base_rows(2_000)
    file = write_file(store, "v1/a", rows)
    assert file.proof is not None
    begin, end = file.proof.span(2)
    flips(Path(store.absolute("v1/a")), 1, 9, begin, end)[0].apply()
    reader = BaseReader(store, _no_log)
    for slice_ in (0, 1, 3):
        assert concat(list(reader.rows(file, slice_, 4))).equals(rows.slice(slice_ * 500, 500))
    with pytest.raises(Failed) as caught:
        list(reader.rows(file, 2, 4))
    assert "row group 2 of 4 of v1/a" in str(caught.value)
