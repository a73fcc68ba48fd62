"""The columns in which records travel: from a log or a base file through the merge to a base file or a replica."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_FIELDS: list[Any] = [
    pa.field("key", pa.binary(), nullable=False),
    pa.field("value", pa.binary()),
    pa.field("schema_id", pa.int32(), nullable=False),
    pa.field("time", pa.int64(), nullable=False),
    pa.field("origin", pa.binary(), nullable=False),
    pa.field("append_timed", pa.bool_(), nullable=False),
    pa.field("incarnation", pa.int32(), nullable=False),
    pa.field("feed_partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("hash", pa.int64(), nullable=False),
]

ROWS = pa.schema(_FIELDS)
"""One record: the key's Avro body; the value's Avro body (in a base file: compressed by the version's codec), null
for a tombstone; the value schema's id (0 for a tombstone); the stamp (`anew.core.stamp.Stamp`: time in ms); and the
64-bit hash of the row (`anew.core.hashing.row_hashes`, as a signed long), made where the record enters a rebuild."""

SORT_COLUMNS = ("key", "origin", "incarnation", "feed_partition", "offset")
"""The order that `anew.core.reduce.WinnerReducer` wants; binary columns in unsigned byte order."""
