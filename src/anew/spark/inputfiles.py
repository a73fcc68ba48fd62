"""The files of a push or a load: their columns, the parts that tasks read, and their rows.

Files are read in one way. The tasks of a build and the search for the rows that do not fit share it, so that the rows
that are counted as bad are the rows that are named.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from anew.codec.arrow_types import column_nodes
from anew.codec.carried import carried_schema, column_field
from anew.codec.container import container_columns, read_container
from anew.codec.csvdialect import csv_dialect
from anew.codec.csvrows import csv_file, read_csv, split_csv
from anew.codec.filerows import FileRows
from anew.codec.jsonrows import JsonColumns, json_encoding, json_names, read_json, split_json
from anew.codec.nodes import kind, nullable_of, resolve
from anew.codec.options import checked_options, flag_option
from anew.codec.schema import AvroSchema
from anew.codec.textfile import TextPart
from anew.core.errors import InvalidRequest
from anew.core.stores.plan import PushInput
from anew.core.suggest import did_you_mean
from anew.segments.inputfile import RowGroups, parquet_names, read_parquet, row_groups

_LEAST_PART_BYTES = 4 * 1024 * 1024
_MOST_PART_BYTES = 128 * 1024 * 1024
_NEAR = 0.8
_ARROW_OF_JSON: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns that are read.

    Attributes:
        columns: Their names.
        optional: Those of them that a file may lack: they then take their default.
        watched: Columns that must not be in a file under nearly the same name.
        json_types: Name → what JSON values of it usually are; see `anew.codec.jsonrows.JsonColumns`.
    """

    columns: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    watched: frozenset[str] = frozenset()
    json_types: Mapping[str, pa.DataType | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or a part of it.

    Attributes:
        path: The file.
        text: Which part of a text file; None: all of it, or another format.
        groups: Which row groups of a Parquet file; None: all of them, or another format.
        bytes: About how much there is to read.
    """

    path: str
    bytes: int
    text: TextPart | None = None
    groups: RowGroups | None = None


def check_options(files: PushInput) -> None:
    """Raise unless the reader takes the options.

    Raises:
        InvalidRequest: ``bad_option``.
    """
    match files.format:
        case "csv":
            csv_dialect(files.options)
        case "json":
            json_encoding(files.options)
        case "parquet":
            given = checked_options("parquet", files.options, ("mergeSchema",))
            if not flag_option(given, "mergeSchema", default=True):
                raise InvalidRequest(
                    "bad_option",
                    "columns that only some files have are always read",
                    found="mergeSchema=false",
                    expected="no such option",
                )
        case _:
            checked_options(files.format, files.options, ())


def file_columns(files: PushInput, path: str) -> list[str]:
    """The columns that a file has by its header or schema; for JSON lines the members of its first objects.

    Raises:
        InvalidRequest: ``unreadable_input``, ``empty_input``, ``bad_option``.
    """
    check_options(files)
    match files.format:
        case "csv":
            return list(csv_file(path, csv_dialect(files.options)).names)
        case "json":
            return json_names(path, json_encoding(files.options))
        case "avro":
            return container_columns(path)
        case _:
            return parquet_names(path)


def headers_of(files: PushInput) -> dict[str, list[str]]:
    """`file_columns` of each file.

    Raises:
        InvalidRequest: ``unreadable_input``, ``empty_input``, ``bad_option``.
    """
    return {path: file_columns(files, path) for path in _with_content(files, files.paths)}


def _with_content(files: PushInput, paths: Sequence[str]) -> list[str]:
    """The files without those that have no byte, which writers of text leave where they had no row; one at least."""
    if files.format not in ("csv", "json"):
        return list(paths)
    kept = [path for path in paths if Path(path).stat().st_size]
    return kept or list(paths[:1])


def merged_header(files: PushInput, headers: Mapping[str, Sequence[str]]) -> list[str] | None:
    """The columns that any of the files has; None for JSON lines, where every row may differ.

    A name that a file has several times comes several times.
    """
    if files.format == "json":
        return None
    counts: dict[str, int] = {}
    for names in headers.values():
        for name, count in Counter(names).items():
            counts[name] = max(counts.get(name, 0), count)
    return [name for name, count in counts.items() for _ in range(count)]


def check_files(files: PushInput, headers: Mapping[str, Sequence[str]], wanted: Wanted) -> None:
    """Raise unless each file has the columns that are wanted of it.

    Raises:
        InvalidRequest: ``missing_column``, ``duplicate_column``, naming the file.
    """
    for path, names in headers.items():
        check_file(path, names, wanted, is_json=files.format == "json")


def check_columns(found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise unless the input has all columns, each once.

    Raises:
        InvalidRequest: ``missing_column``, with the nearest name; ``duplicate_column``.
    """
    for name in wanted:
        if name not in found:
            raise InvalidRequest(
                "missing_column",
                f"the input has no column {name}",
                found=", ".join(found),
                expected=name,
                hint=did_you_mean(name, found),
            )
        if found.count(name) > 1:
            raise InvalidRequest(
                "duplicate_column",
                f"the input has the column {name} more than once",
                found=", ".join(found),
                expected=f"{name} once",
                hint="rename the others: which of them is meant cannot be known",
            )


def check_file(path: str, names: Sequence[str], wanted: Wanted, *, is_json: bool = False) -> None:
    """Raise unless a file has the columns that are wanted of it.

    A column that may be absent must not be there under nearly the same name: it would be lost without a word.

    Raises:
        InvalidRequest: ``missing_column``, ``duplicate_column``.
    """
    if not is_json:
        needed = [name for name in wanted.columns if name not in wanted.optional or name in names]
        try:
            check_columns(names, needed)
        except InvalidRequest as error:
            raise InvalidRequest(
                error.code, f"{path}: {error.message}", found=error.found, expected=error.expected, hint=error.hint
            ) from None
    unused = [name for name in names if name not in wanted.columns]
    for name in sorted(wanted.watched.difference(names)):
        near = next((other for other in unused if _is_near(name, other)), None)
        if near is not None:
            raise InvalidRequest(
                "missing_column",
                f"{path}: the input has no column {name}, but one of nearly that name",
                found=near,
                expected=name,
                hint=f"did you mean {near}? Rename it, or leave {name} out by naming the columns with --value",
            )


def _is_near(name: str, other: str) -> bool:
    plain, other_plain = (_letters(text) for text in (name, other))
    if [c for c in plain if c.isdigit()] != [c for c in other_plain if c.isdigit()]:
        # street1 is not a misspelt street2.
        return False
    return plain == other_plain or difflib.SequenceMatcher(None, plain, other_plain).ratio() >= _NEAR


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def json_types(schema: AvroSchema, columns: Sequence[str]) -> dict[str, pa.DataType | None]:
    """What JSON values of a schema's columns usually are, by the column that is read for each field."""
    nodes = column_nodes(schema)
    single = kind(resolve(schema.root, schema.named)) != "record"
    types: dict[str, pa.DataType | None] = {}
    for name, node in zip(columns if single else nodes, nodes.values(), strict=False):
        of_kind = kind(nullable_of(node, schema.named)[0])
        if carried_schema(column_field(name, node, schema.named)) is not None:
            types[name] = None
        elif of_kind == "boolean":
            types[name] = pa.bool_()
        else:
            types[name] = _ARROW_OF_JSON.get(of_kind, pa.string())
    return {name: types[name] for name in columns if name in types}


def plan_pieces(files: PushInput, paths: Sequence[str], cores: int) -> tuple[tuple[Piece, ...], ...]:
    """The files as groups of pieces, a task for each: some for each core, none of them very large or very small.

    Raises:
        InvalidRequest: ``unreadable_input``, ``bad_option``.
    """
    sizes = {path: Path(path).stat().st_size for path in _with_content(files, paths)}
    total = sum(sizes.values())
    target = min(_MOST_PART_BYTES, max(_LEAST_PART_BYTES, total // max(1, cores)))
    pieces = [piece for path, size in sizes.items() for piece in _pieces_of(files, path, size, target)]
    groups: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if not groups or piece.bytes > room:
            groups.append([])
            room = target
        groups[-1].append(piece)
        room -= piece.bytes
    return tuple(tuple(group) for group in groups)


def _pieces_of(files: PushInput, path: str, size: int, target: int) -> list[Piece]:
    match files.format:
        case "csv":
            parts = split_csv(path, csv_dialect(files.options), target)
        case "json":
            parts = split_json(path, json_encoding(files.options), target)
        case "parquet":
            return [Piece(path, groups.bytes, groups=groups) for groups in row_groups(path, target)]
        case _:
            return [Piece(path, size)]
    return [Piece(path, (size if part.end is None else part.end) - part.begin, text=part) for part in parts]


def read_piece(piece: Piece, files: PushInput, wanted: Wanted) -> Iterator[FileRows]:
    """The rows of a piece, in the file's order.

    Raises:
        InvalidRequest: ``unreadable_input``, ``missing_column``, ``duplicate_column``.
    """
    names = file_columns(files, piece.path)
    check_file(piece.path, names, wanted, is_json=files.format == "json")
    match files.format:
        case "csv":
            dialect = csv_dialect(files.options)
            part = piece.text or TextPart(piece.path, dialect.encoding)
            yield from read_csv(part, dialect, csv_file(piece.path, dialect), wanted.columns)
        case "json":
            part = piece.text or TextPart(piece.path, json_encoding(files.options))
            types = {name: wanted.json_types.get(name, pa.string()) for name in wanted.columns}
            yield from read_json(part, JsonColumns(types))
        case "avro":
            yield from read_container(piece.path, wanted.columns)
        case _:
            yield from read_parquet(piece.path, wanted.columns, piece.groups)
