"""``swap`` and ``rollback``: the atomic change of the current version, and back."""

from __future__ import annotations

from typing import Annotated

import typer

from anew.api.stores.requests import RollBack, Swap
from anew.api.stores.views import SwapAnswer
from anew.cli.options import Fabrics
from anew.cli.output import Json, out, print_json
from anew.cli.session import cluster
from anew.core.stores.names import parse_version

_PARTLY = 6

_RISK = "its keys may not be found, or be older, until nodes have loaded it."

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(swap)
    app.command()(rollback)


def swap(
    name: str,
    version: str,
    *,
    fabric: Fabrics = None,
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Also to a version that is not ready: " + _RISK)] = False,
    json_output: Json = False,
) -> int:
    """Make VERSION (a number or NAME_v7) the current one."""
    request = Swap(version=parse_version(version, name), fabrics=_fabrics(fabric), dry_run=dry_run, force=force)
    with cluster() as connected:
        return _answer(connected.controller.swap(name, request), as_json=json_output)


def rollback(
    name: str,
    *,
    to: Annotated[str | None, typer.Option(help="The version to go back to; default: the newest backup.")] = None,
    fabric: Fabrics = None,
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Also to a version that no node has loaded: " + _RISK)] = False,
    json_output: Json = False,
) -> int:
    """Go back to an older version; nearline writes made since are in it as well."""
    number = None if to is None else parse_version(to, name)
    request = RollBack(to=number, fabrics=_fabrics(fabric), dry_run=dry_run, force=force)
    with cluster() as connected:
        return _answer(connected.controller.roll_back(name, request), as_json=json_output)


def _fabrics(given: list[str] | None) -> tuple[str, ...]:
    return () if given is None else tuple(given)


def _answer(answer: SwapAnswer, *, as_json: bool) -> int:
    if as_json:
        print_json(answer)
    else:
        would = "would go" if answer.dry_run else "went"
        for fabric, moved in answer.done.items():
            out().print(f"{fabric}: {answer.store} {would} from version {moved.before} to {moved.after}")
            held = answer.loaded[fabric]
            if held.replicas_missing:
                out().print(f"  {held.replicas_missing} of its replicas are not loaded")
            if held.lag_records:
                out().print(f"  it is {held.lag_records} records behind")
        for fabric, error in answer.failed.items():
            out().print(f"{fabric}: {error.message}")
    return _PARTLY if answer.failed else 0
