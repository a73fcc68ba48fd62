"""librdkafka with columns: what `kafka.c` was compiled to, bound to the library that confluent-kafka brings.

confluent-kafka itself makes an object of each record and each header, which costs more than all the rest of reading
it; and its `produce_batch` takes no headers.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.core.compiled import check_version, load_compiled
from anew.log.interface import LOG_RECORDS, RAW_RECORDS
from anew.log.packing import NO_RECORDS
from anew.log.wire import NO_RAW_RECORDS, has_raw_columns

NOT_GIVEN = int(np.iinfo(np.int64).min)
"""Stands for a write time that the writer left out."""


APPEND_HEADER = "anew-append"
"""The header of an append's last record that holds the append's id."""
_LEAST, _BELOW = (2, 16, 0), (3, 0, 0)
"""The versions of librdkafka whose structs `kafka.c` declares: it keeps its binary interface within a major one."""


class KafkaError(Exception):
    """What librdkafka says of a call that it does not carry out, such as of settings."""


class Sent(NamedTuple):
    """What became of the records of one append: ``landed + lost + unknown`` is their number.

    Attributes:
        last_ms: The append time of the last record; others differ where they did not travel in one batch.
        error: The code of the last error, 0 for none.
        least_ms: The least append time of those that landed.
    """

    landed: int
    lost: int
    unknown: int
    first_offset: int
    last_offset: int
    last_ms: int
    error: int
    least_ms: int


class Taken(NamedTuple):
    """What a cursor gave.

    Attributes:
        records: Columns `LOG_RECORDS`, or `RAW_RECORDS`.
        next_offset: Where to go on: behind the last record, also of those that nobody may see.
        at_end: Whether that was the end of the partition.
        error: The code of the error that ended the reading after these records, 0 for none.
    """

    records: pa.RecordBatch
    next_offset: int
    at_end: bool
    error: int


class _Binary(ctypes.Structure):
    _fields_ = (("ends", ctypes.c_void_p), ("data", ctypes.c_void_p))


class _Records(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int64),
        ("not_given", ctypes.c_int64),
        ("written_ms", ctypes.c_void_p),
        ("origins", _Binary),
        ("keys", _Binary),
        ("values", _Binary),
        ("schema_ids", ctypes.c_void_p),
        ("alive", ctypes.c_void_p),
        ("append_id", ctypes.c_char_p),
        ("append_id_size", ctypes.c_int64),
        ("key_schema_id", ctypes.c_int32),
        ("is_raw", ctypes.c_int32),
        ("keyed", ctypes.c_void_p),
    )


class Client:
    """A connection to brokers, to append or to read. `close` it; safe to use from several threads until then."""

    def __init__(self, settings: Mapping[str, str], *, is_producer: bool) -> None:
        """Make it; nothing is asked of brokers yet.

        Raises:
            KafkaError: librdkafka does not know a setting, or not this value of it.
        """
        self._native = _native()
        flat = [part.encode() for pair in settings.items() for part in pair]
        self._handle: int | None = self._native.kafka_client(is_producer, flat)

    def append(
        self,
        topic: str,
        partition: int,
        records: pa.RecordBatch,
        *,
        key_schema_id: int,
        append_id: bytes | None,
        timeout_ms: int,
    ) -> Sent:
        """Send records (columns `APPEND_RECORDS` or `RAW_APPEND`) and wait until it is known what became of them.

        Args:
            topic: Its name.
            partition: Its number.
            records: They become one batch of Kafka's where they are few enough.
            key_schema_id: What the keys' wire headers say; raw records have none.
            append_id: Goes into a header of the last record; None: these are probes, which no reader sees.
            timeout_ms: Longer than librdkafka's ``message.timeout.ms``; what is not known by then counts as unknown.

        Raises:
            KafkaError: The topic's name cannot be one.
        """
        is_raw = has_raw_columns(records)
        keys, values = records.column("key"), records.column("value")
        alive, keyed = _present(values), _present(keys)
        times = records.column("timestamp_ms" if is_raw else "written_ms")
        written = np.ascontiguousarray(times.fill_null(pa.scalar(NOT_GIVEN, pa.int64())).to_numpy())
        schema_ids = np.empty(0, np.int32) if is_raw else np.ascontiguousarray(records.column("schema_id").to_numpy())
        given = _Records(
            records.num_rows,
            NOT_GIVEN,
            written.ctypes.data,
            _Binary() if is_raw else _binary(records.column("origin")),
            _binary(keys),
            _binary(values),
            schema_ids.ctypes.data,
            alive.ctypes.data,
            append_id,
            0 if append_id is None else len(append_id),
            key_schema_id,
            is_raw,
            keyed.ctypes.data,
        )
        found = (ctypes.c_int64 * len(Sent._fields))()
        self._native.kafka_append(self._handle, topic.encode(), partition, ctypes.byref(given), timeout_ms, found)
        return Sent(*found)

    def start(self, topic: str, partition: int, offset: int, key_schema_id: int | None) -> Cursor:
        """Begin to read a partition at an offset. One client reads each partition at one place at a time.

        Args:
            topic: Its name.
            partition: Its number.
            offset: Where to begin.
            key_schema_id: What keys' wire headers must say; None: records are read raw.

        Raises:
            KafkaError: The partition is being read, or no topic can have this name.
        """
        handle = self._native.kafka_start(self._handle, topic.encode(), partition, offset)
        return Cursor(self._native, handle, offset, key_schema_id)

    def last_error(self) -> str:
        """What librdkafka said last of brokers that do not answer or turn us away; it is forgotten by this."""
        return str(self._native.kafka_said(self._handle), "utf-8", "replace")

    def close(self) -> None:
        """Let go of the connections, after all cursors were stopped."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._native.kafka_close(handle)


