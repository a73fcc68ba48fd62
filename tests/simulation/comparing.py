"""Comparing what readers and replicas have with what they should: by the text of values, whatever schema wrote them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from anew.client.store import Found
from anew.codec.avro import encode_datum, parse_schema
from anew.core.partition import sub_partitions_of
from anew.testing.builders import VALUE_SCHEMA

_VALUE = parse_schema(VALUE_SCHEMA)


def same_text(found: Found | None, body: bytes | None) -> bool:
    """Whether a reader saw the text of a body, whatever schema wrote it: the text is its first field."""
    if found is None or body is None:
        return found is None and body is None
    return text_of(body) == encode_datum(_VALUE, {"text": found.value["text"]})


def text_of(body: bytes) -> bytes:
    """The first field of a value, by which any schema's bodies can be compared; it is shorter than 64 bytes."""
    return body[: 1 + (body[0] >> 1)]


def by_sub_partition(keys: list[bytes], factor: int) -> dict[bytes, int]:
    """Key → its sub-partition."""
    if not keys:
        return {}
    placed = sub_partitions_of(pa.array(keys, pa.binary()), factor)
    return {key: int(sub) for key, sub in zip(keys, placed, strict=True)}


def difference(found: Mapping[bytes, object], expected: Mapping[bytes, object]) -> str:
    """What was found and not expected, and the other way round, for people."""
    missing = {key: expected[key] for key in expected.keys() - found.keys()}
    more = {key: found[key] for key in found.keys() - expected.keys()}
    other = {key: (found[key], expected[key]) for key in found.keys() & expected.keys() if found[key] != expected[key]}
    return f"missing {missing}, too much {more}, other {other}"
