"""What the tests need and a machine keeps: ``python -m tests.once`` makes it, unless it is there.

Within a test it would take longer than a test may. What cannot be had is said; the tests that need it are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anew.core.errors import AnewError
from anew.jars.fetching import KAFKA_BROKER, fetch
from tests import apicurio, minio
from tests.java import KAFKA, SPARK
from tests.needs import cache_folder


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is made once: where it is then, and what makes it and says why that cannot be, or nothing."""

    name: str
    place: Callable[[], Path]
    make: Callable[[], str]


def _fetch_kafka() -> str:
    try:
        fetch(KAFKA_BROKER, _jars())
    except AnewError as error:
        return " ".join(str(error).split())
    return ""


def _jars() -> Path:
    return cache_folder() / "jars"


PARTS = (
    Part("MinIO, an S3 server", minio.cached_binary, minio.build),
    Part("Apicurio, a schema registry", apicurio.cached_folder, apicurio.fetch),
    Part("Kafka's jars", _jars, _fetch_kafka),
    # Named by the jars, which therefore come before.
    Part("an archive of Spark's classes", lambda: SPARK.archive, SPARK.make_archive),
    Part("an archive of Kafka's classes", lambda: KAFKA.archive, KAFKA.make_archive),
)


def main() -> None:
    """Make all parts."""
    for part in PARTS:
        if not part.place().exists():
            print(f"tests: making {part.name}, once for this machine", flush=True)
        if said := part.make():
            print(f"tests: there is none: {said}", flush=True)


if __name__ == "__main__":
    main()
