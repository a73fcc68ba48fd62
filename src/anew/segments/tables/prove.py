"""Proving that a file already is what a configuration wants, so that a metadata-only commit is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anew.core.errors import AnewError
from anew.core.tables.arrays import decoded, table_of, whole
from anew.core.tables.config import Kind, Reason, SegmentConfig, differences
from anew.core.tables.segment import Contents
from anew.segments.tables.fingerprint import column_hashes
from anew.segments.tables.footer import layout_faults
from anew.segments.tables.order import is_sorted
from anew.segments.tables.reading import metadata_of, plain_type, read_rows
from anew.segments.tables.shape import derived_again, filter_mask


def shortfalls(
    path: Path | str, contents: Contents | None, config_of_build: SegmentConfig | None, wanted: SegmentConfig
) -> tuple[str, ...]:
    """What a file lacks to be what a configuration wants, for people; nothing: it can be stamped as it is.

    Rows in the wanted order are enough: the footer need not say so. Of an imported file (no ``config_of_build``) the
    levels of codecs are taken as right, and its bloom filters as wrong, as their rates cannot be seen.

    Args:
        path: The build's file, local.
        contents: What the catalog holds of it, if anything.
        config_of_build: What it was made with; None: it was imported.
        wanted: The configuration now.

    Raises:
        Failed: ``segment_unreadable``.
    """
    proof = _Proof(path, contents, wanted)
    if config_of_build is None:
        return tuple(proof.of_import())
    reasons = differences(config_of_build, wanted)
    if any(reason.kind not in _LOOKS for reason in reasons):
        # Columns are missing, or of other types: nothing in the file can be compared with what is wanted.
        return tuple(reason.shown for reason in reasons)
    return tuple(text for reason in reasons for text in _LOOKS[reason.kind](proof, reason))


@dataclass(slots=True)
class _Proof:
    """What is looked at in a file, each part at most once."""

    path: Path | str
    contents: Contents | None
    wanted: SegmentConfig
    _metadata: Any = None
    _columns: dict[str, Any] = field(default_factory=dict)
    _again: pa.Table | None = None

    @property
    def metadata(self) -> Any:
        if self._metadata is None:
            self._metadata = metadata_of(self.path)
        return self._metadata

    @property
    def schema(self) -> pa.Schema:
        found: pa.Schema = self.metadata.schema.to_arrow_schema()
        return found

    def rows(self, names: tuple[str, ...]) -> pa.Table:
        """Some columns of the file."""
        missing = [name for name in names if name not in self._columns]
        if missing:
            read = read_rows(self.path, missing)
            self._columns |= {name: whole(read.column(name)) for name in missing}
        return table_of({name: self._columns[name] for name in names})

    def all_rows(self) -> pa.Table:
        return self.rows(tuple(column.name for column in self.wanted.columns))

    def of_import(self) -> Iterator[str]:
        """Everything, as nothing is known of how the file was made."""
        found = {field.name: plain_type(field.type) for field in self.schema}
        types = {column.name: column.arrow_type for column in self.wanted.columns}
        if found != types:
            yield from _schema_lacks(found, types)
            return
        faults = layout_faults(self.metadata, self.wanted)
        yield from (fault.text for fault in faults)
        for name, encoding in self.wanted.encodings.items():
            if encoding.bloom is not None and self.metadata.num_rows and ("bloom", name) not in _kinds(faults):
                yield f"bloom filter of {name}: its false-positive rate cannot be seen"
        for column in self.wanted.columns:
            if not column.nullable:
                yield from self.nulls(column.name)
        yield from self.order()
        yield from self.row_filter()
        for name in self.wanted.derived:
            yield from self.derived(name)

    def nulls(self, name: str) -> Iterator[str]:
        stats = None if self.contents is None else self.contents.columns.get(name)
        count = self.rows((name,)).column(name).null_count if stats is None else stats.nulls
        if count:
            yield f"nulls in {name}: {count}"

    def order(self) -> Iterator[str]:
        if not is_sorted(self.rows(self.wanted.sort), self.wanted.sort):
            yield f"rows are not sorted by {', '.join(self.wanted.sort)}"

    def row_filter(self) -> Iterator[str]:
        condition = self.wanted.row_filter
        if condition is None or self.metadata.num_rows == 0:
            return
        try:
            left_out = int((~filter_mask(self.all_rows(), condition)).sum())
        except AnewError as error:
            yield f"row filter: {error}"
            return
        if left_out:
            yield f"the row filter leaves out {left_out} rows"

    def derived(self, name: str) -> Iterator[str]:
        """Whether computing a derived column again gives the values that are there."""
        try:
            if self._again is None:
                self._again = derived_again(self.all_rows(), self.wanted)
        except AnewError as error:
            yield f"derived {name}: {error}"
            return
        stored = decoded(whole(self.rows((name,)).column(name)))
        if not np.array_equal(column_hashes(self._again.column(name)), column_hashes(stored)):
            yield f"derived {name}: other values than those stored"

    def default(self, name: str) -> Iterator[str]:
        stats = None if self.contents is None else self.contents.columns.get(name)
        if name not in self.wanted.derived and (stats is None or stats.filled):
            yield f"default of {name}: rows {'may ' if stats is None else ''}have an older one"


def _nothing(proof: _Proof, reason: Reason) -> Iterator[str]:
    """No byte tells it: roles, the time column, and partitions, which are read from the rows of any file."""
    return iter(())


def _nullable(proof: _Proof, reason: Reason) -> Iterator[str]:
    return iter(()) if reason.wanted else proof.nulls(str(reason.column))


def _derived(proof: _Proof, reason: Reason) -> Iterator[str]:
    """A column that is derived no more keeps its values."""
    there = reason.column in proof.schema.names
    # A column that is added or removed has a reason of its own.
    return proof.derived(str(reason.column)) if there and reason.wanted is not None else iter(())


def _layout(proof: _Proof, reason: Reason) -> Iterator[str]:
    """What the footer shows; a rate or a level that changed alone is not seen there."""
    faults = layout_faults(proof.metadata, proof.wanted)
    seen = [fault.text for fault in faults if fault.kind == reason.kind and reason.column in (None, fault.column)]
    if seen:
        yield from seen
    elif proof.metadata.num_rows and reason.kind in ("bloom", "codec", "dictionary"):
        yield reason.shown


_LOOKS: dict[Kind, Callable[[_Proof, Reason], Iterator[str]]] = {
    "role": _nothing,
    "time_column": _nothing,
    "partition": _nothing,
    "nullable": _nullable,
    "default": lambda proof, reason: proof.default(str(reason.column)),
    "sort": lambda proof, reason: proof.order(),
    "row_filter": lambda proof, reason: proof.row_filter(),
    "derived": _derived,
    "bloom": _layout,
    "codec": _layout,
    "dictionary": _layout,
    "row_group_rows": _layout,
    "page_index": _layout,
}
"""How each kind of difference is looked for; the others cannot be but shortfalls."""


def _schema_lacks(found: dict[str, Any], types: dict[str, Any]) -> Iterator[str]:
    for name in sorted(found.keys() | types.keys()):
        if name not in types:
            yield f"column removed: {name}"
        elif name not in found:
            yield f"column added: {name}"
        elif found[name] != types[name]:
            yield f"type of {name}: {found[name]}, wanted {types[name]}"


def _kinds(faults: Any) -> set[tuple[str, str | None]]:
    return {(fault.kind, fault.column) for fault in faults}
