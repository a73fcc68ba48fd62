"""Why Spark could not read a load's Parquet files, in the words of the file: Spark names the file at best."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from anew.core.errors import AnewError, Failed
from anew.segments.tables.foreign import check_readable

_SPARK_S_OWN = frozenset({"build_failed", "unreadable_input"})


@contextmanager
def diagnosed(paths: Sequence[str], input_format: str, columns: Collection[str]) -> Iterator[None]:
    """Raise with file and column, as far as these can be found, where Spark fails on Parquet files.

    Args:
        paths: The files, absolute.
        input_format: Others than ``parquet`` are left as they are.
        columns: Those that are read.

    Raises:
        Failed: ``unreadable_input``: names a file, and the column where one is to blame.
        AnewError: What Spark said, where every file can be read.
    """
    try:
        yield
    except AnewError as error:
        if error.code not in _SPARK_S_OWN or input_format != "parquet":
            raise
        for path in paths:
            _check(Path(path), columns, error)
        raise


def _check(path: Path, columns: Collection[str], error: AnewError) -> None:
    try:
        check_readable(path, columns)
    except Failed as found:
        raise Failed(
            "unreadable_input",
            f"{path} cannot be loaded: {found.message}",
            found=found.found,
            expected=found.expected or "a Parquet file that is sound",
            hint=found.hint,
        ) from error