class Cursor:
    """Reads one partition on; `stop` it. Used by one thread at a time.

    Attributes:
        position: The offset that `take` goes on at.
        at_end: Whether that was the partition's end when it was reached.
    """

    def __init__(self, native: Any, handle: int, offset: int, key_schema_id: int | None) -> None:
        self._native, self._handle, self._key_schema_id = native, handle, key_schema_id
        self.position = offset
        self.at_end = False

    def take(self, most: int, wait_ms: int) -> Taken:
        """The next records, at once if there are any, else when some come, the end is found or the time is over."""
        key_schema_id, is_raw = self._key_schema_id, self._key_schema_id is None
        *columns, told = self._native.kafka_take(
            self._handle, self.position, key_schema_id or 0, is_raw, NOT_GIVEN, most, wait_ms
        )
        position, at_end, error = np.frombuffer(told, np.int64).tolist()
        self.at_end = bool(at_end) if position != self.position or at_end else self.at_end
        self.position = position
        return Taken(_raw_records(columns) if is_raw else _records(columns), position, self.at_end, error)

    def stop(self) -> None:
        """Read no more."""
        handle, self._handle = self._handle, 0
        if handle:
            self._native.kafka_stop(handle)


def waiting(cursors: Sequence[Cursor]) -> list[bool]:
    """Of each cursor, none of which was stopped, whether anything waits to be taken; asks librdkafka alone."""
    handles = (ctypes.c_void_p * len(cursors))(*(cursor._handle for cursor in cursors))
    found = (ctypes.c_bool * len(cursors))()
    _native().kafka_waiting(handles, len(cursors), found)
    return list(found)


def words_of(error: int) -> str:
    """An error's name and meaning, ``MSG_SIZE_TOO_LARGE: Broker: Message size too large``."""
    return str(_native().kafka_error_words(error), "utf-8")


