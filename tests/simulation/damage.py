"""What a disk does to the files of a deep store, and who must notice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from anew.client.expectation import expectation_of
from anew.core.errors import Failed
from anew.core.stores.store import Store, Version
from anew.log.open import no_clock
from anew.rebuild.stores.damage import find_damage
from anew.segments.base import BaseReader
from anew.testing.builders import FABRIC
from anew.testing.memory.log import MemoryLog, Row
from tests.simulation.parts import Machines


def one_bit_over(content: bytes, where: float) -> bytes:
    """The bytes with one bit turned over: of a value, where values are plain to see, else of any byte.

    Args:
        content: The bytes.
        where: Which of the places, in [0, 1).
    """
    found = [match.end() for match in re.finditer(rb"k\d-[a-z]", content)] or [*range(4, len(content) - 8)]
    at = found[int(where * len(found))]
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def one_bit_off(row: Row) -> Row:
    """A record of the log with one bit turned over: of its value, or of its key where it is a deletion."""
    appended_ms, written_ms, origin, key, schema_id, value = row
    if value:
        return appended_ms, written_ms, origin, key, schema_id, value[:-1] + bytes([value[-1] ^ 1])
    return appended_ms, written_ms, origin, key[:-1] + bytes([key[-1] ^ 1]), schema_id, value


def silent_about_damage(store: Store, version: Version, machines: Machines) -> Iterator[str]:
    """Who says nothing of a base that is damaged: a verification and a look for damage must both name it."""
    real, log = machines.real_deep_store, MemoryLog(machines.topics, clock=no_clock)
    feeds, start = store.feeds_with_schemas(version.feeds), version.fabrics[FABRIC].start
    verifying = expectation_of(version, FABRIC, feeds, start, real, log)
    with suppress(Failed):
        list(verifying.fingerprints())
        yield f"a verification of {version.name_in(store.name)}"
    if not find_damage(version, BaseReader(real, lambda: log)).found:
        yield f"a repair of {version.name_in(store.name)}"
