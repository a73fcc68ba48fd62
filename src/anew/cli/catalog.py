"""``catalog restore``: a lost catalog, made again from the deep store."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from anew.api.models import RestoreCatalog
from anew.api.upkeep import RestoredCatalog
from anew.cli.options import RequestId
from anew.cli.output import Json, err, out, print_json, print_table
from anew.cli.session import cluster
from anew.runtime.home import Home
from anew.runtime.settings import resolve

catalog_app = typer.Typer(help="The metadata database.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(catalog_app, name="catalog")


@catalog_app.callback()
def catalog() -> None:
    """The metadata database."""


@catalog_app.command()
def restore(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be made; change nothing.")] = False,
    request_id: RequestId = None,
    json_output: Json = False,
) -> None:
    """Make a lost catalog again from the deep store; refused unless the catalog is empty."""
    request = RestoreCatalog(dry_run=dry_run, request_id=request_id)
    settings = resolve({})
    home = Home(settings.home)
    if settings.optional("url") is not None or home.is_held():
        with cluster() as connected:
            answer = connected.controller.restore_catalog(request)
    else:
        # Here alone: it brings the controller's libraries along, which no other command needs.
        from anew.runtime.controlling import restore_at_rest

        answer = restore_at_rest(settings, home, request, getpass.getuser())
    if json_output:
        print_json(answer)
    else:
        _print(answer)


def _print(answer: RestoredCatalog) -> None:
    rows = [
        (
            store.name,
            "deleted" if store.deleted else ", ".join(f"{f}: {n}" for f, n in store.current.items()),
            store.next_version,
            store.source,
            ", ".join(f"{v.number} {'/'.join(sorted(set(v.statuses.values())))}" for v in store.versions),
        )
        for store in answer.stores
    ]
    print_table(["store", "current", "next", "from", "versions"], rows)
    tables = [
        (
            table.name,
            "deleted" if table.deleted else "live",
            *(f"{count:,}" for count in (table.segments, table.rows, table.bytes)),
        )
        for table in answer.tables
    ]
    if tables:
        print_table(["table", "state", "segments", "rows", "bytes"], tables)
    topics = [(topic.name, "deleted" if topic.deleted else "live") for topic in answer.topics]
    if topics:
        print_table(["topic", "state"], topics)
    jobs = [
        (
            job.name,
            "deleted" if job.deleted else "live",
            job.live,
            job.next_generation,
            ", ".join(f"{number} {status}" for number, status in sorted(job.generations.items())),
        )
        for job in answer.jobs
    ]
    if jobs:
        print_table(["job", "state", "live", "next", "generations"], jobs)
    noted = [(store.name, store.notes) for store in answer.stores]
    noted += [(table.name, table.notes) for table in answer.tables]
    noted += [(topic.name, topic.notes) for topic in answer.topics]
    noted += [(job.name, job.notes) for job in answer.jobs]
    for name, notes in noted:
        for note in notes:
            out().print(f"{name}: {note}", markup=False)
    for note in answer.notes:
        out().print(note, markup=False)
    if answer.dry_run:
        err().print("nothing was changed; to make it: anew catalog restore")
    if not answer.empty:
        err().print("the catalog holds something: a restore would be refused")
