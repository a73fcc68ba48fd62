"""Answers of the controller for tests: whole and valid, with just what a test is about as arguments."""

from __future__ import annotations

from typing import Any

from anew.api.rebuilds import DriverView, RefreshView, StoreRebuildView, TableLedger, TableRebuildView
from anew.api.stores.views import FabricView, ShownConfig, StoreDetail
from anew.core.rebuild import Rebuild
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import Store
from anew.core.tables.rebuild import TableRebuild, refresh_view


def a_store_detail(store: Store, **changes: Any) -> StoreDetail:
    """The view of a store without versions."""
    view = StoreDetail(
        name=store.name,
        uid=store.uid,
        key_schema=store.key_schema,
        value_schema=store.schemas[store.newest_schema_id],
        key_schema_id=store.key_schema_id,
        value_schema_id=store.newest_schema_id,
        value_schemas={str(number): schema for number, schema in store.schemas.items()},
        config=ShownConfig.model_validate(store.config.model_dump() | {"partitioner_source": None}),
        pending=(),
        stale=False,
        paused=None,
        notes=(),
        dead_letters=0,
        fabrics={
            fabric: FabricView(current=0, versions=(), lag_records=0, lag_seconds=0.0) for fabric in store.fabrics
        },
    )
    return view.model_copy(update=changes)


def a_rebuild_view(rebuild: StoreRebuild, **changes: Any) -> StoreRebuildView:
    """The view of a rebuild of a store, heard just now."""
    view = StoreRebuildView(
        **_envelope(rebuild),
        kind=rebuild.kind,
        store=rebuild.store,
        version=rebuild.version,
        plan=rebuild.plan,
        ledger=None,
        fingerprint=None,
    )
    return view.model_copy(update=changes)


def a_table_rebuild_view(rebuild: TableRebuild, **changes: Any) -> TableRebuildView:
    """The view of a rebuild of a table, heard just now, that is done with no segment."""
    view = TableRebuildView(
        **_envelope(rebuild),
        kind=rebuild.kind,
        table=rebuild.table,
        plan=rebuild.plan,
        ledger=TableLedger(read=0, filtered=0, skipped=0, written=0),
        fingerprint=None,
        refresh=RefreshView.model_validate(refresh_view(rebuild, ())),
    )
    return view.model_copy(update=changes)


def _envelope(rebuild: Rebuild) -> dict[str, Any]:
    driver = DriverView(
        actor="ops",
        host="host",
        pid=1,
        log="",
        heard_at_ms=rebuild.created_at_ms,
        lease_until_ms=rebuild.lease_until_ms,
        silent_ms=None,
        troubles=(),
    )
    names = ("id", "status", "stage", "timings", "records_per_s", "error", "epoch", "progress")
    times = {"created_at_ms": rebuild.created_at_ms, "ended_at_ms": rebuild.ended_at_ms}
    return {**{name: getattr(rebuild, name) for name in names}, **times, "driver": driver}
