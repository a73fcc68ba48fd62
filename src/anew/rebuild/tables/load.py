"""Loading files into a table: planned from the table and the files, built in two passes, committed at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anew.api.rebuilds import RebuildView
from anew.api.tables.requests import CommitLoad, LoadedSegment, TableSnapshot
from anew.core.errors import Failed, InvalidRequest
from anew.core.plan import Estimate
from anew.core.rebuild import Progress, Stage
from anew.core.stores.plan import PushInput
from anew.core.tables.choosing import MAX_NAMED
from anew.core.tables.config import SegmentConfig
from anew.core.tables.dealing import check_prefix, deal
from anew.core.tables.plan import TableFence, TableInput, TablePlan, TableRebuildKind, TableTarget
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.segment import Build
from anew.rebuild.badrows import locate, write_bad_rows
from anew.rebuild.inputs import PushRequest, find_input
from anew.rebuild.lease import Lease
from anew.rebuild.tables.driving import TableRun
from anew.segments.layout import builds_path
from anew.spark.executors import Sights, check_executors
from anew.spark.inputcolumns import EncodeTask, scan_files, wanted_columns
from anew.spark.inputfiles import check_columns, check_files, headers_of, merged_header
from anew.spark.progress import JobWatch
from anew.spark.session import SparkSession, session_for_queries
from anew.spark.tables.scan import NO_KEY, LoadTask, avro_schema, count_rows, dealt_rows, too_large
from anew.spark.tables.write import MadeSegment, WriteTask, write_segments

_SHOWN = 20


def plan_load(snapshot: TableSnapshot, request: PushRequest, prefix: str | None) -> TablePlan:
    """The plan of a load; nothing is made.

    Args:
        snapshot: The table, with its segments where a prefix is given.
        request: The files, their format and options, and where bad rows go; the rest does not matter here.
        prefix: How the names of its segments begin; None: as no other load's.

    Raises:
        NotFound: ``no_input``.
        InvalidRequest: ``empty_input``, ``unknown_format``, ``mixed_formats``, ``bad_name``.
    """
    table = snapshot.table
    found = find_input(request)
    replaces = [] if prefix is None else sorted(s.name for s in snapshot.segments if s.prefix == prefix)
    chosen = f"load{snapshot.now_ms:x}" if prefix is None else prefix
    check_prefix(chosen)
    source = TableInput(
        paths=found.push.paths,
        format=found.push.format,
        options=found.push.options,
        prefix=chosen,
        bad_rows_to=found.push.bad_rows_to,
        bucket=table.settings.bucket,
        segment_rows=table.settings.segment_rows,
    )
    return TablePlan(
        kind=TableRebuildKind.TABLE_LOAD,
        table=table.name,
        target=TableTarget(config=table.config, config_hash=table.config_hash, fabric=table.fabric),
        why=tuple(_why(chosen, len(source.paths), len(replaces), is_fresh=prefix is None)),
        estimate=Estimate(records=0, bytes=found.bytes),
        source=source,
        replaces=tuple(replaces[:MAX_NAMED]),
        fence=TableFence(table_uid=table.uid, config_hash=table.config_hash),
        planned_at_ms=snapshot.now_ms,
    ).sealed()


def _why(prefix: str, files: int, replaced: int, *, is_fresh: bool) -> Iterator[str]:
    yield f"{files} files become segments {prefix}_…"
    if is_fresh:
        yield "they are added to what is there: a load replaces that of earlier ones with the same --prefix only"
    if replaced:
        yield f"they replace the {replaced} segments of earlier loads with the prefix {prefix}, all in one commit"


def load(spark: SparkSession, rebuild: TableRebuild, run: TableRun, lease: Lease) -> RebuildView:
    """Build all segments of a load and make them visible at once; returns the ``rebuild`` shape.

    Raises:
        InvalidRequest: ``missing_column``, ``unreadable_input``.
        Failed: ``bad_rows``, ``unreadable_input``; what a segment's making raises.
    """
    plan, session = rebuild.plan, session_for_queries(spark)
    source = plan.source
    if source is None:
        raise AssertionError("a load's plan names its input")
    cluster = run.patiently(lambda: run.controller.cluster(plan.target.fabric))
    directory = builds_path(rebuild.table_uid, rebuild.id, rebuild.epoch)
    with JobWatch(session, run.executor_wait_seconds) as watch:

        def measure() -> Progress:
            progress = watch.progress()
            run.observer.progress(Stage.BUILD, progress)
            return progress

        lease.enter(Stage.BUILD, measure, watch.cancel)
        check_executors(session, Sights(cluster.deep_store, directory, None, inputs=source.paths[:_SHOWN]))
        files = _files(source)
        uris = [Path(path).as_uri() for path in sorted(source.paths)]
        headers = headers_of(files)
        encode = _encode(plan.target.config, uris, merged_header(files, headers))
        check_files(files, headers, wanted_columns(encode))
        task, scan = LoadTask(encode, plan.target.config, source.bucket), scan_files(session, files, encode)
        counted = count_rows(scan, task)
        bad = sum(each.bad for each in counted)
        if bad:
            _put_aside(source, files, task, sorted({file for each in counted for file in each.bad_files}), bad)
        dealt = deal({each.task: each.groups for each in counted}, source.segment_rows, source.prefix)
        write = WriteTask(cluster.deep_store, directory, plan.target.config, dealt)
        rows = dealt_rows(scan, task, dealt)
        made = write_segments(rows, write) if dealt.names else []
    request = CommitLoad(
        epoch=rebuild.epoch,
        segments=tuple(_loaded(rebuild, each, run) for each in made),
        read=sum(each.read for each in counted),
        skipped=bad,
    )
    return run.patiently(lambda: run.controller.commit_load(rebuild.id, request))


def _files(source: TableInput) -> PushInput:
    return PushInput(paths=source.paths, format=source.format, options=source.options, key=())


def _encode(config: SegmentConfig, uris: list[str], header: list[str] | None) -> EncodeTask:
    """How rows are read: all columns but derived ones; those with a default may be missing."""
    wanted = every = [column for column in config.columns if column.name not in config.derived]
    if header is not None:
        optional = {c.name for c in wanted if c.default is not None or c.nullable}
        check_columns(header, [c.name for c in wanted if c.name not in optional])
        wanted = [column for column in wanted if column.name in header]
        if not wanted:
            raise InvalidRequest(
                "missing_column",
                "the input has no column of the table",
                found=", ".join(header),
                expected=", ".join(column.name for column in config.columns),
            )
    return EncodeTask(
        key_schema=NO_KEY,
        value_schema=avro_schema(tuple(wanted)),
        schema_id=0,
        key=(),
        value=tuple(column.name for column in wanted),
        written_at=None,
        files={uri: number for number, uri in enumerate(uris)},
        left_out=tuple(column.name for column in every if column not in wanted),
    )


def _put_aside(source: TableInput, files: PushInput, task: LoadTask, bad_files: list[str], bad: int) -> None:
    """Put bad rows aside, or fail and name file, line and column of the first ones (case F2)."""
    located = locate(bad_files, files, task.encode, lambda cast: too_large(cast, task.config))
    if source.bad_rows_to is not None:
        write_bad_rows(Path(source.bad_rows_to), located)
        return
    raise Failed(
        "bad_rows",
        f"{bad} rows do not fit the table's columns",
        found=[row.shown for row, _ in zip(located, range(_SHOWN), strict=False)],
        expected="rows that fit",
        hint="put them aside and load the rest: --on-bad-row skip --bad-rows-to FILE",
    )


def _loaded(rebuild: TableRebuild, made: MadeSegment, run: TableRun) -> LoadedSegment:
    build = Build(
        id=f"{rebuild.id}-e{rebuild.epoch}-{made.attempt}",
        path=made.path,
        bytes=made.bytes,
        sha256=made.sha256,
        config_hash=rebuild.plan.target.config_hash,
        contents=made.contents,
        rebuild=rebuild.id,
        built_at_ms=run.clock(),
    )
    return LoadedSegment(segment=made.segment, build=build)
