"""Tables on the controller's test cluster: drivers that make files without rows, and nodes that say what they serve."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anew.api.models import BeginRebuild, EndRebuild, FinishRebuild, Heartbeat, NodeReport, ResumeRebuild
from anew.api.rebuilds import TableRebuildView, TableStart, view_as
from anew.api.tables.requests import CommitLoad, CommitSegment, CreateTable, LoadedSegment, PlanRefresh, UpdateTable
from anew.api.tables.segments import DesiredTable, SegmentReport, SegmentState
from anew.controller.engine.attention import Attention
from anew.controller.engine.context import Limits
from anew.controller.reconcile import Reconciler
from anew.core.rebuild import Stage
from anew.core.tables.plan import TableInput, TablePlan, TableRebuildKind
from anew.core.tables.rebuild import Done, SegmentOutcome, TableRebuild
from anew.core.tables.segment import Build, Segment
from anew.core.tables.table import Table
from anew.segments.layout import build_path, builds_path
from anew.testing.builders import FABRIC
from anew.testing.clock import NOON_MS, ManualClock
from anew.testing.table_builders import a_build, a_schema, a_table_plan
from tests.component.controller.harness import LIMITS, Cluster, opened_cluster

Says = Callable[[SegmentReport], SegmentReport | None]
"""What a node says instead of the truth; None: nothing of this segment."""


def as_it_is(copy: SegmentReport) -> SegmentReport:
    """The truth."""
    return copy


@dataclass
class Tables:
    """A cluster with tables, and what drivers and nodes do to them, step by step."""

    cluster: Cluster
    launched: list[tuple[str, str]] = field(default_factory=list)
    cannot_launch: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def clock(self) -> ManualClock:
        """The time."""
        return self.cluster.clock

    # -- tables ------------------------------------------------------------------------------------------------------

    def create(self, name: str = "trips", schema: dict[str, Any] | None = None, **settings: Any) -> Table:
        """A table on one replica, unless told otherwise, its slots on nodes."""
        columns = a_schema() if schema is None else schema
        self.cluster.client.create_table(CreateTable(name=name, columns=columns, settings={"replicas": 1, **settings}))
        self.round()
        return self.table(name)

    def table(self, name: str = "trips") -> Table:
        """The aggregate as the catalog holds it."""
        table = self.cluster.context.catalog.table(name)
        assert table is not None
        return table

    def update(self, name: str = "trips", schema: dict[str, Any] | None = None, **settings: Any) -> Table:
        """Change columns or settings."""
        self.cluster.client.update_table(name, UpdateTable(columns=schema, settings=settings))
        return self.table(name)

    def segment(self, segment: str, name: str = "trips") -> Segment:
        """A segment as the catalog holds it."""
        found = self.cluster.context.catalog.segment(self.table(name).uid, segment)
        assert found is not None
        return found

    def stale(self, name: str = "trips") -> list[str]:
        """Which segments are stale."""
        return [view.name for view in self.cluster.client.segments(name, stale=True)]

    # -- drivers -----------------------------------------------------------------------------------------------------

    def build(self, rebuild: TableRebuild, segment: str, **changes: Any) -> Build:
        """Write a file, as one task attempt does, and say what is in it; ``changes`` replace fields of the build."""
        number = next(self._numbers)
        directory = builds_path(rebuild.table_uid, rebuild.id, rebuild.epoch)
        path = build_path(directory, segment, f"a{number}")
        made = {"path": path, "rebuild": rebuild.id, "built_at_ms": self.clock()}
        config_hash = rebuild.plan.target.config_hash
        build = a_build(f"{rebuild.id}-e{rebuild.epoch}-a{number}", config_hash)
        self.cluster.deep.put(path, f"rows of {segment}, attempt {number}".encode().ljust(build.bytes))
        return build.model_copy(update={**made, **changes})

    def load_plan(self, name: str = "trips", prefix: str | None = None) -> TablePlan:
        """A load, as its driver plans it; without a prefix as of old, when plans did not say their source."""
        table = self.table(name)
        source = None if prefix is None else TableInput(paths=(), format="csv", prefix=prefix, segment_rows=1_000)
        return a_table_plan(table, kind=TableRebuildKind.TABLE_LOAD, planned_at_ms=self.clock(), source=source)

    def load_of(self, rebuild: TableRebuild, *segments: str, **changes: Any) -> CommitLoad:
        """All segments of a load, written, as they are committed."""
        loaded = tuple(LoadedSegment(segment=s, build=self.build(rebuild, s, **changes)) for s in segments)
        return CommitLoad(epoch=rebuild.epoch, segments=loaded, read=sum(each.build.contents.rows for each in loaded))

    def load(self, *segments: str, name: str = "trips", prefix: str | None = None, **changes: Any) -> TableRebuild:
        """Make segments by a load; ``changes`` replace fields of their builds."""
        rebuild = self.begin(self.load_plan(name, prefix))
        self.cluster.client.commit_load(rebuild.id, self.load_of(rebuild, *segments, **changes))
        return rebuild

    def plan(self, name: str = "trips", **asked: Any) -> TablePlan:
        """What a refresh would do now."""
        return self.cluster.client.plan_refresh(name, PlanRefresh(**asked))

    def begin(self, plan: TablePlan, request_id: str | None = None) -> TableRebuild:
        """Begin a plan."""
        chosen = f"table-request-{next(self._numbers)}" if request_id is None else request_id
        begin = BeginRebuild(plan=plan, request_id=chosen, driver="test")
        return self.cluster.client.begin_rebuild(begin, TableStart).rebuild

    def refreshed(self, rebuild: TableRebuild, segment: str, **changes: Any) -> CommitSegment:
        """A new build of a planned segment, written, as it is committed."""
        planned = next(each for each in rebuild.plan.segments if each.segment == segment)
        build = self.build(rebuild, segment, **changes)
        done = Done(segment=segment, outcome=SegmentOutcome.REFRESHED, rows=build.contents.rows, bytes=build.bytes)
        return CommitSegment(epoch=rebuild.epoch, done=done, read=planned.build, build=build)

    def failed(self, rebuild: TableRebuild, segment: str, why: str = "abc is no number") -> CommitSegment:
        """A planned segment that could not be made."""
        planned = next(each for each in rebuild.plan.segments if each.segment == segment)
        done = Done(segment=segment, outcome=SegmentOutcome.FAILED, why=why)
        return CommitSegment(epoch=rebuild.epoch, done=done, read=planned.build)

    def commit(self, rebuild: TableRebuild, request: CommitSegment) -> Done:
        """Say what became of a segment."""
        return self.cluster.client.commit_segment(rebuild.id, request)

    def finish(self, rebuild: TableRebuild) -> TableRebuildView:
        """The driver is done."""
        request = FinishRebuild(epoch=rebuild.epoch, records_per_s=100.0)
        return view_as(self.cluster.client.finish_rebuild(rebuild.id, request), TableRebuildView)

    def give_up(self, rebuild: TableRebuild, error: str = "it broke") -> TableRebuildView:
        """The driver says that it cannot go on."""
        request = EndRebuild(epoch=rebuild.epoch, error=error)
        return view_as(self.cluster.client.fail_rebuild(rebuild.id, request), TableRebuildView)

    def view(self, rebuild: TableRebuild) -> TableRebuildView:
        """The ``rebuild`` shape."""
        return view_as(self.cluster.client.rebuild(rebuild.id), TableRebuildView)

    def resume(self, rebuild: TableRebuild, driver: str = "second") -> TableRebuild:
        """Another driver takes over."""
        return self.cluster.client.resume_rebuild(rebuild.id, ResumeRebuild(driver=driver), TableStart).rebuild

    def refresh(self, name: str = "trips", **asked: Any) -> TableRebuildView:
        """A refresh from plan to end, all of whose segments go well; its view."""
        rebuild = self.begin(self.plan(name, **asked))
        for planned in rebuild.plan.segments:
            self.commit(rebuild, self.refreshed(rebuild, planned.segment))
        return self.finish(rebuild)

    def beat(self, rebuild: TableRebuild, stage: Stage = Stage.BUILD) -> bool:
        """A sign of life; whether the driver is told to stop."""
        return self.cluster.client.heartbeat(rebuild.id, Heartbeat(epoch=rebuild.epoch, stage=stage)).kill_asked

    def status(self, rebuild: TableRebuild) -> str:
        """How a rebuild stands."""
        return str(self.cluster.client.rebuild(rebuild.id).status)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def desired(self, node: str, name: str = "trips") -> DesiredTable:
        """What a node is to know of a table."""
        desired = self.cluster.client.desired(node, FABRIC)
        assert desired is not None
        return next(table for table in desired.tables if table.name == name)

    def hosted(self, node: str, name: str = "trips") -> set[str]:
        """The segments that a node is to hold."""
        return {segment.name for segment in self.desired(node, name).segments if segment.hosted}

    def report(self, node: str, says: Says = as_it_is) -> None:
        """The node says that it serves the builds of all that it is to hold; ``says`` replaces that."""
        desired = self.cluster.client.desired(node, FABRIC)
        assert desired is not None
        copies = [
            SegmentReport(
                table_uid=table.uid,
                segment=segment.name,
                state=SegmentState.SERVING,
                build=segment.build.id,
                config_hash=segment.build.served_hash,
                reload=segment.reload,
            )
            for table in desired.tables
            for segment in table.segments
            if segment.hosted
        ]
        told = tuple(said for copy in copies if (said := says(copy)) is not None)
        self.cluster.client.report(_report(node, told))

    def start_over(self) -> None:
        """The controller comes (again): whatever it had in memory is gone; refreshes that it launches are noted."""

        def launch(_kind: str, table: str, request_id: str) -> None:
            if table in self.cannot_launch:
                raise OSError(f"no process for {table}")
            self.launched.append((table, request_id))

        context = replace(self.cluster.context, launch=launch, attention=Attention())
        self.cluster.reconciler = Reconciler(context, self.cluster.clock.seconds)

    def round(self) -> None:
        """One round of the reconciler."""
        self.cluster.round()

    def settle(self, rounds: int = 3, nodes: Sequence[str] | None = None) -> None:
        """Rounds with reports of nodes, all unless told which, in between."""
        for _ in range(rounds):
            for node in self.cluster.nodes if nodes is None else nodes:
                self.report(node)
            self.round()

    def pass_seconds(self, seconds: float, nodes: Iterable[str] | None = None) -> None:
        """Let time pass; the nodes stay alive, all unless told which."""
        self.cluster.listen_on(seconds)
        for node in self.cluster.nodes if nodes is None else nodes:
            self.report(node)

    def files(self) -> list[str]:
        """All files of tables."""
        return [stored.path for stored in self.cluster.deep.list("tables")]


def says_hash(config_hash: str) -> Says:
    """A node whose copies are all of one configuration."""
    return lambda copy: copy.model_copy(update={"config_hash": config_hash})


def says_nothing(_copy: SegmentReport) -> None:
    """A node that knows of no segment."""


def _report(node: str, copies: tuple[SegmentReport, ...]) -> NodeReport:
    return NodeReport(
        node=node, fabric=FABRIC, url=f"http://{node}:1", started_at_ms=NOON_MS, replicas=(), segments=copies
    )


@contextmanager
def opened_tables(directory: Path, limits: Limits = LIMITS) -> Iterator[Tables]:
    """Two live nodes, no table, and a launcher of refreshes that takes notes."""
    with opened_cluster(directory, limits) as cluster:
        tables = Tables(cluster)
        tables.start_over()
        yield tables
