"""Claims about Avro containers over generated schemas and rows."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import fastavro
from hypothesis import given

from anew.codec.avro import AvroSchema
from anew.codec.container import read_container
from anew.codec.vector import cast_columns, encode_table
from tests.property.codec.test_codec_properties import MODEST, fastavro_body, tables


@given(tables())
@MODEST
def test_a_container_s_rows_become_the_bodies_that_its_writer_would_write(
    made: tuple[AvroSchema, list[dict[str, Any]]],
) -> None:
    """Reading, casting and encoding the rows of a container gives byte for byte what fastavro writes for each."""
    schema, rows = made
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.avro"
        with path.open("wb") as sink:
            fastavro.writer(sink, fastavro.parse_schema(copy.deepcopy(schema.root)), rows, codec="deflate")
        names = [field["name"] for field in schema.root["fields"]]
        bodies: list[Any] = []
        for found in read_container(str(path), names):
            cast = cast_columns(schema, found.batch)
            assert cast.misfits == []
            encoded: Any = encode_table(schema, cast.batch)
            bodies += encoded.to_pylist()
    assert bodies == [fastavro_body(schema, row) for row in rows]
