"""What the tests need and a machine keeps: ``python -m tests.once`` makes it, unless it is there.

Within a test it would take longer than a test may. What cannot be had is said: the tests that need it are skipped, or,
where it is an archive of classes, take longer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anew.core.errors import AnewError
from anew.jars.fetching import KAFKA_BROKER
from anew.runtime.jars import fetched
from tests import apicurio, minio
from tests.java import KAFKA, SPARK


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is made once: whether it is there, and what makes it and says why that cannot be, or nothing."""

    name: str
    there: Callable[[], bool]
    make: Callable[[], str]


def _fetch_kafka() -> str:
    try:
        fetched(KAFKA_BROKER)
    except AnewError as error:
        return " ".join(str(error).split())
    return ""


PARTS = (
    Part("MinIO, an S3 server", lambda: minio.cached_binary().exists(), minio.build),
    Part("Apicurio, a schema registry", lambda: apicurio.cached_folder().exists(), apicurio.fetch),
    Part("Kafka's jars", lambda: bool(KAFKA.jars()), _fetch_kafka),
    # Named by the jars, which therefore come before.
    Part("an archive of Spark's classes", lambda: SPARK.archive.exists(), SPARK.make_archive),
    Part("an archive of Kafka's classes", lambda: KAFKA.archive.exists(), KAFKA.make_archive),
)


def main() -> None:
    """Make all parts."""
    for part in PARTS:
        if not part.there():
            print(f"tests: making {part.name}, once for this machine", flush=True)
        if said := part.make():
            print(f"tests: without {part.name}: {said}", flush=True)


if __name__ == "__main__":
    main()
