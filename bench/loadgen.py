"""The load generator `loadgen.c`: compiled when it is needed, because an interpreter would be what is measured."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from anew.core.errors import InvalidRequest

_SOURCE = Path(__file__).with_name("loadgen.c")
_COMPILER_SECONDS = 120
_PATIENCE_SECONDS = 60
_LENGTHS = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of the generator: `rate` per second, 0 for as many as the connections make (closed loop)."""

    connections: int
    rate: int
    seconds: float
    asked: Path


@dataclass(frozen=True, slots=True)
class Answered:
    """What the generator found; latencies in microseconds, from when a request was due to its whole answer.

    ``unasked``: requests for which no connection became free, because the server could not keep up.
    """

    requests: int
    unasked: int
    failed: int
    wrong: int
    seconds: float
    p50_us: int
    p99_us: int
    p999_us: int
    max_us: int
    processor_seconds: float
    first_failure: str

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def compiled(folder: Path) -> Path:
    """The generator's program, made in a folder.

    Raises:
        InvalidRequest: ``no_compiler``.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise InvalidRequest(
            "no_compiler", "the load generator is written in C", found="no cc", hint="apt-get install gcc libc6-dev"
        )
    program = folder / "loadgen"
    command = [compiler, "-O2", "-o", str(program), str(_SOURCE)]
    subprocess.run(command, check=True, timeout=_COMPILER_SECONDS)
    return program


def write_asked(path: Path, entries: Iterable[tuple[bytes, bytes]]) -> Path:
    """Keep what is to be asked in turn: whole requests, each with what its answer's body begins with."""
    with path.open("wb") as file:
        for ask, expected in entries:
            file.write(_LENGTHS.pack(len(ask), len(expected)) + ask + expected)
    return path


def start_load(program: Path, port: int, load: Load) -> subprocess.Popen[str]:
    """Begin to ask the server at a port of this machine; `finished` gives the outcome."""
    numbers = (port, load.connections, load.rate, load.seconds)
    return subprocess.Popen([program, *map(str, numbers), load.asked], stdout=subprocess.PIPE, text=True)


def finished(running: subprocess.Popen[str]) -> Answered:
    """Wait for the generator.

    Raises:
        subprocess.CalledProcessError: It could not begin.
    """
    told, _ = running.communicate(timeout=_PATIENCE_SECONDS)
    if running.returncode != 0:
        raise subprocess.CalledProcessError(running.returncode, running.args, told)
    return Answered(**json.loads(told))
