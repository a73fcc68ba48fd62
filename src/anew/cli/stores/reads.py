"""``get``, ``scan``, ``write``: the data itself."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Any

import typer

from anew.cli.output import Json, out, print_json, print_line, print_table
from anew.cli.session import cluster, datum, json_value, lines_of
from anew.cli.writing import bad_line, stopped
from anew.client.store import Store
from anew.client.writer import Writer
from anew.codec.plain import key_from_text, to_plain
from anew.core.errors import AnewError, InvalidRequest
from anew.core.stores.names import parse_version

Version = Annotated[str | None, typer.Option(help="A version that is kept: a number or NAME_v7; default: the current.")]
FabricName = Annotated[str | None, typer.Option("--fabric", help="The fabric to ask.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(get)
    app.command()(scan)
    app.command()(write)


def get(
    name: str,
    keys: list[str],
    *,
    version: Version = None,
    fabric: FabricName = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each replica holds of it, and why.")] = False,
    json_output: Json = False,
) -> None:
    """The values of keys: literal text for a string key schema, JSON for any other."""
    number = None if version is None else parse_version(version, name)
    with cluster(fabric) as connected:
        store = connected.store(name)
        datums = [key_from_text(store.key_schema, key) for key in keys]
        if explain:
            _explain(store, datums, number, as_json=json_output)
            return
        found = store.get_many(datums, version=number)
        rows = [
            {
                "key": to_plain(store.key_schema, key),
                "found": cell is not None,
                "value": None if cell is None else to_plain(store.value_schema, cell.value),
                "written_at": None if cell is None else cell.written_at,
                "version": None if cell is None else cell.version,
            }
            for key, cell in zip(datums, found, strict=True)
        ]
    if json_output:
        print_json(rows)
        return
    for row in rows:
        out().print_json(data=row) if row["found"] else out().print(f"{row['key']}: not found")


def scan(name: str, *, version: Version = None, fabric: FabricName = None, json_output: Json = False) -> None:
    """All records as JSON lines, in any order."""
    number = None if version is None else parse_version(version, name)
    with cluster(fabric) as connected:
        store = connected.store(name)
        key_schema, value_schema = store.key_schema, store.value_schema
        # A scan that is broken off lets go of its version while there is somebody to tell.
        with closing(store.scan(version=number)) as rows:
            for row in rows:
                print_line(
                    {
                        "key": to_plain(key_schema, row.key),
                        "value": to_plain(value_schema, row.value),
                        "written_at": row.written_at,
                    }
                )


def write(
    name: str,
    file: Annotated[str | None, typer.Argument(help="JSON lines; - or nothing: stdin.")] = None,
    *,
    json_output: Json = False,
) -> None:
    """Write JSON lines {"key", "value"} or {"key", "delete": true}, optionally "written_at" (ms).

    Stops at the first bad line, with exit 1; what was accepted before it stays written. Where the log takes no more, it
    ends with exit 6 and says how many records are on disk.
    """
    with lines_of(file) as lines, cluster() as connected:
        store = connected.store(name)
        writer, number = store.writer(), 0
        try:
            for line, text in lines:
                number = line
                _put(store, writer, json_value(text))
            position = writer.close()
        except InvalidRequest as error:
            raise bad_line(writer, number, error, as_json=json_output) from error
        except AnewError as error:
            count = number + (0 if file in (None, "-") else sum(1 for _ in lines))
            raise stopped(writer, count, error, as_json=json_output) from error
    answer = {"accepted": writer.accepted, "position": position.to_json()}
    if json_output:
        print_json(answer)
    else:
        out().print(f"{writer.accepted} records written")


def _put(store: Store, writer: Writer, row: Any) -> None:
    """Write one line.

    Raises:
        InvalidRequest: ``bad_line``, ``value_misfit``.
    """
    known = {"key", "value", "delete", "written_at"}
    if not isinstance(row, dict) or "key" not in row or not known.issuperset(row):
        raise InvalidRequest("bad_line", "this is no record", found=row, expected='{"key": …, "value": …}')
    if ("value" in row) == bool(row.get("delete", False)):
        raise InvalidRequest("bad_line", "a record has a value or is a delete", found=row, expected="one of the two")
    written_at = row.get("written_at")
    if written_at is not None and (not isinstance(written_at, int) or isinstance(written_at, bool)):
        raise InvalidRequest(
            "bad_line", "written_at is ms since the epoch", found=written_at, expected="a whole number"
        )
    key = datum(store.key_schema, row["key"], "key")
    if row.get("delete", False):
        writer.delete(key, written_at=written_at)
    else:
        writer.put(key, datum(store.value_schema, row["value"], "value"), written_at=written_at)


def _explain(store: Store, keys: list[Any], number: int | None, *, as_json: bool) -> None:
    found = [{"key": to_plain(store.key_schema, key), **store.explain(key, version=number)} for key in keys]
    if as_json:
        print_json(found)
        return
    for row in found:
        out().print(f"{row['key']}: version {row['version']}, partition {row['partition']}")
        # Of a job's record, batch and sequence say what the offset says of others.
        of_job = any("batch" in replica for replica in row["replicas"])
        place = ["batch", "sequence"] if of_job else ["offset"]
        columns = ["node", "found", "tombstone", "source", "feed", *place, "written_at", "origin", "error"]
        print_table(columns, [[replica.get(name) for name in columns] for replica in row["replicas"]])
