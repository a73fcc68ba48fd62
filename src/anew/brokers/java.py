"""The Java programs of a broker: where they come from, how they are run, what they say when they fail."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from anew.brokers.configuration import BrokerFolder
from anew.brokers.process import locks, until
from anew.brokers.record import ClusterRecord
from anew.core.errors import Failed
from anew.jars.fetching import KAFKA_BROKER
from anew.runtime.jars import fetched
from anew.runtime.java import find_java

_FORMAT_SECONDS = 60.0
_LOGGED = re.compile(r"^[-0-9]+T\S+Z [A-Z]+ ")
_ERROR = re.compile(r"^[-0-9]+T\S+Z (?:ERROR|FATAL) \S+ ")
_CAUSE = re.compile(r'^(?:Exception in thread "[^"]*" |Caused by: )')
_SOON_OVER = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx128m")


@dataclass(frozen=True, slots=True)
class BrokerJava:
    """A Java, and the jars of a broker."""

    program: Path
    jars: Path

    def command(self, options: Sequence[str], main: str, *arguments: str) -> list[str]:
        """The command that runs a class of the jars."""
        return [str(self.program), *options, "-cp", f"{self.jars}/*", main, *arguments]


def broker_java() -> BrokerJava:
    """What runs brokers on this machine; the jars are fetched the first time.

    Raises:
        Unreachable: ``java_missing``, ``java_too_old``, ``maven_missing``, ``jars_unreachable``.
        Refused: ``cache_unusable``.
    """
    java = find_java("Kafka")
    return BrokerJava(java.program, fetched(KAFKA_BROKER)[0].parent)


def format_data(java: BrokerJava, record: ClusterRecord, brokers: Sequence[BrokerFolder]) -> None:
    """Make the data directories of brokers that have none yet, side by side; each is there whole or not at all.

    Raises:
        Failed: ``format_failed``.
    """
    for left in [folder for broker in brokers for folder in broker.home.glob("formatting.*")]:
        _clear(left)
    runs = [_Formatting(java, record, broker) for broker in brokers if not broker.data.exists()]
    deadline = time.monotonic() + _FORMAT_SECONDS
    for failed in [failure for run in runs if (failure := run.finish(deadline)) is not None]:
        raise failed


def _clear(left: Path) -> None:
    """Remove what a start left that was killed; its tool may run still, and would make the directory again."""
    if (left / "out").exists():
        with (left / "out").open("ab") as held:
            until(lambda: locks(held.fileno(), fcntl.LOCK_EX), _FORMAT_SECONDS)
    shutil.rmtree(left, ignore_errors=True)


class _Formatting:
    """Kafka's own tool, which formats what the settings name; here a directory that is renamed when it is done."""

    def __init__(self, java: BrokerJava, record: ClusterRecord, broker: BrokerFolder) -> None:
        self._broker = broker
        self._folder = Path(tempfile.mkdtemp(dir=broker.home, prefix="formatting."))
        # Its settings name the data directory as seen from where it runs, which here is another directory.
        arguments = ("format", "--cluster-id", record.cluster_id, "--config", str(broker.properties))
        with (self._folder / "out").open("wb") as output:
            # The tool inherits the lock, and holds it for as long as it runs.
            fcntl.flock(output, fcntl.LOCK_EX)
            self._process = subprocess.Popen(
                java.command(_SOON_OVER, "kafka.tools.StorageTool", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
            )

    def finish(self, deadline: float) -> Failed | None:
        try:
            code = self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        said = _reason(_lines(self._folder / "out"))
        if code != 0:
            return Failed(
                "format_failed",
                f"the data directory of broker {self._broker.id} could not be made",
                found=said if said else f"exit code {code}",
                expected=f"{self._broker.data}, formatted",
                hint=f"try it on {self._broker.properties} with kafka.tools.StorageTool",
            )
        (self._folder / "data").rename(self._broker.data)
        shutil.rmtree(self._folder, ignore_errors=True)
        return None


def last_words(broker: BrokerFolder) -> str:
    """What a broker said, since it was launched, of what is wrong; empty when it said nothing."""
    launched = datetime.fromtimestamp(broker.lock.stat().st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    logged = _lines(broker.log)
    errors = [at for at, line in enumerate(logged) if _ERROR.match(line) and line >= launched]
    if not errors:
        return _reason(_lines(broker.printed))
    reason = _reason([line for line in logged[errors[-1] + 1 :] if not _LOGGED.match(line)])
    return ": ".join(filter(None, (_ERROR.sub("", logged[errors[-1]]), reason)))


def _reason(lines: list[str]) -> str:
    """The last cause that a stack trace names; of other lines the last; empty for none."""
    told = [line for line in lines if not line.startswith(("at ", "... "))]
    causes = [line for line in told if line.startswith(("Exception in thread ", "Caused by: "))]
    traced = len(told) < len(lines)
    chosen = causes[-1:] or (told[:1] if traced else told[-1:])
    return _CAUSE.sub("", chosen[0]) if chosen else ""


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
