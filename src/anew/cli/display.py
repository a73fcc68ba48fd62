"""Telling of a running rebuild: a live display on a terminal, one line per change elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from anew.api.rebuilds import RebuildView, RefreshView
from anew.cli.output import err
from anew.core.plan import PlanValue
from anew.core.rebuild import Progress as Measure
from anew.core.rebuild import Rebuild, Stage

_WHAT = {
    Stage.BEGIN: "begin: create the version",
    Stage.BUILD: "build: read, merge, write",
    Stage.SEAL: "seal: commit the manifest",
    Stage.LOAD: "load: nodes ingest and catch up",
    Stage.SWAP: "swap: put into service",
    Stage.DONE: "done",
}
_DEFERRED = "swap: deferred, as it was asked for"

_MEASURED = (Stage.BUILD, Stage.LOAD)
"""The stages that take long."""
_MB = 1_000_000

_MOST_FAILED = 20
"""So many segments that failed are named to people."""

_LEFT = ("superseded", "deleted", "expired", "filtered", "skipped", "written")
"""What became of the rows that were read, of stores and of tables."""


class TerminalObserver:
    """An observer that writes to stderr; a context manager."""

    def __init__(self, console: Console | None = None, *, defers: bool = False) -> None:
        """Write to a console, stderr unless one is given.

        Args:
            console: Where to.
            defers: Whether the swap waits until somebody asks for it; a plan that is told of says so itself.
        """
        self._console = err() if console is None else console
        self._defers = defers
        self._live: Progress | None = None
        self._task: Any = None
        self._began = time.monotonic()
        self._last: tuple[Any, ...] = ()

    def __enter__(self) -> TerminalObserver:
        """Start the live display, on a terminal."""
        if self._console.is_terminal:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[detail]}"),
                TimeElapsedColumn(),
            )
            self._live = Progress(*columns, console=self._console, transient=True)
            self._live.start()
            self._task = self._live.add_task("plan", total=None, detail="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the live display."""
        if self._live is not None:
            self._live.stop()

    def planned(self, plan: PlanValue) -> None:
        """See `Observer.planned`."""
        self._defers = plan.defers
        headline, *why = plan.summary()
        self._console.print(f"plan {plan.id}: {headline}")
        for reason in why:
            self._console.print(f"  {reason}")

    def began(self, rebuild: Rebuild) -> None:
        """See `Observer.began`."""
        makes = "" if rebuild.makes is None else f" makes {rebuild.makes}"
        self._console.print(f"rebuild {rebuild.id}{makes}")

    def stage(self, stage: Stage) -> None:
        """See `Observer.stage`."""
        what = _DEFERRED if stage is Stage.SWAP and self._defers else _WHAT[stage]
        if self._live is not None:
            self._live.update(self._task, description=what, total=None, completed=0, detail="")
        else:
            self._console.print(f"[{time.monotonic() - self._began:6.1f} s] {what}", markup=False)

    def progress(self, stage: Stage, progress: Measure) -> None:
        """See `Observer.progress`."""
        if stage not in _MEASURED or progress.total == 0:
            return
        detail = measure_line(progress)
        if self._live is not None:
            self._live.update(self._task, completed=progress.done, total=progress.total, detail=detail)
        elif (stage, detail) != self._last:
            self._last = (stage, detail)
            self._console.print(f"[{time.monotonic() - self._began:6.1f} s]   {detail}", markup=False)

    def ended(self, rebuild: RebuildView) -> None:
        """See `Observer.ended`."""


def measure_line(progress: Measure) -> str:
    """How much of a stage is done, in one line; empty where nobody has said."""
    if progress.total == 0:
        return ""
    line = f"{progress.done}/{progress.total} {progress.unit}"
    if progress.total_bytes:
        line += f", {progress.bytes / _MB:.1f}/{progress.total_bytes / _MB:.1f} MB"
    return line


def failed_lines(refresh: RefreshView) -> list[str]:
    """Which segments failed in a refresh, and why: one line for each of the first ones."""
    failed = refresh.failed
    lines = [f"{each.segment}: {each.error}" for each in failed[:_MOST_FAILED]]
    left = len(failed) - len(lines)
    return [*lines, f"and {left} more: --json names them all"] if left else lines


def ledger_line(view: RebuildView) -> str:
    """The ledger in one line."""
    if view.ledger is None:
        return "no ledger: nothing was sealed"
    counts = view.ledger.model_dump()
    parts = " + ".join(f"{counts[name]} {name}" for name in _LEFT if name in counts)
    return f"{counts['read']} read = {parts}"
