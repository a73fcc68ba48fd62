"""A schema registry in memory, which somebody else may register at, too."""

from __future__ import annotations

import json
import threading
from typing import Any

from anew.core.errors import Refused, Unreachable
from anew.registry.interface import Registered


class MemoryRegistry:
    """`anew.registry.interface.SchemaRegistry` in memory; ids are global, as in a real one.

    Attributes:
        away: Whether it does not answer.
        refuses: Texts of schemas that its rules forbid.
    """

    def __init__(self) -> None:
        """Begin with nothing registered."""
        self.away = False
        self.refuses: set[str] = set()
        self._ids: dict[str, int] = {}
        self._subjects: dict[str, list[Registered]] = {}
        self._lock = threading.Lock()

    def register(self, subject: str, schema: str) -> int:
        """See `SchemaRegistry.register`."""
        self._check_there()
        text = json.dumps(json.loads(schema))
        if schema in self.refuses:
            raise Refused("incompatible_schema", "the subject's rules forbid it", found=schema)
        with self._lock:
            number = self._ids.setdefault(text, len(self._ids) + 1)
            present = self._subjects.setdefault(subject, [])
            if all(one.id != number for one in present):
                present.append(Registered(number, schema))
        return number

    def versions(self, subject: str) -> list[Registered]:
        """See `SchemaRegistry.versions`."""
        self._check_there()
        return list(self._subjects.get(subject, ()))

    def close(self) -> None:
        """See `SchemaRegistry.close`."""

    def numbered(self, schema: Any, number: int) -> None:
        """Let a schema that nobody registered yet have this id."""
        self._ids[json.dumps(schema)] = number

    def _check_there(self) -> None:
        if self.away:
            raise Unreachable("registry_unreachable", "the schema registry does not answer")
