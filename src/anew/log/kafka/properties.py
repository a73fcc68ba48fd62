"""The file of librdkafka's settings that a user gives, such as those of TLS and SASL; its values are never shown."""

from __future__ import annotations

from pathlib import Path

from anew.core.errors import InvalidRequest

OURS = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.offset.reset",
        "bootstrap.servers",
        "check.crcs",
        "enable.auto.commit",
        "enable.idempotence",
        "enable.partition.eof",
        "isolation.level",
        "message.timeout.ms",
        "socket.timeout.ms",
        "transactional.id",
    }
)
"""What must be as it is, or acknowledged writes could be lost (rules R3, R7)."""


def read_properties(path: Path) -> dict[str, str]:
    """The settings in a file of ``name=value`` lines; empty ones and those that begin with ``#`` are passed over.

    Raises:
        InvalidRequest: ``bad_kafka_properties``: not there, no such lines, or a setting that is ours to choose.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path, type(error).__name__, "a readable text file") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise _bad(path, f"line {number} has no =", "name=value")
        if name.strip() in OURS:
            raise _bad(path, f"{name.strip()} in line {number}", "settings of security and of connections")
        found[name.strip()] = value.strip()
    return found


def _bad(path: Path, found: str, expected: str) -> InvalidRequest:
    return InvalidRequest(
        "bad_kafka_properties",
        f"{path} does not hold settings of a Kafka client",
        found=found,
        expected=expected,
        hint="docs/operations.md shows such files",
    )
