"""Which Spark a command uses, and under what name it drives."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anew.runtime.clock import new_id

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


def driver_name(log: str) -> str:
    """Unique: who repeats a request must not be taken for the driver at work on it; see `anew.core.rebuild.Driver`."""
    return f"{actor()}@{socket.gethostname()}:{os.getpid()}/{new_id()[-6:]} {log}".rstrip()


def actor() -> str:
    """Who asks, as the machine knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
