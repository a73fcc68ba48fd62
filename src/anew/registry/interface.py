"""What is asked of a schema registry: one number per schema, and what is registered under a subject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Registered:
    """An Avro schema as it was registered, by whomever.

    Attributes:
        id: What the wire headers of its values say.
        schema: Its text.
    """

    id: int
    schema: str


class SchemaRegistry(Protocol):
    """A registry. All methods are safe to call from several threads, and may be repeated."""

    def register(self, subject: str, schema: str) -> int:
        """The id of a schema under a subject; the same schema again has the same id.

        Raises:
            Refused: ``incompatible_schema``: the subject's rules forbid it; ``registry_not_allowed``.
            Unreachable: ``registry_unreachable``.
            Failed: ``registry_failed``: it answers with something else than its REST contract says.
        """

    def versions(self, subject: str) -> list[Registered]:
        """What is registered under a subject, oldest first; nothing for an unknown subject.

        Schemas that are not Avro, or that refer to others, are left out.

        Raises:
            Refused, Unreachable, Failed: As `register`.
        """

    def close(self) -> None:
        """Let go of connections."""
