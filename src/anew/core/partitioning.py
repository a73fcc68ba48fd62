"""Which partitioner a frozen configuration means, a user's own included, and what is asked of one of these.

A partitioner of a user's own is a class ``module:Class``: made as ``Class(partitions, **params)``, called with an Arrow
array of keys (binary, Avro bodies), it gives an Arrow array of int32 of the same length, each in [0, partitions). Its
module's source is part of the version's frozen configuration: executors, nodes, clients and the manifest all have the
very same code, and another source or other parameters are another configuration.
"""

from __future__ import annotations

import functools
import json
import linecache
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anew.core.arrow import bytes_list
from anew.core.confighash import value_hash
from anew.core.errors import AnewError, InvalidRequest
from anew.core.partition import Partitioner, Partitions, XxHash64Partitioner
from anew.core.partitioners import is_custom
from anew.core.stores.store import Frozen

MAX_SOURCE_BYTES = 64 * 1024
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class CustomPartitioner:
    """A partitioner of a user's own, with every answer checked.

    Attributes:
        name: ``module:Class``.
        count: How many partitions there are.
        identity: The hash of its source and parameters; equal identities and counts place keys alike.
    """

    name: str
    count: int
    identity: str
    _call: Callable[[pa.BinaryArray], Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CustomPartitioner) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    @property
    def _id(self) -> tuple[str, int, str]:
        return (self.name, self.count, self.identity)

    def of(self, key: bytes) -> int:
        """The partition of one key."""
        return int(self.of_all(pa.array([key], pa.binary()))[0])

    def of_all(self, keys: pa.BinaryArray) -> Partitions:
        """The partition of each key, shape (n,).

        Raises:
            InvalidRequest: ``bad_partitioner``: it raised, or gave another type, another length, a null or a number
                outside of [0, count); the key is named.
        """
        try:
            given = self._call(keys)
        except AnewError:
            raise
        except Exception as error:
            raise self._bad("it raised", f"{type(error).__name__}: {error}", "an answer", keys) from error
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        if not isinstance(given, pa.Array) or given.type != pa.int32() or len(given) != len(keys):
            found = f"{given.type} × {len(given)}" if isinstance(given, pa.Array) else type(given).__name__
            raise self._bad("it gave something else", found, f"an Arrow array of {len(keys)} int32", keys)
        numbers = np.asarray(given.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int32)
        outside = ((numbers < 0) | (numbers >= self.count)).nonzero()[0]
        if outside.size:
            wrong = pa.array([keys[int(i)].as_py() for i in outside[:_EXAMPLES]], pa.binary())
            raise self._bad("a number is outside of its range", given[int(outside[0])], f"[0, {self.count})", wrong)
        return numbers

    def _bad(self, what: str, found: object, expected: str, keys: pa.BinaryArray) -> InvalidRequest:
        named = ", ".join(key.hex() for key in bytes_list(keys.slice(0, _EXAMPLES)))
        return InvalidRequest(
            "bad_partitioner",
            f"the partitioner {self.name} cannot be used: {what} for the key (hex) {named}",
            found=str(found),
            expected=expected,
            hint="mend the class and update the store again with --set partitioner=module:Class",
        )


def partitioner_of(config: Frozen) -> Partitioner:
    """The partitioner of a frozen configuration.

    Raises:
        InvalidRequest: ``bad_partitioner``: a user's own that cannot be loaded.
    """
    if not is_custom(config.partitioner):
        return XxHash64Partitioner(config.partitions)
    return load_partitioner(config.partitioner, config.partitioner_source, config.partitioner_params, config.partitions)


def partitioner_identity(config: Frozen) -> str:
    """What must be equal for two configurations of one partition count to place keys alike."""
    if not is_custom(config.partitioner):
        return config.partitioner
    return _identity(config.partitioner, config.partitioner_source, config.partitioner_params)


@functools.lru_cache(maxsize=256)
def load_partitioner(name: str, source: str, params: str, count: int) -> CustomPartitioner:
    """Make a partitioner from the source of its module.

    Raises:
        InvalidRequest: ``bad_partitioner``: no source, it does not run, it lacks the class, or the class refuses the
            partition count and the parameters.
    """
    class_name = name.partition(":")[2]
    if not source:
        raise _unloadable(name, "no source", "the source of its module, sent along when the store is updated")
    if len(source.encode()) > MAX_SOURCE_BYTES:
        raise _unloadable(name, f"{len(source.encode())} bytes", f"a source of at most {MAX_SOURCE_BYTES} bytes")
    identity = _identity(name, source, params)
    # A name of its own per source: two versions of one module live side by side in a process.
    module = types.ModuleType(f"anew_partitioner_{identity}")
    filename = f"<partitioner {name} {identity[:8]}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    try:
        exec(compile(source, filename, "exec"), module.__dict__)  # noqa: S102  # the operator's own code, as configured
        instance = module.__dict__[class_name](count, **json.loads(params))
    except KeyError:
        raise _unloadable(name, f"a module without {class_name}", f"a class {class_name}") from None
    except Exception as error:
        raise _unloadable(name, f"{type(error).__name__}: {error}", f"{class_name}(partitions, **params)") from error
    if not callable(instance):
        raise _unloadable(name, f"a {class_name} that cannot be called", "an instance that maps keys to partitions")
    return CustomPartitioner(name, count, identity, instance)


def check_partitioner(partitioner: Partitioner, keys: pa.BinaryArray) -> None:
    """Try a partitioner on sample keys before a job depends on it.

    Raises:
        InvalidRequest: ``bad_partitioner``: an answer that `CustomPartitioner.of_all` refuses, or another answer on a
            second call, in another order, naming the key.
    """
    if len(keys) == 0:
        return
    first = partitioner.of_all(keys)
    backwards: Any = keys.take(np.arange(len(keys))[::-1])
    second = partitioner.of_all(backwards)[::-1]
    differs = (first != second).nonzero()[0]
    if differs.size:
        at = int(differs[0])
        raise InvalidRequest(
            "bad_partitioner",
            f"the partitioner gives other results on a second call for the key (hex) {keys[at].as_py().hex()}",
            found=f"{first[at]}, then {second[at]}",
            expected="the same partition for the same key, whatever is asked beside it",
            hint="a partitioner must be a pure function of each key's bytes",
        )


def _identity(name: str, source: str, params: str) -> str:
    return value_hash({"name": name, "source": source, "params": json.loads(params)})


def _unloadable(name: str, found: str, expected: str) -> InvalidRequest:
    return InvalidRequest("bad_partitioner", f"the partitioner {name} cannot be loaded", found=found, expected=expected)
