"""``anew.connect()``: one object for stores, plans and runs, over a running controller.

What only rebuilds and verifications need, Spark above all, is imported by those who ask for one: it takes longer than
most commands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anew.api.http import ControllerClient
from anew.api.location import LogLocation
from anew.api.node_http import NodeClient
from anew.api.rebuilds import Outcome, RebuildView
from anew.api.stores.routing import Routing
from anew.api.tables.requests import PlanRefresh
from anew.client.routing import RoutingCache
from anew.client.store import Store
from anew.client.tables import Answered, TableClient
from anew.client.topics import Topic
from anew.client.verdict import DEFAULT_TIMEOUT_SECONDS, Verification
from anew.core.errors import Refused
from anew.core.plan import PlanValue
from anew.core.rebuild import Rebuild, class_of
from anew.core.stores.plan import Plan
from anew.core.stores.planning import NO_OPTIONS, PushOptions, RepushRequest
from anew.core.stores.properties import parse_properties
from anew.core.stores.rebuild import StoreRebuild
from anew.core.tables.plan import TablePlan
from anew.core.tables.rebuild import TableRebuild
from anew.deepstore.open import open_deep_store
from anew.log.interface import Log
from anew.log.open import open_log
from anew.runtime.actor import driver_name, user_name
from anew.runtime.clock import new_id, now_ms
from anew.runtime.home import Home
from anew.runtime.java import check_java
from anew.runtime.security import credentials_of, kafka_properties
from anew.runtime.settings import ProcessSettings, resolve
from anew.runtime.sparkchoice import SparkChoice, spark_of

if TYPE_CHECKING:
    from anew.client.verify import Round, Sources
    from anew.rebuild.driving import Job, Run
    from anew.rebuild.inputs import PushRequest
    from anew.rebuild.observer import Observer
    from anew.rebuild.stores.damage import BaseDamage, DamagedPart, Restored
    from anew.rebuild.tables.driving import TableRun
    from anew.runtime.jobs import JobHandle
    from anew.spark.session import DataFrame, SparkSession


class Cluster:
    """A running cluster. A context manager; safe to use from several threads."""

    def __init__(self, url: str, settings: ProcessSettings) -> None:
        """Use `connect`."""
        timeout = float(settings.number("timeout_seconds"))
        self.url = url
        self.driver_log = ""
        """Where rebuilds that this process drives are logged, for those who look for it."""
        credentials = credentials_of(settings)
        self.controller = ControllerClient(url, timeout_seconds=timeout, actor=user_name(), credentials=credentials)
        self._nodes = NodeClient(timeout, credentials=credentials)
        self._tables = TableClient(self.controller, self._nodes)
        self._fabric = settings.optional("fabric")
        self._durable = settings.flag("log_durable")
        self._kafka_properties_file = kafka_properties(settings)
        self._controller_wait_seconds = float(settings.number("controller_wait_seconds"))
        self._executor_wait_seconds = float(settings.number("executor_wait_seconds"))

    def store(self, name: str) -> Store:
        """A store, to read and write.

        Raises:
            NotFound: ``unknown_store``.
        """
        routing = RoutingCache(self.controller, name, self._fabric)
        routing.refresh()
        return Store(routing, self._nodes, self._open_log, new_id=new_id)

    def topic(self, name: str) -> Topic:
        """A topic of our own, to write and read.

        Raises:
            NotFound: ``unknown_topic``.
        """
        return Topic(self.controller, name, self._open_log_of)

    def verify(self, name: str, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> Verification:
        """Compare the replicas of a store's current version with each other and with base ⊕ feeds.

        Args:
            name: The store's.
            timeout_seconds: How long nodes may take; those that took longer are named in the result.

        Raises:
            NotFound: ``unknown_store``.
            Refused: ``no_current_version``, ``verification_running``.
            Unreachable: Log or deep store does not answer.
            Failed: Base or log are not what they were.
        """
        from anew.client.verify import verify

        with self._sources(name) as sources:
            return verify(sources, timeout_seconds)

    @contextmanager
    def _sources(self, name: str) -> Iterator[Sources]:
        """What a verification of a store asks."""
        from anew.client.verify import Sources, Subject

        routing = self.controller.routing(name, self._fabric)
        cluster = self.controller.cluster(routing.fabric)

        def subject() -> Subject:
            routed = self.controller.routing(name, routing.fabric)
            return Subject(self.controller.snapshot(name).store, routed.fabric, routed.nodes)

        log = self._open_log(routing)
        try:
            yield Sources(subject, self._nodes, log, open_deep_store(cluster.deep_store))
        finally:
            log.close()

    @contextmanager
    def _standing(self, name: str, version: int) -> Iterator[Round]:
        """The replicas of a store's current version, which must be that one, at one position.

        A swap or a rollback may have come since that version was looked at, and then replicas hold another base.

        Raises:
            Refused: ``plan_outdated``.
        """
        from anew.client.verify import standing

        with self._sources(name) as sources, standing(sources) as found:
            serving = found.subject.version.number
            if serving != version:
                raise Refused(
                    "plan_outdated",
                    "another version serves since the damage was found, and its replicas do not hold this base",
                    found=f"version {serving}",
                    expected=f"version {version}",
                    hint=f"repair again: anew store repair {name}",
                )
            yield found

    def find_damage(self, name: str) -> BaseDamage:
        """Read the base of a store's current version, and say what of it is not as it was written.

        Raises:
            NotFound: ``unknown_store``.
            Refused: ``no_current_version``.
            Failed: ``manifest_damaged``.
            Unreachable: Log or deep store does not answer.
        """
        from anew.rebuild.stores.damage import find_damage
        from anew.segments.base import BaseReader

        with self._sources(name) as sources:
            return find_damage(sources.subject().version, BaseReader(sources.deep_store, lambda: sources.log))

    def restore_base(self, name: str, damage: BaseDamage) -> Restored:
        """Put back those damaged files that replicas still hold to the last byte.

        Raises:
            Unreachable: ``no_replica``: no node has a whole replica of a damaged part.
            Failed: ``dictionary_lost``.
            Refused: ``plan_outdated``: another version serves by now.
        """
        from anew.rebuild.stores.damage import restore

        with self._sources(name) as sources, self._standing(name, damage.manifest.version) as exports:
            return restore(damage, sources.deep_store, exports, new_id())

    def plan_repair_of_store(self, name: str, left: Sequence[DamagedPart]) -> Plan:
        """The plan of a rebuild that reads replicas where the base is damaged.

        Raises:
            InvalidRequest, Refused: As `plan_repush`.
        """
        from anew.rebuild.stores.planner import make_checked_repush_plan

        request = RepushRequest(from_replicas=tuple(damaged.place for damaged in left))
        return make_checked_repush_plan(self.controller, name, request)

    def plan_repush(
        self,
        store: str,
        *,
        properties: Mapping[str, str] | None = None,
        allow_not_serving: bool = False,
        target_fabrics: tuple[str, ...] = (),
        defer_swap: bool = False,
    ) -> Plan:
        """The plan of a repush; nothing is made.

        Raises:
            InvalidRequest, Refused: As the command line does.
        """
        from anew.rebuild.stores.planner import make_checked_repush_plan

        parsed = parse_properties({} if properties is None else properties)
        request = RepushRequest(parsed, allow_not_serving, target_fabrics, defer_swap)
        return make_checked_repush_plan(self.controller, store, request)

    def plan_push(
        self,
        store: str,
        request: PushRequest,
        *,
        properties: Mapping[str, str] | None = None,
        options: PushOptions = NO_OPTIONS,
    ) -> Plan:
        """The plan of a full push; nothing is made."""
        from anew.rebuild.stores.planner import make_push_plan

        parsed = parse_properties({} if properties is None else properties)
        return make_push_plan(self.controller, store, request, parsed, options)

    def run(self, plan: Plan, *, spark: SparkSession | None = None, observer: Observer | None = None) -> Outcome:
        """Run a plan to its end.

        Args:
            plan: What `plan_repush` or `plan_push` gave.
            spark: A classic session of your own, which is left as it is; None: one is made for this run.
            observer: Who is told; None: the log.

        Raises:
            Refused: What the plan was made from has moved; nothing was changed.
            Failed: It ran and failed; nothing serves the version.
        """
        view = self.run_plan(plan, SparkChoice(session=spark), observer, None)
        return Outcome.model_validate(view.model_dump(mode="json"))

    def read_store(self, spark: SparkSession, name: str) -> DataFrame:
        """A store as a DataFrame: columns ``key``, ``value`` and ``written_at`` (ms), all writes up to now included.

        Raises:
            NotFound: ``unknown_store``.
            Refused: ``nothing_to_repush``: there is no version yet.
        """
        from anew.rebuild.stores.reading import read_store

        return read_store(self.controller, spark, name)

    def read_table(self, spark: SparkSession, name: str) -> DataFrame:
        """A table as a DataFrame: the rows that queries see now, read from the deep store and not from the nodes.

        Raises:
            NotFound: ``unknown_table``.
        """
        from anew.spark.session import session_for_queries
        from anew.spark.tables.reading import TableSource, read_segments

        snapshot = self.controller.table_snapshot(name, segments=True)
        builds = tuple(segment.build for segment in snapshot.segments)
        source = TableSource(name, snapshot.deep_store, snapshot.table.columns, builds)
        return read_segments(session_for_queries(spark), source)

    def run_plan(
        self, plan: PlanValue, spark: SparkChoice, observer: Observer | None, request_id: str | None
    ) -> RebuildView:
        """Run a plan of any kind to its end, with the choice of Spark and a request id; returns the ``rebuild`` shape.

        Raises:
            Refused: What the plan was made from has moved; nothing was changed.
            Failed: It ran and failed as a whole.
        """
        from anew.rebuild.driving import run_plan

        return run_plan(plan, *self._job_of(str(plan.kind), spark, observer, request_id))

    def begun_before(self, request_id: str | None, asked: str) -> RebuildView | None:
        """What the same request began before, see `anew.rebuild.asking.begun_before`.

        Raises:
            InvalidRequest: ``request_id_reused``.
        """
        from anew.rebuild.asking import begun_before

        return begun_before(self.controller, request_id, asked)

    def follow(self, rebuild_id: str, observer: Observer) -> RebuildView:
        """Follow a rebuild that somebody else drives, or that has ended; returns the ``rebuild`` shape.

        Raises:
            Failed: It failed, or was killed.
        """
        from anew.rebuild.asking import follow

        return follow(self.controller, rebuild_id, observer)

    # -- tables ------------------------------------------------------------------------------------------------------

    def plan_refresh(self, table: str, request: PlanRefresh | None = None) -> TablePlan:
        """The plan of a refresh; nothing is made.

        Raises:
            NotFound: ``unknown_table``.
        """
        return self.controller.plan_refresh(table, PlanRefresh() if request is None else request)

    def plan_load(self, table: str, request: PushRequest, prefix: str | None = None) -> TablePlan:
        """The plan of a load; nothing is made.

        Raises:
            NotFound: ``unknown_table``, ``no_input``.
            InvalidRequest: ``empty_input``, ``unknown_format``, ``mixed_formats``, ``bad_name``.
        """
        from anew.rebuild.tables.load import plan_load

        return plan_load(self.controller.table_snapshot(table, segments=prefix is not None), request, prefix)

    def query(self, sql: str, node: str | None = None) -> Answered:
        """Run one SELECT, or EXPLAIN of one, over tables, on a node.

        Raises:
            InvalidRequest: ``not_a_query``, ``bad_query``, or a limit of the nodes.
            NotFound: ``unknown_table``.
            Unreachable: No node answers.
        """
        return self._tables.query(sql, node)

    def import_segments(self, table: str, files: Sequence[Path], request_id: str | None = None) -> RebuildView:
        """Make segments of existing Parquet files, without a config hash; returns the ``rebuild`` shape.

        Raises:
            InvalidRequest, NotFound: Nothing was changed.
        """
        from anew.rebuild.tables.importing import import_files

        run = self._table_run(SparkChoice(), None, request_id, needs_spark=False)
        return import_files(self.controller.table_snapshot(table), files, run)

    def plan_repair(self, table: str, segments: Collection[str] = ()) -> TablePlan:
        """Read the files of a table's segments, all or those named, and plan to bring back what is not as it should be.

        Raises:
            NotFound: ``unknown_table``, ``unknown_segment``.
        """
        from anew.rebuild.tables.repairing import plan_repair

        return plan_repair(self.controller.table_snapshot(table, segments=True), segments)

    def repair_table(self, plan: TablePlan, request_id: str | None = None) -> RebuildView:
        """Bring back the files that a plan of `plan_repair` names; returns the ``rebuild`` shape.

        Raises:
            Refused: ``plan_outdated``; nothing was changed.
            Failed: ``rebuild_failed``: no node has a copy of any of them.
        """
        from anew.rebuild.tables.repairing import repair

        run = self._table_run(SparkChoice(), None, request_id, needs_spark=False)
        return repair(self.controller.table_snapshot(plan.table, segments=True), plan, self._nodes, run)

    def resume(self, rebuild_id: str, spark: SparkChoice, observer: Observer | None) -> RebuildView:
        """Take up a rebuild whose driver is gone, and bring it to its end; returns the ``rebuild`` shape.

        Raises:
            Refused: ``driver_alive``, ``rebuild_ended``; nothing was changed.
            Failed: As `run`.
        """
        from anew.rebuild.driving import resume_rebuild

        kind = str(self.controller.rebuild(rebuild_id).kind)
        return resume_rebuild(rebuild_id, *self._job_of(kind, spark, observer, None))

    def job(self, name: str) -> JobHandle:
        """A stream job; nothing is asked yet."""
        from anew.runtime.jobs import JobHandle

        return JobHandle(self.controller, name, driver_name(""), self.topic)

    def drive_generation(self, job: str, number: int) -> None:
        """Drive a generation of a job until it is to stop; see `anew.runtime.generation.drive_generation`."""
        from anew.runtime.generation import drive_generation

        drive_generation(self.controller, job, number, self.driver_log, self._controller_wait_seconds)

    def _job_of(
        self, kind: str, spark: SparkChoice, observer: Observer | None, request_id: str | None
    ) -> tuple[Run, Job[Any, Any]]:
        """How rebuilds of a kind are driven here."""
        of = class_of(kind)
        return _JOBS[of](self, spark, observer, request_id)

    def _making(
        self, spark: SparkChoice, observer: Observer | None, request_id: str | None
    ) -> tuple[Run, Job[Any, Any]]:
        from anew.rebuild.stores.build import on_spark
        from anew.rebuild.stores.making import StoreRun, making

        if spark.session is None:
            check_java()
        build = on_spark(lambda: spark_of(spark), self._executor_wait_seconds)
        run = StoreRun(build=build, replicas=self._standing, **self._said(observer, request_id))
        return run, making(run)

    def _refreshing(
        self, spark: SparkChoice, observer: Observer | None, request_id: str | None
    ) -> tuple[Run, Job[Any, Any]]:
        from anew.rebuild.tables.builds import refreshing

        run = self._table_run(spark, observer, request_id)
        return run, refreshing(run)

    def _table_run(
        self, spark: SparkChoice, observer: Observer | None, request_id: str | None, *, needs_spark: bool = True
    ) -> TableRun:
        from anew.rebuild.tables.driving import TableRun

        if spark.session is None and needs_spark:
            check_java()
        wait_seconds = self._executor_wait_seconds
        return TableRun(
            session=lambda: spark_of(spark), executor_wait_seconds=wait_seconds, **self._said(observer, request_id)
        )

    def _said(self, observer: Observer | None, request_id: str | None) -> dict[str, Any]:
        """What runs of every kind need."""
        from anew.rebuild.observer import LogObserver

        return {
            "controller": self.controller,
            "observer": LogObserver() if observer is None else observer,
            "request_id": new_id() if request_id is None else request_id,
            "driver": driver_name(self.driver_log),
            "clock": now_ms,
            "patience_seconds": self._controller_wait_seconds,
        }

    def close(self) -> None:
        """Let go of connections."""
        self._nodes.close()
        self.controller.close()

    def __enter__(self) -> Cluster:
        """The cluster itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()

    def _open_log(self, routing: Routing) -> Log:
        skew_ms = 60_000 if routing.feed is None else routing.feed.skew_limit_ms
        return open_log(self._reached(routing.log), clock=now_ms, skew_limit_ms=skew_ms, durable=self._durable)

    def _open_log_of(self, fabric: str) -> Log:
        return open_log(self._reached(self.controller.cluster(fabric).log), clock=now_ms, durable=self._durable)

    def _reached(self, location: LogLocation) -> LogLocation:
        """A log as this process reaches it."""
        own = self._kafka_properties_file
        return location if own is None else location.model_copy(update={"properties_file": own})


_JOBS: dict[type[Rebuild], Callable[..., tuple[Run, Job[Any, Any]]]] = {
    StoreRebuild: Cluster._making,
    TableRebuild: Cluster._refreshing,
}
"""Class of records → how its rebuilds are driven."""


def connect(*, url: str | None = None, home: str | None = None) -> Cluster:
    """Connect to a running cluster.

    Args:
        url: The controller's; None: ``ANEW_URL``, else the embedded cluster of the home.
        home: The embedded cluster's home; None: ``ANEW_HOME``, else ``./.anew``.

    Raises:
        Unreachable: ``no_cluster``.
    """
    flags = {name: value for name, value in (("url", url), ("home", home)) if value is not None}
    return connect_with(resolve(flags))


def connect_with(settings: ProcessSettings) -> Cluster:
    """Connect as the settings say."""
    url = settings.optional("url")
    return Cluster(Home(settings.home).running().url if url is None else url, settings)
