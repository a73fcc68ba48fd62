"""Whether rows are what their hashes say: the hash computed again from key, value and stamp, never taken on trust."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anew.codec.compression import Compressor
from anew.core.arrow import in_portions, replaced
from anew.core.errors import Failed
from anew.core.hashing import row_hashes

_PORTION_ROWS, _PORTION_BYTES = 8_192, 16 << 20
"""So much is decompressed at a time."""


def check_content(rows: pa.RecordBatch, codec: Compressor, path: str) -> None:
    """Raise unless the hash of each row is that of its content.

    Args:
        rows: Columns `anew.core.rows.ROWS`.
        codec: What the values are compressed by.
        path: Where the rows lie or go, for the error.

    Raises:
        Failed: ``rows_altered``, naming the first such key; ``corrupt_value``.
    """
    for portion in in_portions(rows, _PORTION_ROWS, _PORTION_BYTES):
        values = codec.decompress_array(portion.column("value"))
        computed = row_hashes(replaced(portion, "value", values))
        carried = portion.column("hash").to_numpy().view(np.uint64)
        wrong = (computed != carried).nonzero()[0]
        if wrong.size:
            key: bytes = portion.column("key")[int(wrong[0])].as_py()
            raise Failed(
                "rows_altered",
                f"{wrong.size} of {portion.num_rows} rows of {path} are not what was read",
                found=f"key {key.hex()}: hash {int(computed[wrong[0]]):016x} of its content",
                expected=f"{int(carried[wrong[0]]):016x}, the hash that it was read with",
                hint="the new version is not used; run the rebuild again and keep its log",
            )
