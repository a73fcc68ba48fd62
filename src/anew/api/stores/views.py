"""The controller's answers about stores: the shapes of the face."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, RootModel

from anew.api.errors import ErrorDetail
from anew.api.wire import Wire
from anew.core.feed import Position
from anew.core.stores.store import Frozen, RebuildKind, StoreConfig, VersionStatus


class PendingChange(Wire):
    """A setting that differs between the configuration and the version that serves."""

    setting: str
    now: Any
    wanted: Any


class ShownFrozen(Frozen):
    """The configuration of a version; ``partitioner_source`` is the hash of the source, null for the built-in one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    partitioner_source: str | None = None  # type: ignore[assignment]  # shown as a hash, which may be missing


class ShownConfig(StoreConfig):
    """All settings of a store; ``partitioner_source`` is the hash of the source, null for the built-in one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    partitioner_source: str | None = None  # type: ignore[assignment]  # shown as a hash, which may be missing


class VersionView(Wire):
    """A version in one fabric.

    Attributes:
        rows, bytes: Of its base; null until it is sealed.
        created_at: In ms.
        start: From where it applies each feed partition.
        lag_records, lag_seconds: Of the replica that is furthest behind; 0 where none reports.
    """

    number: int
    status: VersionStatus
    kind: RebuildKind
    source_version: int | None
    rows: int | None
    bytes: int | None
    config: ShownFrozen
    config_hash: str
    created_at: int
    rebuild: str
    error: str | None
    start: Position
    lag_records: int
    lag_seconds: float


class FabricView(Wire):
    """A store in one fabric.

    Attributes:
        current: The version that serves, 0 for none.
        versions: By number.
        lag_records, lag_seconds: Of the version that serves.
    """

    current: int
    versions: tuple[VersionView, ...]
    lag_records: int
    lag_seconds: float


class StoreView(Wire):
    """The ``store`` shape as lists have it.

    Attributes:
        value_schema: The newest one; ``value_schemas`` has all by their ids.
        pending: What the next version changes; ``stale`` says whether there is anything.
        paused: Why it is paused, null while it is not.
        notes: What the configuration costs, and what is held back.
        dead_letters: How many records no version applies.
    """

    name: str
    uid: str
    key_schema: str
    value_schema: str
    key_schema_id: int
    value_schema_id: int
    value_schemas: dict[str, str]
    config: ShownConfig
    pending: tuple[PendingChange, ...]
    stale: bool
    paused: str | None
    notes: tuple[str, ...]
    dead_letters: int
    fabrics: dict[str, FabricView]


class StoreSchedule(Wire):
    """What the schedule of a store says now.

    Attributes:
        schedule, when: The settings ``repush_schedule`` and ``repush_when``.
        due_ms: Since when a repush is due, null while none is.
        next_ms: When the schedule comes round again.
        reasons: Why a repush is due, or why not.
        failures: How many scheduled repushes have failed in a row.
        under_way: The request id of the one that is under way.
        held: Why scheduled repushes are held.
    """

    schedule: str
    when: str | None
    due_ms: int | None
    next_ms: int | None
    reasons: tuple[str, ...]
    failures: int
    under_way: str | None
    held: str | None


class StoreDetail(StoreView):
    """The ``store`` shape of one store: its versions include a page of those that were reclaimed.

    Attributes:
        schedule: Null without a schedule.
        next: The least number of the reclaimed versions that are shown, for the parameter ``after``; null: there are
            no others.
    """

    schedule: StoreSchedule | None = None
    next: str | None = None


class PositionAnswer(RootModel[Position]):
    """Feed → partition → the offset up to which every replica of the current version has applied it."""


class Deleted(Wire):
    """The name of what was deleted."""

    deleted: str


class Moved(Wire):
    """The versions that a fabric served before and serves from now on."""

    before: int
    after: int


class Held(Wire):
    """What nodes hold of a version that becomes current."""

    replicas_missing: int
    lag_records: int
    lag_seconds: float


class SwapAnswer(Wire):
    """What became of a swap or a rollback, fabric by fabric.

    Attributes:
        done: Fabric → what moved, or would move in a dry run.
        loaded: Fabric → what its nodes hold of the version.
        failed: Fabric → why it was left as it is.
    """

    store: str
    dry_run: bool
    done: dict[str, Moved]
    loaded: dict[str, Held]
    failed: dict[str, ErrorDetail]
