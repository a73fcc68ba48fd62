"""``job dead-letters``: the records that generations left out, shown and replayed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from anew.cli.jobs.naming import Which, named
from anew.cli.output import Json, out, print_json, print_rows
from anew.cli.session import cluster
from anew.cli.topics import shown_record
from anew.core.errors import InvalidRequest
from anew.runtime.deadrecords import DeadRecord, Replayed

_SHOWN_LETTERS, _MOST_SHOWN = 100, 1_000_000


def dead_letters(
    which: Which,
    *,
    limit: Annotated[int, typer.Option(help="At most so many are shown.", min=1, max=_MOST_SHOWN)] = _SHOWN_LETTERS,
    replay: Annotated[bool, typer.Option("--replay", help="Give their records to their topics again.")] = False,
    as_new: Annotated[
        bool, typer.Option("--as-new", help="Also of topics without write times: they win over younger records.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Show the records that a job's generations left out, with the reason, and the record where the log still has it.

    With --replay those that were not yet are appended to their topics again, with their keys and write times, and
    whatever generations follow the topics process them.
    """
    if as_new and not replay:
        raise InvalidRequest(
            "bad_option", "--as-new says how to replay", found="--as-new", expected="--replay --as-new"
        )
    name, number = named(which)
    with cluster() as connected:
        handle = connected.job(name)
        if replay:
            _print_replayed(name, handle.replay(number, as_new=as_new), as_json=json_output)
            return
        found = [_shown(each) for each in handle.dead_letters(number, limit)]
    if json_output:
        print_json(found)
        return
    columns = ["generation", "input", "partition", "offset", "reason", "replayed", "key", "value"]
    rows = [
        [each["replayed_at_ms"] is not None if what == "replayed" else _of_record(each, what) for what in columns]
        for each in found
    ]
    print_rows(columns, rows)


def _shown(dead: DeadRecord) -> dict[str, Any]:
    """A dead letter as JSON has it."""
    record = None if dead.record is None or dead.topic is None else shown_record(dead.topic, dead.record)
    return {**dead.letter.model_dump(mode="json"), "record": record}


def _of_record(shown: dict[str, Any], what: str) -> Any:
    if what in shown:
        return shown[what]
    return None if shown["record"] is None else shown["record"][what]


def _print_replayed(name: str, replayed: Replayed, *, as_json: bool) -> None:
    if as_json:
        print_json({"job": name, **asdict(replayed)})
        return
    out().print(f"{name}@{replayed.generation}: {replayed.replayed} records were given to their topics again")
    if replayed.gone:
        out().print(f"{replayed.gone} more are not in the logs any more")
    if replayed.unreadable:
        out().print(
            f"{replayed.unreadable} more are not of their topic's format: write mended ones with anew topic write"
        )
