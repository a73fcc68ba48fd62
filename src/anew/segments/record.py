"""Records: what the catalog holds of a store or a table at one revision, as immutable files in the deep store.

Manifests tell of versions; a store's record tells the rest: which version is current, live settings, feeds, statuses,
the next version's number, that a store was deleted. A lost catalog is made again from both.

A table has no manifests. Its record names one list of segments for each slot, all of one moment: lists come first, the
record last, so that what it names is there, and what was committed at once is restored at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from anew.codec.compression import compressor
from anew.core.errors import Failed
from anew.core.stores.store import Store
from anew.core.tables.config import SegmentConfig
from anew.core.tables.segment import Segment
from anew.core.tables.table import Table

FORMAT_VERSION = 1
_Model = TypeVar("_Model", bound=BaseModel)
_DIGITS = 16
_MOST_LIST_BYTES = 1 << 32
_ZSTD = compressor("zstd", max_output_bytes=_MOST_LIST_BYTES)


class StoreRecord(BaseModel):
    """One revision of a store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT_VERSION
    store: Store

    def to_bytes(self) -> bytes:
        """The record file's content; the same store gives the same bytes."""
        return self.model_dump_json(indent=1).encode()


def parse_record(content: bytes, path: str) -> StoreRecord:
    """The record of a file's content.

    Raises:
        Failed: ``bad_record``.
    """
    return _parsed(StoreRecord, content, path)


def worth_a_record(store: Store) -> Store:
    """The store without what changes by itself and is found again: a new record is written when the rest has changed.

    Low-water marks are found in the logs, replicas are placed again, a schedule looks at the clock.
    """
    feeds = tuple(feed.model_copy(update={"low_water": (), "moving": False}) for feed in store.feeds)
    versions = tuple(version.model_copy(update={"assignment": {}}) for version in store.versions)
    changes = {"feeds": feeds, "versions": versions, "revision": 0, "schedule": None, "read_until_ms": {}, "holds": {}}
    return store.model_copy(update=changes)


class TableRecord(BaseModel):
    """One revision of a table.

    Attributes:
        slots: Slot → the name of the list of its segments; a deleted table has none.
        running: Where rebuilds that had not ended put their builds: what no list names there may be named later. None:
            that is not known, because the record came too long after what it tells of.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT_VERSION
    table: Table
    slots: dict[int, str]
    running: tuple[str, ...] | None = None

    def to_bytes(self) -> bytes:
        """The record file's content; the same table with the same lists gives the same bytes."""
        return self.model_dump_json(indent=1).encode()


def parse_table_record(content: bytes, path: str) -> TableRecord:
    """The record of a file's content.

    Raises:
        Failed: ``bad_record``.
    """
    return _parsed(TableRecord, content, path)


def parse_config(content: bytes, path: str) -> SegmentConfig:
    """The configuration of a file's content.

    Raises:
        Failed: ``bad_record``.
    """
    return _parsed(SegmentConfig, content, path)


def worth_a_table_record(table: Table) -> Table:
    """The table without what changes by itself; its nodes count, so that they keep what they hold after a restore."""
    return table.model_copy(update={"revision": 0, "schedule_state": None})


@dataclass(frozen=True, slots=True)
class SegmentList:
    """The segments of a slot, packed: JSON texts, one in a line, with zstd.

    Attributes:
        content: What the file of the list holds.
        digest: Of the texts, 16 hex digits; the list's name ends with it.
    """

    content: bytes
    digest: str

    @classmethod
    def of(cls, documents: Iterable[str]) -> SegmentList:
        """Pack segments that are JSON texts already."""
        texts = "\n".join(documents).encode()
        return cls(_ZSTD.compress(texts), _digest(texts))

    def texts(self) -> list[bytes]:
        """The segments as JSON texts, unpacked anew each time.

        Raises:
            Failed: ``corrupt_value``.
        """
        texts = _ZSTD.decompress(self.content)
        return texts.split(b"\n") if texts else []

    def segments(self) -> Iterator[Segment]:
        """The segments, one after the other: a slot of a large table is not held whole.

        Raises:
            Failed: ``corrupt_value``, ``bad_record``.
        """
        return (_parsed(Segment, text, "of a segment") for text in self.texts())


def parse_segment_list(content: bytes, path: str) -> SegmentList:
    """The list of a file's content, if that is what its name says.

    Raises:
        Failed: ``bad_record``, ``corrupt_value``.
    """
    digest = _digest(_ZSTD.decompress(content))
    if f"-{digest}." not in path:
        raise Failed("bad_record", f"the list {path} is not what it was", found=digest, expected="what its name says")
    return SegmentList(content, digest)


def _digest(texts: bytes) -> str:
    return hashlib.sha256(texts).hexdigest()[:_DIGITS]


def _parsed(model: type[_Model], content: bytes, path: str) -> _Model:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        found = str(error).splitlines()[0]
        raise Failed(
            "bad_record", f"the record {path} cannot be read", found=found, expected=f"format {FORMAT_VERSION}"
        ) from error
