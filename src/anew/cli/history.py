"""``history``: who did what when, and what is done from now on."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, NoReturn

import typer

from anew.api.http import ControllerClient
from anew.api.upkeep import HistoryLine
from anew.cli.output import Json, err, out, print_json, print_line, print_table, shape
from anew.cli.session import asked_until_answered, cluster
from anew.core.moment import utc_text

_LAST_REVISION = 2**63 - 1
_WAIT_SECONDS = 20.0


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(history)


def history(
    *,
    store: Annotated[str | None, typer.Option(help="Only what concerns this store.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Then what is done, as it comes, the newest last.")] = False,
    json_output: Json = False,
) -> None:
    """Who did what when, newest first; with --follow newest last, and on until it is interrupted."""
    with cluster() as connected:
        if follow:
            _follow(connected.controller, store, limit, as_json=json_output)
        found = connected.controller.history(store, limit)
    if json_output:
        print_json(found)
    else:
        print_table(["at", "who", "what", "subject"], [(utc_text(h.at_ms), h.actor, h.what, h.subject) for h in found])


def _follow(controller: ControllerClient, store: str | None, limit: int, *, as_json: bool) -> NoReturn:
    # Asked first: what is done while the lines before are read comes after them, once.
    after = controller.events(_LAST_REVISION, store=store).next
    shown = set[str]()
    for line in reversed(controller.history(store, limit)):
        shown.add(line.id)
        _print(line, as_json=as_json)
    sys.stdout.flush()
    while True:
        events = asked_until_answered(partial(controller.events, after, store=store, wait_seconds=_WAIT_SECONDS))
        if events.next < after:
            err().print(f"the catalog went back from revision {after} to {events.next}: lines may be missing")
        after = events.next
        for event in events.items:
            if event.id not in shown:
                _print(event, as_json=as_json)
        sys.stdout.flush()


def _print(line: HistoryLine, *, as_json: bool) -> None:
    if as_json:
        print_line(shape(line))
    else:
        out().print(f"{utc_text(line.at_ms)}  {line.actor}  {line.what}  {line.subject}", highlight=False, markup=False)
