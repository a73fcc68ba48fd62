"""``topic …``: topics of our own: making, looking at, writing, reading and deleting them."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from anew.api.topics import CreateTopic, TopicView
from anew.cli.options import RequestId
from anew.cli.output import Json, err, out, print_json, print_rows, print_table
from anew.cli.session import cluster, datum, json_value, lines_of, schema_text
from anew.cli.writing import bad_line, stopped
from anew.client.topicreads import Edge, TopicRecord, read_start
from anew.client.topics import Topic, key_of
from anew.client.topicwriter import TopicWriter, json_key, schemas_of
from anew.codec.plain import to_plain
from anew.core.errors import AnewError, InvalidRequest
from anew.core.moment import instant_text
from anew.core.topics.topic import TopicFormat

topics_app = typer.Typer(help="Topics of our own: logs that programs write and stream jobs read.", no_args_is_help=True)

_SHOWN_RECORDS, _MOST_SHOWN = 100, 1_000_000_000


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(topics_app, name="topic")


@topics_app.command()
def create(
    name: str,
    *,
    partitions: Annotated[int, typer.Option(help="How many partitions.")] = 1,
    of_format: Annotated[
        TopicFormat | None, typer.Option("--format", help="Default: avro where schemas are given, else json.")
    ] = None,
    key_schema: Annotated[str | None, typer.Option(help="Avro: JSON, @file.avsc, or a primitive's name.")] = None,
    value_schema: Annotated[str | None, typer.Option(help="Avro: JSON, @file.avsc, or a primitive's name.")] = None,
    columns: Annotated[str | None, typer.Option(help="Of json: carrier STRING, delay INT")] = None,
    retention_seconds: Annotated[int | None, typer.Option(help="How long records are kept; default: for ever.")] = None,
    retention_bytes: Annotated[
        int | None, typer.Option(help="How much of each partition is kept; default: all.")
    ] = None,
    fabric: Annotated[str | None, typer.Option("--fabric", help="In whose log; default: the first one's.")] = None,
    request_id: RequestId = None,
    json_output: Json = False,
) -> None:
    """Make a topic."""
    request = CreateTopic(
        name=name,
        partitions=partitions,
        format=of_format,
        key_schema=None if key_schema is None else schema_text(key_schema),
        value_schema=None if value_schema is None else schema_text(value_schema),
        columns=columns,
        retention_seconds=_at_least_one(retention_seconds, "--retention-seconds"),
        retention_bytes=_at_least_one(retention_bytes, "--retention-bytes"),
        fabric=fabric,
        request_id=request_id,
    )
    with cluster() as connected:
        view = connected.controller.create_topic(request)
    if json_output:
        print_json(view)
    elif view.ready:
        out().print(f"created {name}; next: anew topic write {name} --file …")
    else:
        out().print(f"announced {name}; the controller makes it once the log answers: anew topic show {name}")


@topics_app.command("list")
def list_topics(*, json_output: Json = False) -> None:
    """All topics."""
    with cluster() as connected:
        found = connected.controller.topics()
    if json_output:
        print_json(found)
        return
    rows = [(t.name, t.fabric, t.format.value, t.partitions, _kept(t), "yes" if t.ready else "no") for t in found]
    print_table(["topic", "fabric", "format", "partitions", "kept", "ready"], rows)


@topics_app.command()
def show(name: str, *, json_output: Json = False) -> None:
    """One topic: format, schemas, retention, and what its log says of each partition now."""
    with cluster() as connected:
        view = connected.controller.topic(name)
    if json_output:
        print_json(view)
        return
    told = {
        "fabric": view.fabric,
        "format": view.format.value,
        "partitions": _partitions(view),
        "kept": _kept(view),
        "columns": view.columns,
        "key schema": None if view.key_schema is None else f"{view.key_schema_id}: {view.key_schema}",
        "value schema": None if view.value_schema is None else f"{view.value_schema_id}: {view.value_schema}",
        "ready": "yes" if view.ready else "no",
        "written by": view.written_by,
        "forgets nothing for": ", ".join(view.held_by) or None,
        "log": view.log_error,
    }
    print_table(["topic", name], [(what, said) for what, said in told.items() if said is not None])
    if view.facts is not None:
        rows = [
            (number, p.begin, p.end, p.end - p.begin, None if p.oldest_ms is None else instant_text(p.oldest_ms))
            for number, p in enumerate(view.facts.partitions)
        ]
        out().print(f"\ncompacted: {'yes' if view.facts.compacted else 'no'}")
        print_table(["partition", "begin", "end", "offsets", "oldest"], rows)


@topics_app.command()
def write(
    name: str,
    *,
    file: Annotated[
        list[str] | None, typer.Option("--file", help="JSON lines; may be repeated; - or nothing: stdin.")
    ] = None,
    key_field: Annotated[
        str | None, typer.Option(help="Of json: the member that is the key; none: spread evenly.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Write JSON lines. Of avro and bytes: {"key", "value"}, bytes as base64. Of json: each line is a value.

    Stops at the first bad line, with exit 1; what was accepted before it stays written. Where the log takes no more, it
    ends with exit 6 and says how many records are on disk.
    """
    files = tuple(file) if file else ("-",)
    for path in files:
        with lines_of(path):
            pass  # before anything is written: each is there, and can be read
    with cluster() as connected:
        topic = connected.topic(name)
        if key_field is not None and topic.view.format is not TopicFormat.JSON:
            raise InvalidRequest(
                "bad_topic_format",
                f"lines of {name} say themselves what is the key",
                found=f"--key-field {key_field}, format {topic.view.format.value}",
                expected='{"key": …, "value": …}, or a topic of the format json',
            )
        writer = topic.writer()
        for path in files:
            _write_file(topic, writer, path, key_field, as_json=json_output)
        position = _closed(writer, as_json=json_output)
    if json_output:
        print_json({"accepted": writer.accepted, "position": position})
    else:
        out().print(f"{writer.accepted} records written")


