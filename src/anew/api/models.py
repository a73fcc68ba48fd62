"""The wire models of controller and nodes. Fields are only ever added."""

from __future__ import annotations

from pydantic import Field, SerializeAsAny
from typing_extensions import TypedDict

from anew.api.location import LogLocation
from anew.api.rebuilds import AnyRebuildView
from anew.api.stores.replicas import DeadLetter, DesiredStore, ReplicaReport, UnknownSchema
from anew.api.stores.views import StoreView
from anew.api.tables.segments import DesiredTable, SegmentReport
from anew.api.tables.views import TableView
from anew.api.wire import Request, Wire, example
from anew.core.plan import PlanValue
from anew.core.rebuild import DriverTrouble, Progress, Stage

# -- upkeep ----------------------------------------------------------------------------------------------------------


class Pause(Request):
    """Pause a store, or everything for None, or let it go on."""

    model_config = example(store="flights")

    store: str | None = None


class Collect(Request):
    """Collect what nobody needs, of a store or of all for None."""

    model_config = example(store="flights", dry_run=True)

    store: str | None = None
    dry_run: bool = False


class RestoreCatalog(Request):
    """Make a lost catalog again from what lies in the deep stores; the same ``request_id`` is the same restore."""

    model_config = example(dry_run=True, request_id="restore-1")

    dry_run: bool = False
    request_id: str | None = None


class DrainNode(Request):
    """Let a node's replicas move to others, or (``undo``) let it be used again.

    Attributes:
        force: Also where the other nodes are too few to take them all, so that redundancy is lost.
    """

    model_config = example(undo=False, force=False)

    undo: bool = False
    force: bool = False


# -- rebuilds --------------------------------------------------------------------------------------------------------


class BeginRebuild(Request):
    """Begin what a plan says, of whatever kind; the same ``request_id`` with the same plan is the same rebuild.

    Attributes:
        why: What people say of it, for the history.
    """

    plan: SerializeAsAny[PlanValue]
    request_id: str
    driver: str = ""
    why: str | None = Field(default=None, max_length=1_000)


class ResumeRebuild(Request):
    """Take a rebuild over whose driver is gone."""

    model_config = example(driver="ops@host:4711")

    driver: str = ""


class Heartbeat(Request):
    """A driver's sign of life; its stage only moves forward."""

    model_config = example(
        epoch=1, stage="build", progress={"done": 3, "total": 24, "unit": "tasks", "records": 1_500_000}
    )

    epoch: int
    stage: Stage
    progress: Progress = Progress()
    troubles: tuple[DriverTrouble, ...] = ()


class HeartbeatAnswer(Wire):
    """Whether the driver is to go on.

    Attributes:
        kill_asked: The rebuild has ended.
        stop_asked: The rebuild goes on later: this driver is to end after what it is at.
    """

    kill_asked: bool
    stop_asked: bool = False
    lease_until_ms: int


class FinishRebuild(Request):
    """The driver is done: with every segment of its plan, or whatever else its rebuild is of."""

    model_config = example(epoch=1, records_per_s=900_000.0)

    epoch: int
    records_per_s: float | None = None


class EndRebuild(Request):
    """The driver gives up (``error``), or somebody asks for the rebuild to be killed (error None)."""

    model_config = example(epoch=1, error="the input file has no column key")

    epoch: int | None = None
    error: str | None = None


# -- nodes -----------------------------------------------------------------------------------------------------------


class LoopTrouble(Wire):
    """A loop of a process that does not get on; see `anew.loops.guarded.Trouble`."""

    loop: str
    error: str
    since_ms: int
    failures: int


class NodeFault(Wire):
    """Something that is wrong with a node as a whole, and what a person can do about it."""

    code: str
    what: str
    since_ms: int
    hint: str


class NodeReport(Wire):
    """What a node holds: the whole of it each time."""

    node: str
    fabric: str
    url: str
    started_at_ms: int
    replicas: tuple[ReplicaReport, ...]
    dead_letters: tuple[DeadLetter, ...] = ()
    unknown_schemas: tuple[UnknownSchema, ...] = ()
    segments: tuple[SegmentReport, ...] = ()
    loops: tuple[LoopTrouble, ...] = ()
    faults: tuple[NodeFault, ...] = ()


class DesiredState(Wire):
    """What a node should hold; what is not in it is to be removed. ``revision`` never goes back."""

    revision: int
    fabric: str
    log: LogLocation
    deep_store: str
    stores: tuple[DesiredStore, ...]
    tables: tuple[DesiredTable, ...] = ()


class NodeView(Wire):
    """A node as the controller sees it."""

    id: str
    fabric: str
    url: str
    alive: bool
    last_seen_ms: int
    replicas: int
    states: dict[str, int]
    drained: bool = False


# -- status ----------------------------------------------------------------------------------------------------------


class Problem(Wire):
    """Something unhealthy: what, since when, and the command that comes next."""

    what: str
    since_ms: int | None
    hint: str


class ClusterInfo(Wire):
    """Where the parts of a fabric are; drivers and clients open log and deep store themselves."""

    fabric: str
    log: LogLocation
    deep_store: str
    release: str


class ControllerState(TypedDict):
    """The controller that answers, and the catalog's revision that it has seen."""

    release: str
    revision: int


class StatusView(Wire):
    """The answer of ``anew status``; ``notes`` are what somebody decided, or what waits, and nothing unhealthy."""

    healthy: bool
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...] = ()
    controller: ControllerState
    nodes: tuple[NodeView, ...]
    stores: tuple[StoreView, ...]
    tables: tuple[TableView, ...] = ()
    rebuilds: tuple[AnyRebuildView, ...]
