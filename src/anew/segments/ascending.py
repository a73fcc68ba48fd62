"""The order of a base: strictly ascending keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anew.core.arrow import bytes_list
from anew.core.errors import Failed


def check_ascending(keys: pa.Array[Any], last: bytes | None, path: str) -> bytes | None:
    """Raise unless the keys are strictly ascending in unsigned byte order, and after ``last``.

    Raises:
        Failed: ``unsorted_base_file``.
    """
    if len(keys) == 0:
        return last
    first: Any = keys[0].as_py()
    ascending = pc.all(pc.greater(keys[1:], keys[:-1])).as_py() is not False
    if not ascending or (last is not None and first <= last):
        raise Failed(
            "unsorted_base_file",
            f"{path} is marked sorted but is not",
            found=_first_offender(keys, last),
            expected="strictly ascending keys in unsigned byte order",
            hint="the version must be made again",
        )
    newest: bytes = keys[len(keys) - 1].as_py()
    return newest


def _first_offender(keys: pa.Array[Any], last: bytes | None) -> str:
    before = last
    for key in bytes_list(keys):
        if before is not None and key <= before:
            return f"key {key.hex()} after {before.hex()}"
        before = key
    return "none"
