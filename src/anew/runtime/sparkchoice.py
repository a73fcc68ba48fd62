"""Which Spark a command uses: a session of the user's, or one that is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anew.spark.session import SparkSession


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """How to come by Spark: a session of the user's, or one made with these settings."""

    session: SparkSession | None = None
    master: str | None = None
    conf: Mapping[str, str] | None = None


@contextmanager
def spark_of(choice: SparkChoice) -> Iterator[SparkSession]:
    """The session of a choice, for as long as it is needed."""
    if choice.session is not None:
        yield choice.session
        return
    from anew.spark.session import spark_session

    with spark_session(choice.master, {} if choice.conf is None else choice.conf) as session:
        yield session