@topics_app.command()
def read(
    name: str,
    *,
    start: Annotated[
        str, typer.Option("--from", metavar="oldest|newest|OFFSET", help="newest: the last records.")
    ] = Edge.OLDEST.value,
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many records.", max=_MOST_SHOWN)] = _SHOWN_RECORDS,
    committed: Annotated[
        bool, typer.Option("--committed", help="Of records that jobs wrote, those alone that count.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Show records that are there now, in the order of their times.

    With --committed what attempts appended that died is left out, and of a batch that is not recorded yet nothing is
    shown from there on; the JSON then is {"records", "next": {partition: offset}, "waiting"}.
    """
    begin = read_start(int(start) if start.isdecimal() else start)
    with cluster() as connected:
        topic = connected.topic(name)
        read = topic.read_committed(begin, partition=partition, limit=limit) if committed else None
        records = topic.read(begin, partition=partition, limit=limit) if read is None else read.records
        found = [shown_record(topic, record) for record in records]
    waiting = () if read is None else read.waiting
    if json_output:
        more = None if read is None else {"next": read.following, "waiting": [asdict(each) for each in waiting]}
        print_json(found if more is None else {"records": found, **more})
        return
    for each in waiting:
        told = f"partition {each.partition} waits at offset {each.offset}: batch {each.batch} of {each.writer}"
        err().print(f"{told} is not recorded yet", markup=False, highlight=False)
    columns = ["partition", "offset", "time", "key", "value", "flaw"]
    rows = [
        [instant_text(row["timestamp_ms"]) if what == "time" else _as_written(row[what]) for what in columns]
        for row in found
    ]
    print_rows(columns, rows)


@topics_app.command()
def alter(
    name: str,
    *,
    partitions: Annotated[int, typer.Option(help="How many it is to have; never fewer than now.")],
    json_output: Json = False,
) -> None:
    """Give a topic more partitions: keys move to other ones, writers that run go on with those of before.

    Jobs that read it read the new ones from their beginnings. The topic of a job's generation is not altered while
    that writes: alter the topic that the job names, and its next generation has as many.
    """
    with cluster() as connected:
        view = connected.topic(name).alter(partitions=partitions)
    if json_output:
        print_json(view)
    elif view.growing_to is None:
        out().print(f"{name} has {view.partitions} partitions; writers that run use those that they began with")
    else:
        out().print(f"{name} gets {view.growing_to} partitions once the log answers: anew topic show {name}")


@topics_app.command()
def delete(
    name: str,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json_output: Json = False,
) -> None:
    """Delete a topic: its name at once; its records go after the grace."""
    if json_output and not yes:
        raise InvalidRequest("not_confirmed", "deleting asks first", expected="--yes")
    with cluster() as connected:
        if not yes:
            connected.controller.topic(name, facts=False)
            typer.confirm(f"Delete the topic {name} with all its records?", abort=True, err=True)
        answer = connected.controller.delete_topic(name)
    if json_output:
        print_json(answer)
    else:
        out().print(f"deleted {name}")


def _write_file(topic: Topic, writer: TopicWriter, path: str, key_field: str | None, *, as_json: bool) -> None:
    number = 0
    with lines_of(path) as lines:
        try:
            for line, text in lines:
                number = line
                _put(topic, writer, text, key_field)
        except InvalidRequest as error:
            raise bad_line(writer, number, error, as_json=as_json) from error
        except AnewError as error:
            raise stopped(writer, writer.accepted, error, as_json=as_json) from error


def _closed(writer: TopicWriter, *, as_json: bool) -> dict[str, Any]:
    """Write what waits; the position that was reached."""
    try:
        return writer.close().to_json()
    except AnewError as error:
        raise stopped(writer, writer.accepted, error, as_json=as_json) from error


def _put(topic: Topic, writer: TopicWriter, line: str | bytes, key_field: str | None) -> None:
    """Write one line.

    Raises:
        InvalidRequest: ``bad_json``, ``bad_line``, ``no_key``, ``value_misfit``.
    """
    row = json_value(line)
    if topic.view.format is TopicFormat.JSON:
        key = None if key_field is None else json_key(key_of(row, key_field))
        writer.put_bytes(key, (line.encode() if isinstance(line, str) else line).strip())
        return
    if not isinstance(row, dict) or row.keys() != {"key", "value"}:
        raise InvalidRequest("bad_line", "this is no record", found=row, expected='{"key": …, "value": …}')
    schemas = schemas_of(topic.view)
    if schemas is None:
        writer.put(_from_base64("key", row["key"]), _from_base64("value", row["value"]))
    else:
        key = datum(schemas[0], row["key"], "key")
        writer.put(key, None if row["value"] is None else datum(schemas[1], row["value"], "value"))


def shown_record(topic: Topic, record: TopicRecord) -> dict[str, Any]:
    """A record as JSON has it."""
    schemas, key, value = schemas_of(topic.view), record.key, record.value
    if schemas is not None and record.flaw is None:
        key, value = to_plain(schemas[0], key), None if value is None else to_plain(schemas[1], value)
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _as_base64(key),
        "value": _as_base64(value),
        "flaw": record.flaw,
        "written_ms": record.written_ms,
    }


def _at_least_one(number: int | None, option: str) -> int | None:
    if number is not None and number < 1:
        raise InvalidRequest("bad_option", f"{option} is at least 1", found=number, expected="1 or more, or left out")
    return number


def _kept(view: TopicView) -> str:
    limits = [
        *([] if view.retention_seconds is None else [f"{view.retention_seconds:g} s"]),
        *([] if view.retention_bytes is None else [f"{view.retention_bytes} bytes per partition"]),
    ]
    return ", ".join(limits) or "for ever"


def _partitions(view: TopicView) -> str:
    """How many there are; and how many others, where another program added some or the log is to add some."""
    told = str(view.partitions)
    if view.growing_to is not None:
        return f"{told}, to be {view.growing_to}"
    there = view.partitions if view.facts is None else len(view.facts.partitions)
    if there == view.partitions:
        return told
    return (
        f"{told}, and {there} in the log: anew writes into all after anew topic alter {view.name} --partitions {there}"
    )


def _as_base64(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _from_base64(what: str, text: Any) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidRequest("value_misfit", f"the {what} is not base64", found=text, expected="base64") from error


def _as_written(value: object) -> object:
    """A value as `anew topic write` takes it: what is no text, as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
