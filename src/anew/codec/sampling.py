"""Made-up datums of a schema, to try things on before there is data."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from fastavro.utils import generate_many

from anew.codec.avro import encode_datum, native_schema
from anew.codec.schema import AvroSchema


def sample_bodies(schema: AvroSchema, count: int) -> pa.BinaryArray:
    """So many made-up datums of a schema as Avro bodies, shape (count,); others at each call."""
    datums: Any = generate_many(native_schema(schema), count)
    bodies: Any = pa.array([encode_datum(schema, datum) for datum in datums], pa.binary())
    sample: pa.BinaryArray = bodies
    return sample
