"""``store …``: making, changing, looking at and deleting stores."""

from __future__ import annotations

import json
import threading
import time
from typing import Annotated, Any

import typer

from anew.api.stores.requests import CreateStore, UpdateStore
from anew.api.stores.views import StoreView
from anew.cli.options import RequestId, Settings
from anew.cli.output import Json, out, print_error, print_json, print_table, shape
from anew.cli.session import cluster, pairs, schema_text
from anew.client.verdict import DEFAULT_TIMEOUT_SECONDS, ReplicaVerdict, Verification
from anew.core.errors import AnewError, Failed, InvalidRequest
from anew.core.feed import PositionMap
from anew.core.settings import Takes
from anew.core.stores.names import dead_letter_topic, parse_version
from anew.core.stores.planning import RepushRequest
from anew.core.stores.store import takes_effect
from anew.runtime.connect import Cluster
from anew.runtime.partitioners import source_for

stores_app = typer.Typer(help="Stores: named key-value datasets.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(stores_app, name="store")


@stores_app.command()
def create(
    name: str,
    *,
    key_schema: Annotated[str, typer.Option(help="Avro: JSON, @file.avsc, or a primitive's name.")],
    value_schema: Annotated[str, typer.Option(help="Avro: JSON, @file.avsc, or a primitive's name.")],
    settings: Settings = None,
    request_id: RequestId = None,
    json_output: Json = False,
) -> None:
    """Make a store."""
    given = pairs(settings, "--set")
    request = CreateStore(
        name=name,
        key_schema=schema_text(key_schema),
        value_schema=schema_text(value_schema),
        settings=dict(given),
        partitioner_source=source_for(given),
        request_id=request_id,
    )
    with cluster() as connected:
        view = connected.controller.create_store(request)
    if json_output:
        print_json(view)
    else:
        out().print(f"created {name}; next: anew push {name} FILE --key …, or anew job submit … --output store:{name}")


@stores_app.command()
def update(
    name: str,
    *,
    value_schema: Annotated[str | None, typer.Option(help="A new value schema that reads all older ones.")] = None,
    settings: Settings = None,
    json_output: Json = False,
) -> None:
    """Change a store: live settings act at once, the others with the next version (it says which)."""
    changes = pairs(settings, "--set")
    if not changes and value_schema is None:
        raise InvalidRequest("nothing_to_change", "no change was named", expected="--set k=v or --value-schema SCHEMA")
    schema = None if value_schema is None else schema_text(value_schema)
    with cluster() as connected:
        request = UpdateStore(settings=dict(changes), value_schema=schema, partitioner_source=source_for(changes))
        view = connected.controller.update_store(name, request)
        cost = _cost(connected, name) if view.pending else None
    if json_output:
        print_json({**shape(view), "repush": cost})
        return
    for setting in changes:
        if takes_effect(setting) is Takes.LIVE:
            out().print(f"{setting} = {getattr(view.config, setting)}, at once")
    if schema is not None:
        out().print("the value schema is the newest now")
    _print_pending(view, cost)


@stores_app.command()
def show(
    name: str,
    *,
    version: Annotated[str | None, typer.Option(help="Only this version: a number or NAME_v7.")] = None,
    json_output: Json = False,
) -> None:
    """Configuration, versions per fabric, pending changes and what a repush would cost, lag."""
    number = None if version is None else parse_version(version, name)
    with cluster() as connected:
        view = connected.controller.store(name, number)
        cost = _cost(connected, name) if view.pending else None
    if json_output:
        print_json({**shape(view), "repush": cost})
        return
    print_table(["setting", "value"], list(shape(view.config).items()))
    for fabric, found in view.fabrics.items():
        out().print(f"\n{fabric}: version {found.current} serves, {found.lag_records} records behind")
        rows = [(v.number, v.status, v.kind, v.rows, v.bytes, v.source_version, v.error) for v in found.versions]
        print_table(["version", "status", "made by", "rows", "bytes", "from", "note"], rows)
    for note in view.notes:
        out().print(note, markup=False)
    if view.paused is not None:
        out().print(f"paused: {view.paused}; to go on: anew unpause --store {name}", markup=False)
    if view.schedule is not None:
        out().print(f"scheduled {view.schedule.schedule}: {'; '.join(view.schedule.reasons)}", markup=False)
    if view.dead_letters:
        out().print(f"{view.dead_letters} dead letters, which no version applies: topic {dead_letter_topic(name)}")
    _print_pending(view, cost)


@stores_app.command("list")
def list_stores(*, json_output: Json = False) -> None:
    """All stores."""
    with cluster() as connected:
        found = connected.controller.stores()
    if json_output:
        print_json(found)
        return
    rows = [
        (
            s.name,
            fabric,
            f.current,
            "hybrid" if s.config.hybrid else "batch",
            f.lag_records,
            len(s.pending),
        )
        for s in found
        for fabric, f in s.fabrics.items()
    ]
    print_table(["store", "fabric", "version", "kind", "lag", "pending"], rows)


@stores_app.command()
def delete(
    name: str,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json_output: Json = False,
) -> None:
    """Delete a store: at once for readers and writers; its files and topics go after the grace."""
    if json_output and not yes:
        raise InvalidRequest("not_confirmed", "deleting asks first", expected="--yes")
    with cluster() as connected:
        if not yes:
            connected.controller.store(name)
            typer.confirm(f"Delete the store {name} with all its versions?", abort=True, err=True)
        connected.controller.delete_store(name)
    if json_output:
        print_json({"deleted": name})
    else:
        out().print(f"deleted {name}")


@stores_app.command()
def wait(
    name: str,
    *,
    position: Annotated[str | None, typer.Option(help="JSON, as `anew write` printed it.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds.")] = 60.0,
    json_output: Json = False,
) -> None:
    """Wait until the current version applied all writes up to a position (default: up to now)."""
    with cluster() as connected:
        target = _position(position) if position is not None else connected.controller.snapshot(name).ends
        deadline, pause = time.monotonic() + timeout, threading.Event()
        while not connected.controller.position(name).reaches(target):
            if time.monotonic() > deadline:
                raise Failed(
                    "wait_timeout",
                    f"{name} did not reach the position within {timeout} s",
                    found=shape(connected.controller.store(name))["fabrics"],
                    expected=target.to_json(),
                    hint="anew status",
                )
            pause.wait(0.1)
    if json_output:
        print_json({"store": name, "reached": target.to_json()})
    else:
        out().print(f"{name} is up to date")


@stores_app.command()
def verify(
    name: str,
    *,
    timeout: Annotated[float, typer.Option(help="Seconds that nodes may take.")] = DEFAULT_TIMEOUT_SECONDS,
    json_output: Json = False,
) -> int:
    """Compare the replicas of the current version with each other and with base and feeds; name what differs."""
    with cluster() as connected:
        found = connected.verify(name, timeout_seconds=timeout)
    if json_output:
        print_json(found.to_json())
    else:
        _print_verification(found)
        if found.error is not None:
            print_error(found.error, as_json=False)
    return 0 if found.error is None else found.error.exit_code


def _print_verification(found: Verification) -> None:
    columns = ["partition", "sub", "held by", "rows", "tombstones", "fingerprint", "equal"]
    rows: list[tuple[Any, ...]] = []
    for expected in found.expected:
        place = (expected.partition, expected.sub_partition)
        rows.append((*place, "base ⊕ feeds", expected.rows, expected.tombstones, expected.fingerprint, ""))
        rows += [
            (*place, replica.node, replica.rows, replica.tombstones, replica.fingerprint, _said(replica))
            for replica in found.replicas
            if (replica.partition, replica.sub_partition) == place
        ]
    print_table(columns, rows)
    if found.differences:
        out().print(f"\n{found.difference_count} keys differ; the first {len(found.differences)}:")
        named = [(d.node, d.partition, d.sub_partition, json.dumps(d.key), d.kind) for d in found.differences]
        print_table(["node", "partition", "sub", "key", "what"], named)


def _said(replica: ReplicaVerdict) -> str:
    if replica.equal is None:
        return str(replica.error)
    return "yes" if replica.equal else "no"


def _position(text: str) -> PositionMap:
    try:
        return PositionMap.from_json(json.loads(text))
    except (ValueError, TypeError) as error:
        raise InvalidRequest(
            "bad_position", "this is not a position", found=text, expected='{"<feed>": {"<partition>": <offset>}}'
        ) from error


def _cost(connected: Cluster, name: str) -> dict[str, Any] | None:
    """What a repush would cost now, None when none can be planned."""
    from anew.rebuild.stores.planner import make_repush_plan

    try:
        plan = make_repush_plan(connected.controller, name, RepushRequest())
    except AnewError:
        return None
    return {
        "plan": plan.id,
        "why": list(plan.why),
        "splits": {"base_files": plan.splits.base_files, "log": plan.splits.log},
        "estimate": plan.estimate.model_dump(),
    }


def _print_pending(view: StoreView, cost: dict[str, Any] | None) -> None:
    if not view.pending:
        return
    out().print("\npending until the next version:")
    print_table(["setting", "now", "wanted"], [(p.setting, p.now, p.wanted) for p in view.pending])
    if cost is not None:
        estimate = cost["estimate"]
        seconds = "" if estimate["seconds"] is None else f", about {estimate['seconds']} s"
        out().print(
            f"a repush would read {estimate['records']} records ({estimate['bytes']} bytes){seconds}: "
            f"anew repush {view.name}"
        )
