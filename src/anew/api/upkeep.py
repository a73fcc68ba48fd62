"""The controller's answers about upkeep and nodes: pausing, collecting, restoring, draining, and the history."""

from __future__ import annotations

from pydantic import AliasChoices, Field, JsonValue

from anew.api.wire import Wire


class Paused(Wire):
    """A store that is paused, or everything for null, and why."""

    store: str | None
    paused: str | None


class Unpaused(Paused):
    """What goes on: ``paused`` says why the cluster does not, ``stores`` which stores do not go on with it, and why."""

    stores: dict[str, str]


class CollectedItem(Wire):
    """Something that goes or stays.

    Attributes:
        store: Whose it is; empty: of the cluster.
        what: ``version``, ``files``, ``topic`` or ``log``; or rows of the catalog: ``history``, ``requests``,
            ``past versions``, ``dead letters``, ``segments``, ``deleted store`` or ``deleted table``.
        name: Which one; of rows, how many.
        act: ``retire``, ``reclaim`` or ``forget`` now, ``wait`` for its time, or ``keep``.
        why: The reason.
        not_before_ms: When its grace ends, where it waits for that.
        count: How many rows, of rows.
    """

    store: str
    what: str
    name: str
    act: str
    why: str
    not_before_ms: int | None = None
    count: int | None = None


class Collected(Wire):
    """What goes and what stays; ``skipped``: store → why it was left alone."""

    dry_run: bool
    items: tuple[CollectedItem, ...]
    skipped: dict[str, str]


class ReclaimView(Wire):
    """Something outside of the catalog that waits to be removed, and why; ``not_before_ms`` is the end of its grace."""

    id: str
    kind: str
    fabric: str
    not_before_ms: int
    reason: str


class HistoryLine(Wire):
    """Who did what when.

    Attributes:
        id: That of the operation: the same operation is done once.
        subject: The name of what it was done to, or ``cluster``.
        detail: What else there is to say, depending on ``what``.
    """

    id: str
    at_ms: int
    actor: str
    what: str
    subject: str
    detail: dict[str, JsonValue]


class EventLine(HistoryLine):
    """A line of history, and the revision that the catalog had with it."""

    revision: int


class Events(Wire):
    """What was done since a revision of the catalog: the one cursor that everybody waits on.

    Attributes:
        items: The oldest first, at most ``limit`` of them.
        next: The revision to ask after next; below the one that was asked about where the catalog went back.
        oldest: The revision of the oldest line that is kept, 0 without one: of what came before nobody knows any more.
    """

    items: tuple[EventLine, ...]
    next: int
    oldest: int


class DrainAnswer(Wire):
    """A node that is drained, or used again.

    Attributes:
        holds: What it is still to hold: ``flights_v7/3``, of tables ``trips/slot 3``.
        was_removed: Whether it had been removed, and is known again.
    """

    node: str
    drained: bool
    holds: tuple[str, ...]
    was_removed: bool


class NodeRemoved(Wire):
    """A node that is forgotten."""

    node: str
    removed: bool


class RestoredVersion(Wire):
    """A version of a restored store; ``statuses``: fabric → status."""

    number: int
    statuses: dict[str, str]
    rows: int | None


class RestoredStore(Wire):
    """A store that was made again.

    Attributes:
        from: ``record`` (with what manifests say beyond it) or ``manifests`` alone.
        current: Fabric → the version that serves, 0 for none.
        notes: What a person should know, and may have to decide.
    """

    name: str
    uid: str
    source: str = Field(validation_alias=AliasChoices("from", "source"), serialization_alias="from")
    current: dict[str, int]
    next_version: int
    deleted: bool
    versions: tuple[RestoredVersion, ...]
    notes: tuple[str, ...]


class RestoredTable(Wire):
    """A table that was made again."""

    name: str
    uid: str
    deleted: bool
    config_hash: str
    segments: int
    rows: int
    bytes: int
    notes: tuple[str, ...]


class RestoredTopic(Wire):
    """A topic that was made again."""

    name: str
    uid: str
    deleted: bool
    notes: tuple[str, ...]


class RestoredJob(Wire):
    """A job that was made again; ``generations``: number → status."""

    name: str
    uid: str
    deleted: bool
    live: int | None
    next_generation: int
    generations: dict[int, str]
    notes: tuple[str, ...]


class RestoredCatalog(Wire):
    """What a restore made, or would make in a dry run; ``notes`` are of what cannot be restored.

    Attributes:
        empty: Whether the catalog holds nothing: otherwise a restore is refused.
    """

    dry_run: bool
    empty: bool
    stores: tuple[RestoredStore, ...]
    tables: tuple[RestoredTable, ...]
    topics: tuple[RestoredTopic, ...] = ()
    jobs: tuple[RestoredJob, ...] = ()
    notes: tuple[str, ...]


class Alive(Wire):
    """The process is there."""

    status: str


class Ready(Wire):
    """The catalog answers, at this revision."""

    status: str
    revision: int
