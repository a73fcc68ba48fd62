"""Which columns of a push's input become which fields of key and value."""

from __future__ import annotations

from anew.codec.avro import AvroSchema, parse_schema
from anew.core.errors import InvalidRequest
from anew.core.plan import PushInput
from anew.core.store import Store
from anew.spark.pushscan import EncodeTask, check_columns


def encode_task(store: Store, files: PushInput, uris: dict[str, int], header: list[str] | None) -> EncodeTask:
    """What the encoding tasks need to know.

    Raises:
        InvalidRequest: ``missing_column``, ``wrong_key_columns``.
    """
    key_schema = parse_schema(store.key_schema)
    value_schema = parse_schema(store.schemas[store.newest_schema_id])
    _check_key_columns(key_schema, files.key)
    fields = value_schema.fields
    value = files.value
    if not value:
        value = tuple(name for name in fields if header is None or name in header)
    if header is not None:
        check_columns(header, [*files.key, *files.value, *([files.written_at] if files.written_at else [])])
        missing = [name for name, has_default in fields.items() if name not in value and not has_default]
        check_columns(header, missing)
    return EncodeTask(
        key_schema=store.key_schema,
        value_schema=value_schema.canonical,
        schema_id=store.newest_schema_id,
        key=files.key,
        value=value,
        written_at=files.written_at,
        files=uris,
        exact_rows=files.format in ("parquet", "avro"),
    )


def _check_key_columns(schema: AvroSchema, columns: tuple[str, ...]) -> None:
    fields = schema.fields
    if fields and sorted(fields) != sorted(columns):
        raise InvalidRequest(
            "wrong_key_columns",
            "the key columns are not the fields of the key schema",
            found=", ".join(columns),
            expected=", ".join(fields),
        )
    if not fields and len(columns) != 1:
        raise InvalidRequest(
            "wrong_key_columns", "the key schema is not a record", found=", ".join(columns), expected="one column"
        )
