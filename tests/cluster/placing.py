"""A partitioner of one's own for the tests: by the last byte of the key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


class ByLastByte:
    """Keys by their last byte, plus a parameter."""

    def __init__(self, partitions: int, plus: int = 0) -> None:
        self.partitions, self.plus = partitions, plus

    def __call__(self, keys: Any) -> Any:
        """The partition of each key."""
        placed = [(key[-1] + self.plus) % self.partitions for key in keys.to_pylist()]
        return pa.array(placed, pa.int32())