def _records(columns: list[bytes]) -> pa.RecordBatch:
    offsets, appended, written, origin_ends, origins, key_ends, keys, *of_values, flaws = columns
    if not offsets:
        # Whoever has caught up asks many times a second.
        return NO_RECORDS
    schemas, value_ends, values, alive = of_values
    times: npt.NDArray[np.int64] = np.frombuffer(written, np.int64)
    arrays: list[Any] = [
        pa.array(np.frombuffer(offsets, np.int64)),
        pa.array(np.frombuffer(appended, np.int64)),
        pa.array(times, mask=times == NOT_GIVEN),
        _array(origin_ends, origins, None),
        _array(key_ends, keys, None),
        pa.array(np.frombuffer(schemas, np.int32)),
        _array(value_ends, values, np.frombuffer(alive, np.bool_)),
        pa.array(np.frombuffer(flaws, np.int8)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_RECORDS)


def _raw_records(columns: list[bytes]) -> pa.RecordBatch:
    offsets, timestamps, _, _, _, key_ends, keys, _, value_ends, values, alive, keyless = columns
    if not offsets:
        return NO_RAW_RECORDS
    arrays: list[Any] = [
        pa.array(np.frombuffer(offsets, np.int64)),
        pa.array(np.frombuffer(timestamps, np.int64)),
        _array(key_ends, keys, np.frombuffer(keyless, np.int8) == 0),
        _array(value_ends, values, np.frombuffer(alive, np.bool_)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_RECORDS)


def _present(column: pa.Array[Any]) -> npt.NDArray[np.uint8]:
    return column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)


def _array(ends: bytes, content: bytes, valid: npt.NDArray[np.bool_] | None) -> pa.Array[Any]:
    nulls = 0 if valid is None else len(valid) - int(valid.sum())
    bits = None if valid is None or not nulls else pa.py_buffer(np.packbits(valid, bitorder="little").data)
    return pa.Array.from_buffers(
        pa.binary(), len(ends) // 4 - 1, [bits, pa.py_buffer(ends), pa.py_buffer(content)], nulls
    )


def _binary(column: pa.Array[Any]) -> _Binary:
    """Where a column's offsets and bytes are; the column must outlive their use."""
    _, ends, content = column.buffers()
    if ends is None:
        raise ValueError("a binary column has offsets")
    return _Binary(ends.address + column.offset * 4, 0 if content is None else content.address)


@functools.cache
def _native() -> ctypes.PyDLL:
    """`kafka.c`, bound to librdkafka.

    Raises:
        Failed: ``not_compiled``, ``unknown_library_version``.
    """
    # Loads librdkafka, from wherever this installation has it.
    from confluent_kafka import cimpl

    # The names that a library depends on are found through it.
    library = str(cimpl.__file__)
    _check_librdkafka(ctypes.CDLL(library).rd_kafka_version())
    native = load_compiled("anew.log.kafka", "_kafka.so", ctypes.PyDLL)
    pointer, number, text, thing = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.py_object
    long, short = ctypes.c_int64, ctypes.c_int32
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "bind": (number, [text, thing]),
        "client": (pointer, [number, thing]),
        "close": (None, [pointer]),
        "said": (thing, [pointer]),
        "error_words": (thing, [number]),
        "append": (number, [pointer, text, short, pointer, long, pointer]),
        "start": (pointer, [pointer, text, short, long]),
        "stop": (None, [pointer]),
        "waiting": (None, [pointer, long, pointer]),
        "take": (thing, [pointer, long, short, number, long, long, number]),
    }
    for name, (result, arguments) in signatures.items():
        function: Callable[..., Any] = getattr(native, f"kafka_{name}")
        function.restype, function.argtypes = result, arguments  # type: ignore[attr-defined]  # a foreign function
    native.kafka_bind(library.encode(), KafkaError)
    return native


def _check_librdkafka(number: int) -> None:
    """Refuse a version that `kafka.c` does not know, given as librdkafka tells it: a byte each, and one more.

    Raises:
        Failed: ``unknown_library_version``.
    """
    found = number >> 24 & 0xFF, number >> 16 & 0xFF, number >> 8 & 0xFF
    hint = 'pip install "confluent-kafka>=2.16,<3"'
    check_version("librdkafka", found, least=_LEAST, below=_BELOW, hint=hint)
