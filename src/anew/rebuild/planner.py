"""What: fetches a snapshot of the catalog and the logs, and lets the pure planner make a plan of it."""

from __future__ import annotations

from anew.api.http import ControllerClient
from anew.api.models import SnapshotView
from anew.core.errors import InvalidRequest
from anew.core.plan import Plan
from anew.core.planning import RepushRequest, Snapshot, plan_push, plan_repush, push_start_ms
from anew.core.properties import SOURCE_KAFKA, RepushProperties
from anew.rebuild.columns import encode_task
from anew.rebuild.header import header_of
from anew.rebuild.inputs import PushRequest, find_input


def make_repush_plan(controller: ControllerClient, store: str, request: RepushRequest) -> Plan:
    """The plan of a repush; nothing is made.

    Raises:
        As `anew.core.planning.plan_repush`; what the controller says.
    """
    return plan_repush(_snapshot(controller.snapshot(store)), request)


def make_push_plan(
    controller: ControllerClient, store: str, request: PushRequest, properties: RepushProperties
) -> Plan:
    """The plan of a full push; nothing is made.

    Raises:
        InvalidRequest: ``contradiction``: files and ``source.kafka = true``; what the input's names and header show:
            ``missing_column``, ``wrong_key_columns``, ``wrong_value_columns``, ``unreadable_input``, ``empty_input``.
    """
    if properties.source_kafka:
        raise InvalidRequest(
            "contradiction",
            "a push reads files or the store's own data, not both",
            found=f"{SOURCE_KAFKA} = true and {', '.join(request.inputs)}",
            expected="one of the two",
            hint=f"anew repush {store}, or leave {SOURCE_KAFKA} out",
        )
    found = find_input(request)
    first = controller.snapshot(store)
    # What the input's header shows is refused before anything is made.
    encode_task(first.store, found.push, {}, header_of(found.push))
    at_ms = push_start_ms(first.store, found.push.as_of_ms, first.now_ms)
    view = controller.snapshot(store, at_ms)
    return plan_push(_snapshot(view), found.push, found.bytes, view.at_time)


def _snapshot(view: SnapshotView) -> Snapshot:
    return Snapshot(
        store=view.store,
        ends=view.ends,
        unreachable=view.unreachable,
        base_files=view.base_files,
        records_per_second=view.records_per_second,
        now_ms=view.now_ms,
    )
