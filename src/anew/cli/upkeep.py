"""``gc``, ``pause``, ``unpause``, ``node add|drain|remove``: what keeps a cluster tidy."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from anew.api.models import Collect, DrainNode
from anew.cli.local import nodes_app
from anew.cli.output import Json, out, print_json, print_table
from anew.cli.session import cluster
from anew.core.errors import NotFound, Refused
from anew.runtime.detached import add_node
from anew.runtime.home import Home
from anew.runtime.settings import resolve

_PARTLY = 6

OneStore = Annotated[str | None, typer.Option("--store", help="Only this store.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (gc, pause, unpause):
        app.command()(command)


def gc(
    *,
    store: OneStore = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and why; change nothing.")] = False,
    json_output: Json = False,
) -> int:
    """Retire and reclaim what nobody needs; each thing's grace holds all the same."""
    with cluster() as connected:
        answer = connected.controller.collect(Collect(store=store, dry_run=dry_run))
    if json_output:
        print_json(answer)
    else:
        rows = [(i.store, i.what, i.name, i.act, i.why) for i in answer.items]
        print_table(["store", "what", "name", "would" if dry_run else "does", "why"], rows)
        for name, why in answer.skipped.items():
            out().print(f"{name} is left alone: {why}", markup=False)
    return _PARTLY if answer.skipped and not dry_run else 0


def pause(*, store: OneStore = None, json_output: Json = False) -> None:
    """No scheduled rebuild, reclaim or gc starts from now on."""
    with cluster() as connected:
        answer = connected.controller.pause(store)
    if json_output:
        print_json(answer)
    else:
        what, way_back = ("everything", "anew unpause") if store is None else (store, f"anew unpause --store {store}")
        out().print(f"{what} is paused; to go on: {way_back}", markup=False)


def unpause(*, store: OneStore = None, json_output: Json = False) -> None:
    """Let scheduled rebuilds, reclaim and gc go on; a store's also where a rollback held them."""
    with cluster() as connected:
        answer = connected.controller.unpause(store)
    if json_output:
        print_json(answer)
    else:
        still = answer.stores
        out().print(f"{('all else' if still else 'everything') if store is None else store} goes on", markup=False)
        for name, why in still.items():
            out().print(f"{name} does not ({why}); to let it go on: anew unpause --store {name}", markup=False)
        if answer.paused is not None and store is not None:
            out().print(f"the cluster is {answer.paused}: anew unpause", markup=False)


@nodes_app.command()
def drain(
    node: str,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Use the node again.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also where fewer replicas are left than there are now.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Let a node's replicas move to others; it serves until they have them. Refused where they have nowhere to go."""
    with cluster() as connected:
        answer = connected.controller.drain_node(node, DrainNode(undo=undo, force=force))
    home = _own_home()
    if answer.was_removed and home is not None:
        add_node(home, resolve({}), node)
    if json_output:
        print_json(answer)
    elif undo:
        out().print(f"{node} is used again")
    else:
        out().print(f"{node} still holds {len(answer.holds)} replicas; when it holds none: anew node remove {node}")


@nodes_app.command("add")
def add(
    node: Annotated[
        str | None, typer.Argument(help="A node that was removed, such as node-1; default: a new one.")
    ] = None,
    *,
    json_output: Json = False,
) -> None:
    """Start one more node in the embedded cluster of this home, or one again that was removed."""
    home, settings = _own_home(), resolve({})
    if home is None:
        raise Refused(
            "not_this_home",
            "a node is added on the machine of the cluster's home",
            found=f"ANEW_URL = {settings.text('url')}",
            expected="a cluster that anew up started here",
            hint="unset ANEW_URL and set ANEW_HOME",
        )
    name = home.running().next_node() if node is None else node
    with cluster() as connected:
        if node is not None:
            # What the cluster knows counts, not the home's file, which lags: one that was drained is used again.
            with suppress(NotFound):
                connected.controller.drain_node(name, DrainNode(undo=True))
    add_node(home, settings, name)
    if json_output:
        print_json({"node": name})
    else:
        out().print(f"{name} reports; what is made from now on is placed on it too")


def _own_home() -> Home | None:
    """The home of the cluster that the settings name; None where they name one by its address."""
    settings = resolve({})
    return Home(settings.home) if settings.optional("url") is None else None


@nodes_app.command()
def remove(node: str, *, json_output: Json = False) -> None:
    """Forget a node that holds nothing any more."""
    with cluster() as connected:
        answer = connected.controller.remove_node(node)
    if json_output:
        print_json(answer)
    else:
        out().print(f"{node} is removed and ends; to use it again: anew node add {node}")
