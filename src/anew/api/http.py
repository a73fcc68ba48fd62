"""The controller's HTTP face from the outside: one method per route."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel

from anew.api.calling import Call, parsed, path_of
from anew.api.jobs.http import JobCalls
from anew.api.models import (
    BeginRebuild,
    ClusterInfo,
    Collect,
    DesiredState,
    DrainNode,
    EndRebuild,
    FinishRebuild,
    Heartbeat,
    HeartbeatAnswer,
    NodeReport,
    NodeView,
    Pause,
    RestoreCatalog,
    ResumeRebuild,
    StatusView,
)
from anew.api.pages import MAX_ITEMS, Page
from anew.api.rebuilds import AnyRebuildView, DriverStart, FailureSeen, RebuildView, StoreRebuildView, TableRebuildView
from anew.api.stores.requests import CreateStore, HoldVersion, RollBack, Seal, Swap, UpdateStore
from anew.api.stores.routing import Routing, SnapshotView
from anew.api.stores.views import Deleted, PositionAnswer, StoreDetail, StoreView, SwapAnswer
from anew.api.tables.requests import (
    CommitLoad,
    CommitSegment,
    CreateTable,
    DropSegments,
    PlanRefresh,
    ReadSegments,
    ReloadTable,
    TableSnapshot,
    UpdateTable,
)
from anew.api.tables.views import SegmentView, TableView
from anew.api.topics import AlterTopic, CreateTopic, TopicView
from anew.api.upkeep import (
    Alive,
    Collected,
    DrainAnswer,
    Events,
    HistoryLine,
    NodeRemoved,
    Paused,
    ReclaimView,
    RestoredCatalog,
    Unpaused,
)
from anew.core.feed import PositionMap
from anew.core.rebuild import Stage
from anew.core.tables.config import SegmentConfig
from anew.core.tables.plan import TablePlan
from anew.core.tables.rebuild import Done
from anew.core.tables.segment import Segment

_SIGN_OF_LIFE_SECONDS = 3.0
"""A lease may be as short as 5 s; one answer that is lost must not end it."""

_NO_CONTENT = 204
_Answer = TypeVar("_Answer")
_Item = TypeVar("_Item")
_Start = TypeVar("_Start", bound=DriverStart[Any, Any])


class ControllerClient(JobCalls):
    """A connection to a controller, safe to use from several threads.

    Errors common to all methods: what the controller says, as the same class of `anew.core.errors`; `Unreachable` code
    ``controller_unreachable``: nothing was changed; `OutcomeUnknown` code ``answer_lost`` from methods that change
    something: the hint names the command that tells; `Failed` code ``unexpected_answer``.
    """

    # -- stores ------------------------------------------------------------------------------------------------------

    def create_store(self, request: CreateStore) -> StoreDetail:
        """Make a store; its view."""
        return self._as(StoreDetail, Call("POST", "/v1/stores", request, look_up=f"anew store show {request.name}"))

    def stores(self) -> list[StoreView]:
        """The views of all stores, by name."""
        found = self._all(Page[StoreView], Call("GET", "/v1/stores"))
        return sorted(found, key=lambda store: store.name)

    def store(self, name: str, version: int | None = None) -> StoreDetail:
        """The view of one store."""
        return self._as(StoreDetail, Call("GET", path_of("stores", name), query={"version": version}))

    def update_store(self, name: str, request: UpdateStore) -> StoreDetail:
        """Change settings or add a value schema; the store's view."""
        return self._as(StoreDetail, Call("PATCH", path_of("stores", name), request, look_up=f"anew store show {name}"))

    def delete_store(self, name: str) -> Deleted:
        """Delete a store."""
        return self._as(Deleted, Call("DELETE", path_of("stores", name), look_up="anew store list"))

    def snapshot(self, name: str, at_ms: int | None = None) -> SnapshotView:
        """What a planner needs, with the feeds' offsets at a time."""
        return self._as(SnapshotView, Call("GET", path_of("stores", name, "snapshot"), query={"at_ms": at_ms}))

    def routing(self, name: str, fabric: str | None = None) -> Routing:
        """What a client needs to reach a store."""
        return self._as(Routing, Call("GET", path_of("stores", name, "routing"), query={"fabric": fabric}))

    def position(self, name: str, fabric: str | None = None) -> PositionMap:
        """Up to where every replica of the current version has applied each feed partition."""
        call = Call("GET", path_of("stores", name, "position"), query={"fabric": fabric})
        return self._as(PositionAnswer, call).root

    def hold_version(self, name: str, request: HoldVersion) -> None:
        """Keep a version for a long read; asking again is harmless."""
        self._send(Call("POST", path_of("stores", name, "hold"), request))

    def swap(self, name: str, request: Swap) -> SwapAnswer:
        """Make a version current."""
        return self._as(
            SwapAnswer, Call("POST", path_of("stores", name, "swap"), request, look_up=f"anew store show {name}")
        )

    def roll_back(self, name: str, request: RollBack) -> SwapAnswer:
        """Go back to a version."""
        return self._as(
            SwapAnswer, Call("POST", path_of("stores", name, "rollback"), request, look_up=f"anew store show {name}")
        )

    # -- tables ------------------------------------------------------------------------------------------------------

    def create_table(self, request: CreateTable) -> TableView:
        """Make a table; its view."""
        return self._as(TableView, Call("POST", "/v1/tables", request, look_up=f"anew table show {request.name}"))

    def tables(self) -> list[TableView]:
        """The views of all tables, by name."""
        found = self._all(Page[TableView], Call("GET", "/v1/tables"))
        return sorted(found, key=lambda table: table.name)

    def table(self, name: str) -> TableView:
        """The view of one table."""
        return self._as(TableView, Call("GET", path_of("tables", name)))

    def update_table(self, name: str, request: UpdateTable) -> TableView:
        """Change columns or settings; the table's view."""
        return self._as(TableView, Call("PATCH", path_of("tables", name), request, look_up=f"anew table show {name}"))

    def delete_table(self, name: str) -> Deleted:
        """Delete a table."""
        return self._as(Deleted, Call("DELETE", path_of("tables", name), look_up="anew table list"))

    def segments(self, name: str, *, stale: bool = False) -> list[SegmentView]:
        """The segments of a table by name, why they are stale, and who serves them."""
        call = Call("GET", path_of("tables", name, "segments"), query={"stale": stale})
        return sorted(self._all(Page[SegmentView], call), key=lambda segment: segment.name)

    def drop_segments(self, name: str, request: DropSegments) -> TableView:
        """Take segments out of a table; its view."""
        call = Call("POST", path_of("tables", name, "segments:delete"), request, look_up=f"anew table segments {name}")
        return self._as(TableView, call)

    def table_snapshot(self, name: str, *, segments: bool = False) -> TableSnapshot:
        """A table as planners and readers need it."""
        return self._as(TableSnapshot, Call("GET", path_of("tables", name, "snapshot"), query={"segments": segments}))

    def reload_table(self, name: str, request: ReloadTable) -> TableView:
        """Let nodes make their copies again; the table's view."""
        return self._as(
            TableView, Call("POST", path_of("tables", name, "reload"), request, look_up=f"anew table segments {name}")
        )

    def plan_refresh(self, name: str, request: PlanRefresh) -> TablePlan:
        """What a refresh would do now."""
        return self._as(TablePlan, Call("POST", path_of("tables", name, "refresh:plan"), request))

    def config(self, config_hash: str) -> SegmentConfig:
        """The configuration of a hash."""
        return self._as(SegmentConfig, Call("GET", path_of("table-configs", config_hash)))

    def read_segments(self, rebuild_id: str, request: ReadSegments) -> list[Segment]:
        """What is there now of some segments of a rebuild's table."""
        return self._as(list[Segment], self._of_rebuild(rebuild_id, "segments:read", request))

    def commit_segment(self, rebuild_id: str, request: CommitSegment) -> Done:
        """Say what became of a segment; repeating the same is the same."""
        return self._as(Done, self._of_rebuild(rebuild_id, "segments:commit", request))

    def commit_load(self, rebuild_id: str, request: CommitLoad) -> TableRebuildView:
        """Make all segments of a load visible; repeating the same is the same."""
        return self._as(TableRebuildView, self._of_rebuild(rebuild_id, "load", request))

    def finish_rebuild(self, rebuild_id: str, request: FinishRebuild) -> RebuildView:
        """End a refresh that is done with its segments; repeating the same is the same."""
        return self._rebuild(self._of_rebuild(rebuild_id, "finish", request))

    # -- topics ------------------------------------------------------------------------------------------------------

    def create_topic(self, request: CreateTopic) -> TopicView:
        """Make a topic; its view."""
        return self._as(TopicView, Call("POST", "/v1/topics", request, look_up=f"anew topic show {request.name}"))

    def topics(self) -> list[TopicView]:
        """The views of all topics, by name."""
        return sorted(self._all(Page[TopicView], Call("GET", "/v1/topics")), key=lambda topic: topic.name)

    def topic(self, name: str, *, facts: bool = True) -> TopicView:
        """The view of one topic; without ``facts`` its log is not asked."""
        return self._as(TopicView, Call("GET", path_of("topics", name), query={"facts": facts}))

    def alter_topic(self, name: str, request: AlterTopic) -> TopicView:
        """Give a topic more partitions; its view."""
        return self._as(TopicView, Call("PATCH", path_of("topics", name), request, look_up=f"anew topic show {name}"))

    def delete_topic(self, name: str) -> Deleted:
        """Delete a topic."""
        return self._as(Deleted, Call("DELETE", path_of("topics", name), look_up="anew topic list"))

    # -- rebuilds ----------------------------------------------------------------------------------------------------

    def begin_rebuild(self, request: BeginRebuild, of: type[_Start]) -> _Start:
        """Begin what a plan says; what its driver works with, of the class that the plan's kind has."""
        return self._as(of, Call("POST", "/v1/rebuilds", request, look_up="anew rebuild list"))

    def begun_by(self, request_id: str) -> list[RebuildView]:
        """The view of the rebuild that a request began; none where it began none."""
        call = Call("GET", "/v1/rebuilds", query={"request_id": request_id})
        return list(self._as(Page[AnyRebuildView], call).items)

    def rebuilds(self, *, running: bool = False, **of: str | None) -> list[RebuildView]:
        """The views of rebuilds, newest first; of one subject where it is named by its kind: ``store="flights"``."""
        return list(self._all(Page[AnyRebuildView], Call("GET", "/v1/rebuilds", query={**of, "running": running})))

    def rebuild(self, rebuild_id: str, *, after: Stage | None = None, wait_seconds: float = 0.0) -> RebuildView:
        """The view of one rebuild, as soon as it is in another stage than ``after`` or has ended, or the wait is over.

        A wait is of 30 s at most.
        """
        query = {} if after is None else {"after": after.value, "wait_seconds": wait_seconds}
        return self._rebuild(Call("GET", path_of("rebuilds", rebuild_id), query=query, extra_seconds=wait_seconds))

    def heartbeat(self, rebuild_id: str, request: Heartbeat) -> HeartbeatAnswer:
        """A driver's sign of life; repeating it is harmless. Several fit into the shortest lease."""
        call = self._of_rebuild(rebuild_id, "heartbeat", request)
        return self._as(HeartbeatAnswer, replace(call, most_seconds=_SIGN_OF_LIFE_SECONDS))

    def seal(self, rebuild_id: str, request: Seal) -> StoreRebuildView:
        """Commit the base of a version; the rebuild's view. Repeating the same is the same."""
        return self._as(StoreRebuildView, self._of_rebuild(rebuild_id, "seal", request))

    def fail_rebuild(self, rebuild_id: str, request: EndRebuild) -> RebuildView:
        """The driver gives up; the rebuild's view."""
        return self._rebuild(self._of_rebuild(rebuild_id, "fail", request))

    def resume_rebuild(self, rebuild_id: str, request: ResumeRebuild, of: type[_Start]) -> _Start:
        """Take a rebuild over whose driver is gone; what its driver works with, of the class that its kind has."""
        return self._as(of, self._of_rebuild(rebuild_id, "resume", request))

    def kill_rebuild(self, rebuild_id: str) -> RebuildView:
        """End a rebuild from outside; the rebuild's view."""
        return self._rebuild(self._of_rebuild(rebuild_id, "kill", None))

    def see_failure(self, rebuild_id: str) -> FailureSeen:
        """Say that the failure of a rebuild was seen."""
        return self._as(FailureSeen, self._of_rebuild(rebuild_id, "seen", None))

    # -- upkeep ------------------------------------------------------------------------------------------------------

    def pause(self, store: str | None) -> Paused:
        """Pause a store, or everything."""
        return self._as(Paused, Call("POST", "/v1/pause", Pause(store=store), look_up="anew status"))

    def unpause(self, store: str | None) -> Unpaused:
        """Let a store, or everything, go on."""
        return self._as(Unpaused, Call("POST", "/v1/unpause", Pause(store=store), look_up="anew status"))

    def collect(self, request: Collect) -> Collected:
        """What goes, what stays, and why; collected unless it is a dry run."""
        return self._as(Collected, Call("POST", "/v1/gc", request, look_up="anew gc --dry-run"))

    def restore_catalog(self, request: RestoreCatalog) -> RestoredCatalog:
        """Make a lost catalog again from the deep stores, or say what would be made."""
        return self._as(RestoredCatalog, Call("POST", "/v1/catalog/restore", request, look_up="anew store list"))

    def drain_node(self, node: str, request: DrainNode) -> DrainAnswer:
        """Let a node's replicas move to others."""
        return self._as(DrainAnswer, Call("POST", path_of("nodes", node, "drain"), request, look_up="anew node list"))

    def remove_node(self, node: str) -> NodeRemoved:
        """Forget a node that holds nothing."""
        return self._as(NodeRemoved, Call("POST", path_of("nodes", node, "remove"), look_up="anew node list"))

    # -- nodes -------------------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeView]:
        """All nodes, by id."""
        return sorted(self._all(Page[NodeView], Call("GET", "/v1/nodes")), key=lambda node: node.id)

    def desired(self, node: str, fabric: str, after: int = -1, wait_seconds: float = 0.0) -> DesiredState | None:
        """What a node should hold; None when nothing newer than revision ``after`` comes within the wait."""
        query = {"fabric": fabric, "after": after, "wait_seconds": wait_seconds}
        call = Call("GET", path_of("nodes", node, "desired"), query=query, extra_seconds=wait_seconds)
        answer = self._send(call)
        return None if answer.status_code == _NO_CONTENT else parsed(DesiredState, answer)

    def report(self, request: NodeReport) -> None:
        """What a node holds; repeating it is harmless."""
        self._send(Call("POST", path_of("nodes", request.node, "report"), request, look_up="anew node list"))

    # -- cluster -----------------------------------------------------------------------------------------------------

    def status(self) -> StatusView:
        """What is unhealthy, since when, which command next."""
        return self._as(StatusView, Call("GET", "/v1/status"))

    def cluster(self, fabric: str | None = None) -> ClusterInfo:
        """Where the parts of a fabric are."""
        return self._as(ClusterInfo, Call("GET", "/v1/cluster", query={"fabric": fabric}))

    def history(self, store: str | None = None, limit: int = 100) -> list[HistoryLine]:
        """Who did what when, newest first, at most so many lines; of one store, or of all for None."""
        call = Call("GET", "/v1/history", query={"store": store})
        lines = self._all(Page[HistoryLine], call, min(limit, MAX_ITEMS))
        # A limit below 1 is the controller's to refuse.
        return list(islice(lines, max(limit, 1)))

    def events(
        self, after: int, *, store: str | None = None, limit: int = MAX_ITEMS, wait_seconds: float = 0.0
    ) -> Events:
        """What was done since a revision of the catalog, which the controller waits for at most so long."""
        query = {"store": store, "after": after, "limit": limit, "wait_seconds": wait_seconds}
        return self._as(Events, Call("GET", "/v1/events", query=query, extra_seconds=wait_seconds))

    def reclaims(self) -> list[ReclaimView]:
        """What waits to be reclaimed, and why, what is due first."""
        return list(self._all(Page[ReclaimView], Call("GET", "/v1/reclaims")))

    def healthz(self) -> Alive:
        """Whether the controller's process is alive."""
        return self._as(Alive, Call("GET", "/healthz"))

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def __enter__(self) -> ControllerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _of_rebuild(self, rebuild_id: str, act: str, body: BaseModel | None) -> Call:
        return Call("POST", path_of("rebuilds", rebuild_id, act), body, look_up=f"anew rebuild show {rebuild_id}")
