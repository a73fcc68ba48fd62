"""A node's own copies of segments on its disk.

A copy lies in a directory of its build, ``segments/{table uid}/{segment}/{build}/``, under a name that says with what
configuration it was made, and how many were there before it: no path ever holds other bytes, nor is the file that is
served that of an earlier copy which somebody still reads (case E9). ``copy.json`` names the file that counts; it is
written last, so that a copy without it is nothing.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from anew.core.tables.segment import Contents
from anew.deepstore.copies import sync
from anew.node.keeping import replace_file

_RECORD = "copy.json"
_AS_IT_IS = "as-it-is"


class Copy(BaseModel):
    """What a node serves of a segment.

    Attributes:
        build: The build that it was fetched of.
        file: The name of its file.
        number: How many files of the build the node had before it.
        original: Whether the file has the bytes of the build; the node made any other.
        config_hash: With what it was made: the build's own, or that of a local rebuild (l of the cases).
        reload: The reload that it has followed.
        rebuilt_rows: How many rows the node wrote again for it.
        contents: What the file holds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    build: str
    file: str
    bytes: int
    number: int
    original: bool
    config_hash: str | None
    reload: int = 0
    rebuilt_rows: int = 0
    contents: Contents


def file_name(number: int, rebuilt_with: str | None) -> str:
    """The name of the file that comes after so many: as it was fetched, or made again with a configuration."""
    return f"{number}-{_AS_IT_IS if rebuilt_with is None else rebuilt_with}.parquet"


def files_of(directory: Path) -> set[Path]:
    """The files that have to stay for the copy in a directory; none where no copy is whole."""
    copy = read_copy(directory)
    return set() if copy is None else {directory / _RECORD, directory / copy.file}


def read_copy(directory: Path) -> Copy | None:
    """The copy in a directory; None where there is none that is whole."""
    try:
        copy = Copy.model_validate_json((directory / _RECORD).read_bytes())
        size = (directory / copy.file).stat().st_size
    except (OSError, ValueError):
        return None
    return copy if size == copy.bytes else None


def write_copy(directory: Path, copy: Copy) -> None:
    """Let a copy count, once its file is on disk; whole or not at all."""
    sync(directory / copy.file)
    replace_file(directory / _RECORD, copy.model_dump_json().encode())
