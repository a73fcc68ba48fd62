"""Which columns of a push's input become which fields of key and value."""

from __future__ import annotations

from anew.codec.avro import AvroSchema, parse_schema
from anew.core.errors import InvalidRequest
from anew.core.plan import PushInput
from anew.core.store import Store
from anew.core.suggest import did_you_mean
from anew.spark.pushscan import EncodeTask, check_columns


def encode_task(store: Store, files: PushInput, uris: dict[str, int], header: list[str] | None) -> EncodeTask:
    """What the encoding tasks need to know.

    Raises:
        InvalidRequest: ``missing_column``, ``wrong_key_columns``, ``wrong_value_columns``.
    """
    key_schema = parse_schema(store.key_schema)
    value_schema = parse_schema(store.schemas[store.newest_schema_id])
    _check_key_columns(key_schema, files.key)
    if header is not None:
        check_columns(header, [*files.key, *files.value, *([files.written_at] if files.written_at else [])])
    value = _value_columns(value_schema, files.value, header)
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


def _value_columns(schema: AvroSchema, asked: tuple[str, ...], header: list[str] | None) -> tuple[str, ...]:
    """The columns of the value: those asked for, else all that the schema names and the input has."""
    fields = schema.fields
    if not fields:
        if len(asked) != 1:
            raise _wrong_value_columns("the value schema is not a record", asked, "one column")
        return asked
    unknown = [name for name in asked if name not in fields]
    if unknown:
        hint = did_you_mean(unknown[0], fields)
        raise _wrong_value_columns(f"the value schema has no field {unknown[0]}", asked, ", ".join(fields), hint)
    value = asked if asked else tuple(name for name in fields if header is None or name in header)
    missing = [name for name, has_default in fields.items() if name not in value and not has_default]
    if asked and missing:
        raise _wrong_value_columns(f"the field {missing[0]} has no default and no column", asked, ", ".join(fields))
    if header is not None:
        check_columns(header, missing)
    return value


def _wrong_value_columns(
    message: str, found: tuple[str, ...], expected: str, hint: str | None = None
) -> InvalidRequest:
    shown = ", ".join(found) if found else "none"
    hint = "name them with --value" if hint is None else hint
    return InvalidRequest("wrong_value_columns", message, found=shown, expected=expected, hint=hint)


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
