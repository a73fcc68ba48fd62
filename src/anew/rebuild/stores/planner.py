"""What: fetches a snapshot of the catalog and the logs, and lets the pure planner make a plan of it."""

from __future__ import annotations

from anew.api.http import ControllerClient
from anew.api.location import LogLocation
from anew.api.stores.routing import SnapshotView
from anew.core.errors import Failed, InvalidRequest, Refused
from anew.core.partitioners import is_custom
from anew.core.partitioning import check_partitioner, partitioner_of
from anew.core.stores.floors import ttl_impossible
from anew.core.stores.plan import Plan
from anew.core.stores.planning import (
    NO_OPTIONS,
    PushOptions,
    RepushRequest,
    Snapshot,
    plan_push,
    plan_repush,
    push_start_ms,
)
from anew.core.stores.properties import INPUT_BROKER, SOURCE_KAFKA, TTL_ENABLE, RepushProperties
from anew.deepstore.open import open_deep_store
from anew.log.open import cluster_of
from anew.rebuild.columns import task_of_files
from anew.rebuild.inputs import PushRequest, empty_input, find_input
from anew.rebuild.stores.damage import without_places
from anew.segments.base import open_base
from anew.segments.dictionary import read_dictionary
from anew.segments.manifest import parse_manifest


def make_repush_plan(controller: ControllerClient, store: str, request: RepushRequest) -> Plan:
    """The plan of a repush; nothing is made.

    Raises:
        As `anew.core.stores.planning.plan_repush`; what the controller says.
    """
    return plan_repush(_snapshot(controller.snapshot(store)), request)


def make_checked_repush_plan(controller: ControllerClient, store: str, request: RepushRequest) -> Plan:
    """`make_repush_plan`, with a look at what the job will depend on before anything is made.

    Raises:
        Refused: ``missing_dictionary`` (case E5), ``broker_of_another_cluster`` (case A9).
        Unreachable: The brokers to read from do not answer.
        InvalidRequest: ``bad_partitioner``: a partitioner of one's own fails on keys of the source.
    """
    plan = make_repush_plan(controller, store, request)
    ref = plan.source.manifest
    if ref is None:
        raise AssertionError("a repush's plan names its source's manifest")
    source = controller.cluster(plan.source.fabric)
    if plan.source.broker is not None:
        _check_broker(source.log, plan.source.broker)
    deep_store = open_deep_store(source.deep_store)
    manifest = parse_manifest(deep_store.get(ref.path), ref)
    try:
        read_dictionary(deep_store, manifest)
    except Failed as error:
        raise Refused(error.code, error.message, found=error.found, expected=error.expected, hint=error.hint) from error
    if is_custom(plan.target.config.partitioner):
        with open_base(source.deep_store, source.log) as base:
            readable = without_places(manifest, request.from_replicas)
            check_partitioner(partitioner_of(plan.target.config), base.sample_keys(readable))
    return plan


def _check_broker(fabric: LogLocation, broker: str) -> None:
    own, found = cluster_of(fabric), cluster_of(fabric.through(broker))
    if own != found:
        raise Refused(
            "broker_of_another_cluster",
            f"{broker} does not belong to the fabric that is read",
            found=f"cluster {found}",
            expected=f"cluster {own}",
            hint=f"name another listener of the same cluster, or leave {INPUT_BROKER} out",
        )


def make_push_plan(
    controller: ControllerClient,
    store: str,
    request: PushRequest,
    properties: RepushProperties,
    options: PushOptions = NO_OPTIONS,
) -> Plan:
    """The plan of a full push; nothing is made.

    Raises:
        InvalidRequest: ``contradiction``: files and ``source.kafka = true``; what the input's names and header show:
            ``missing_column``, ``duplicate_column``, ``wrong_key_columns``, ``wrong_value_columns``,
            ``unreadable_input``, ``empty_input``, ``bad_option``.
        Refused: ``ttl_impossible`` (case F4), ``undying_push`` (case F9).
    """
    if properties.source_kafka:
        raise InvalidRequest(
            "contradiction",
            "a push reads files or the store's own data, not both",
            found=f"{SOURCE_KAFKA} = true and {', '.join(request.inputs)}",
            expected="one of the two",
            hint=f"anew repush {store}, or leave {SOURCE_KAFKA} out",
        )
    if properties.ttl:
        raise ttl_impossible("a full push", f"push first, then: anew repush {store} -D {TTL_ENABLE}=true")
    first = controller.snapshot(store)
    found = find_input(request) if request.inputs else empty_input(request, first.now_ms)
    if found.push.paths:
        # What the input's header shows is refused before anything is made.
        task_of_files(first.store, found.push, {}, first.now_ms)
    at_ms = push_start_ms(first.store, found.push.as_of_ms, first.now_ms)
    view = controller.snapshot(store, at_ms)
    return plan_push(_snapshot(view), found.push, found.bytes, view.at_time, options)


def _snapshot(view: SnapshotView) -> Snapshot:
    return Snapshot(
        store=view.store,
        ends=view.ends,
        unreachable=view.unreachable,
        base_files=view.base_files,
        pace=view.pace,
        now_ms=view.now_ms,
        read_until_ms=view.read_until_ms,
        to_come_ms=view.to_come_ms,
    )
