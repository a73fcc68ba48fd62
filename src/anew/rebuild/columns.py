"""Which columns of a push's input become which fields of key and value."""

from __future__ import annotations

from collections.abc import Collection

from anew.codec.avro import AvroSchema, parse_schema
from anew.core.errors import InvalidRequest
from anew.core.stores.plan import PushInput
from anew.core.stores.store import Store
from anew.core.suggest import did_you_mean
from anew.spark.inputcolumns import LATEST_MS, EncodeTask, wanted_columns
from anew.spark.inputfiles import check_columns, check_files, headers_of, merged_header


def task_of_files(store: Store, files: PushInput, uris: dict[str, int], latest_ms: int) -> EncodeTask:
    """What the encoding tasks need to know, after a look at the header of each file.

    Args:
        store: The store.
        files: The input.
        uris: File URI → its number, which orders equal keys.
        latest_ms: The latest write time that is taken.

    Raises:
        InvalidRequest: ``missing_column``, ``duplicate_column``, ``wrong_key_columns``, ``wrong_value_columns``,
            ``unreadable_input``, ``empty_input``, ``bad_option``.
    """
    headers = headers_of(files)
    task = encode_task(store, files, uris, merged_header(files, headers), latest_ms)
    check_files(files, headers, wanted_columns(task))
    return task


def latest_write_ms(store: Store, feeds: Collection[str], planned_at_ms: int) -> int:
    """The latest write time that rows of a push may have: the plan's time and the skew limit (rule R6).

    The plan's time, so that a driver that takes the rebuild up decides alike.
    """
    limits = [feed.skew_limit_ms for feed in store.feeds if feed.id in feeds]
    return planned_at_ms + max(limits, default=store.config.skew_limit_seconds * 1_000)


def encode_task(
    store: Store, files: PushInput, uris: dict[str, int], header: list[str] | None, latest_ms: int = LATEST_MS
) -> EncodeTask:
    """What the encoding tasks need to know.

    Raises:
        InvalidRequest: ``missing_column``, ``duplicate_column``, ``wrong_key_columns``, ``wrong_value_columns``.
    """
    key_schema = parse_schema(store.key_schema)
    value_schema = parse_schema(store.schemas[store.newest_schema_id])
    _check_key_columns(key_schema, files.key)
    if header is not None:
        check_columns(header, [*files.key, *files.value, *([files.written_at] if files.written_at else [])])
    value = _value_columns(value_schema, files.value, header)
    if header is not None:
        check_columns(header, value)
    return EncodeTask(
        key_schema=store.key_schema,
        value_schema=value_schema.canonical,
        schema_id=store.newest_schema_id,
        key=files.key,
        value=value,
        written_at=files.written_at,
        files=uris,
        latest_ms=latest_ms,
        left_out=tuple(name for name in value_schema.fields if name not in value),
        named=bool(files.value),
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
