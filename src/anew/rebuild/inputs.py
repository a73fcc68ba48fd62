"""The input of a full push as it was asked for, checked before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anew.core.errors import InvalidRequest, NotFound
from anew.core.stores.plan import PushInput
from anew.spark.inputfiles import check_options

_FORMATS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".avro": "avro",
}
_COMPRESSED = (".gz", ".bz2", ".zst")
_HIDDEN = ("_", ".")


@dataclass(frozen=True, slots=True)
class PushRequest:
    """A full push as it was asked for; see `PushInput` for the fields. No inputs: an empty push.

    Attributes:
        as_of_ms: The "input as of", or None: the oldest input file's modification time.
    """

    inputs: tuple[str, ...]
    key: tuple[str, ...]
    value: tuple[str, ...] = ()
    input_format: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    written_at: str | None = None
    keep_last: bool = False
    bad_rows_to: str | None = None
    as_of_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FoundInput:
    """The input with the files that it is made of."""

    push: PushInput
    bytes: int


def find_input(request: PushRequest) -> FoundInput:
    """Look at the input: which files, which format, how old.

    Raises:
        NotFound: ``no_input``: a path does not exist.
        InvalidRequest: ``empty_input``, ``unknown_format``, ``mixed_formats``, ``bad_option``.
    """
    files = [file for path in request.inputs for file in _files_of(path)]
    if not files:
        raise InvalidRequest(
            "empty_input",
            "the input holds no file",
            found=", ".join(request.inputs),
            expected=f"files ending in {', '.join(_FORMATS)}",
        )
    stats = [file.stat() for file in files]
    push = PushInput(
        paths=tuple(str(file) for file in files),
        format=_format_of(files, request.input_format),
        options=request.options,
        key=request.key,
        value=request.value,
        written_at=request.written_at,
        on_duplicate_key="last" if request.keep_last or request.written_at is not None else "refuse",
        bad_rows_to=request.bad_rows_to,
        as_of_ms=min(int(s.st_mtime * 1000) for s in stats) if request.as_of_ms is None else request.as_of_ms,
    )
    check_options(push)
    return FoundInput(push, sum(stat.st_size for stat in stats))


def empty_input(request: PushRequest, now_ms: int) -> FoundInput:
    """The input of an empty push: nothing, as of now unless something else is said."""
    as_of_ms = now_ms if request.as_of_ms is None else request.as_of_ms
    return FoundInput(PushInput(paths=(), format="none", key=(), as_of_ms=as_of_ms), 0)


def _files_of(text: str) -> list[Path]:
    path = Path(text).expanduser().resolve()
    if not path.exists():
        raise NotFound("no_input", "the input does not exist", found=str(path), expected="a file or a directory")
    if path.is_file():
        return [path]
    inside = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return [file for file in inside if not any(p.startswith(_HIDDEN) for p in file.relative_to(path).parts)]


def _format_of(files: Sequence[Path], asked: str | None) -> str:
    known = sorted(set(_FORMATS.values()))
    if asked is not None:
        if asked not in known:
            raise InvalidRequest("unknown_format", "this format is unknown", found=asked, expected=" | ".join(known))
        return asked
    endings = {_ending(file) for file in files}
    formats = {_FORMATS.get(ending) for ending in endings}
    if None in formats:
        raise InvalidRequest(
            "unknown_format",
            "the format of the input is not clear from the file names",
            found=", ".join(sorted(endings)),
            expected=f"one of {', '.join(_FORMATS)}",
            hint="say it with --format",
        )
    if len(formats) != 1:
        raise InvalidRequest(
            "mixed_formats",
            "the input has files of several formats",
            found=", ".join(sorted(endings)),
            expected="files of one format",
            hint="name the files of one format only, or convert the others first",
        )
    return str(next(iter(formats)))


def _ending(file: Path) -> str:
    suffixes = [suffix.lower() for suffix in file.suffixes]
    plain = [suffix for suffix in suffixes if suffix not in _COMPRESSED]
    return plain[-1] if plain else file.name
