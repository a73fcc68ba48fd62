"""Running a plan of any kind, here or in a driver that goes on alone, and saying how it ended."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import ValidationError

from anew.api.rebuilds import RebuildView, StoreRebuildView, TableRebuildView, view_as
from anew.cli.display import TerminalObserver, failed_lines, ledger_line
from anew.cli.output import out, print_json
from anew.cli.session import misfits, pairs
from anew.core.errors import InvalidRequest, NotFound
from anew.core.plan import PlanValue
from anew.core.tables.plan import TableRebuildKind
from anew.runtime.clock import new_id
from anew.runtime.connect import Cluster
from anew.runtime.drive import start_driver
from anew.runtime.settings import resolve
from anew.runtime.sparkchoice import SparkChoice

_FAILED, _PARTLY = 1, 6
_P = TypeVar("_P", bound=PlanValue)
_COUNTED = {
    TableRebuildKind.REFRESH: {name: name for name in ("refreshed", "stamped", "skipped", "failed", "drift")},
    TableRebuildKind.TABLE_LOAD: {"refreshed": "loaded", "stamped": "unchanged", "removed": "removed"},
    TableRebuildKind.TABLE_REPAIR: {"refreshed": "repaired", "skipped": "skipped", "failed": "failed"},
}
"""Kind → which lists of segments are counted for people, and in what words."""
_ENDED_BADLY = ("failed", "killed")


@dataclass(frozen=True, slots=True)
class Asked:
    """How a run was asked for.

    Attributes:
        request: The hash of what was asked for, see `anew.rebuild.asking.asked_for`; None: exactly a given plan.
    """

    dry_run: bool
    as_json: bool
    request_id: str | None
    detach: bool
    request: str | None = None


def spark_choice(master: str | None, conf: list[str] | None, jars: str | None) -> SparkChoice:
    """``--jars`` is Spark's own setting under another name; a ``--conf spark.jars=…`` beside it is a contradiction."""
    settings = pairs(conf, "--conf")
    if jars is not None:
        if "spark.jars" in settings:
            raise InvalidRequest("contradiction", "jars are named twice", found="--jars and --conf spark.jars")
        settings["spark.jars"] = jars
    return SparkChoice(master=master, conf=settings)


class PrintEnded(Protocol):
    """Says how a rebuild ended."""

    def __call__(self, view: RebuildView, *, as_json: bool) -> None:
        """Print the ``rebuild`` shape."""


def run(
    connected: Cluster,
    plan: PlanValue,
    spark: SparkChoice,
    asked: Asked,
    print_ended: PrintEnded,
) -> int:
    """Run a plan, or start its driver; returns the command's exit code.

    Args:
        connected: The cluster.
        plan: What to run.
        spark: Where.
        asked: How it was asked for.
        print_ended: Says how it ended.
    """
    plan = plan.model_copy(update={"asked": asked.request})
    if asked.detach:
        request_id = new_id() if asked.request_id is None else asked.request_id
        view = start_driver(connected, plan, spark, request_id, resolve({}).home / "logs")
        return _print_detached(view, as_json=asked.as_json)
    with TerminalObserver() as observer:
        view = connected.run_plan(plan, spark, observer, asked.request_id)
    print_ended(view, as_json=asked.as_json)
    return exit_code(view)


def run_again(connected: Cluster, asked: Asked, print_ended: PrintEnded) -> int | None:
    """Answer a request that was made before under the same id as it was then; None: it is a new one.

    Raises:
        InvalidRequest: ``request_id_reused``.
    """
    if asked.request is None or asked.dry_run:
        return None
    view = connected.begun_before(asked.request_id, asked.request)
    if view is None:
        return None
    if asked.detach:
        return _print_detached(view, as_json=asked.as_json)
    # A rebuild of a table has no swap.
    defers = view.plan.defers
    with TerminalObserver(defers=defers) as observer:
        view = connected.follow(view.id, observer)
    print_ended(view, as_json=asked.as_json)
    return exit_code(view)


def _print_detached(view: RebuildView, *, as_json: bool) -> int:
    if as_json:
        print_json(view)
    else:
        out().print(f"rebuild {view.id} runs; follow it: anew rebuild watch {view.id}")
    return 0


def print_outcome(view: RebuildView, *, as_json: bool) -> None:
    """Say how a rebuild ended."""
    if as_json:
        print_json(view)
        return
    if isinstance(view, TableRebuildView):
        print_table_outcome(view)
        return
    made = view_as(view, StoreRebuildView)
    out().print(f"{made.status}: version {made.version} of {made.store}")
    out().print(f"ledger: {ledger_line(made)}")
    out().print(f"{made.records_per_s or 0.0:.0f} records/s, {sum(made.timings.values()):.1f} s in all")
    if made.plan.defers:
        out().print(f"its swap is deferred: anew swap {made.store} {made.version}")


def print_table_outcome(view: TableRebuildView) -> None:
    """Say how a refresh, a load or a repair of a table ended."""
    refresh = view.refresh
    counted = {name: (len(getattr(refresh, name)), word) for name, word in _COUNTED[view.kind].items()}
    shown = [f"{count} {word}" for name, (count, word) in counted.items() if count or name != "removed"]
    out().print(f"{view.status}: " + ", ".join(shown))
    out().print(f"ledger: {ledger_line(view)}")
    for line in failed_lines(refresh):
        out().print(f"  {line}", markup=False, soft_wrap=True)


def exit_code(view: RebuildView) -> int:
    """The exit code of an ended rebuild."""
    if view.status in _ENDED_BADLY:
        return _FAILED
    return _PARTLY if view.status == "partly" else 0


def read_plan(path: Path, of: type[_P], name: str, kinds: Collection[str]) -> _P:
    """The plan that a dry run wrote into a file.

    Args:
        path: The file.
        of: The class of plans that is expected.
        name: What it is to be for.
        kinds: Which kinds it may be.

    Raises:
        NotFound: ``no_plan_file``.
        InvalidRequest: ``bad_plan``.
    """
    if not path.is_file():
        raise NotFound("no_plan_file", "the plan file does not exist", found=str(path), expected="a dry run's output")
    try:
        plan = of.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise InvalidRequest(
            "bad_plan", "the file holds no plan", found=misfits(error), expected="--dry-run --json's output"
        ) from error
    if plan.subject_name != name or plan.kind not in kinds:
        raise InvalidRequest(
            "bad_plan", "the plan is for something else", found=f"{plan.kind} of {plan.subject_name}", expected=name
        )
    return plan
