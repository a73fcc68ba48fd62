"""What drivers of refreshes and loads commit: each segment of a refresh by itself, a load as a whole.

What a crash leaves behind: the segments that were committed stay, the others are as they were; the driver's lease ends,
the record with it, and what lies in the rebuild's own directory without a segment that names it goes after the grace.
"""

from __future__ import annotations

from collections.abc import Sequence

from anew.api.tables.requests import CommitLoad, CommitSegment, ReadSegments
from anew.catalog.change import Put, PutConfig, PutDone, PutTable
from anew.controller.engine.context import Context
from anew.controller.engine.drivers import forget_failure, note_failure
from anew.controller.engine.records import change_rebuild, check_driver, find_of
from anew.controller.engine.subjects import Step
from anew.controller.tables.judgement import Held, Owned, judged, pushed
from anew.controller.tables.ownership import check_own, check_paths, left_over, prefix_of, removed
from anew.controller.tables.reclaim import attempt_left
from anew.controller.tables.records import table_named
from anew.core.errors import Failed, Refused
from anew.core.rebuild import Progress, RebuildStatus, end
from anew.core.tables.rebuild import Done, SegmentOutcome, TableRebuild, ending
from anew.core.tables.segment import Segment
from anew.core.tables.table import Table, next_slots

_MOST_NAMED = 5


def read_segments(context: Context, rebuild_id: str, request: ReadSegments) -> list[Segment]:
    """What is there now of some segments of the rebuild's table; those that are gone are left out.

    Raises:
        Refused: ``rebuild_ended``, ``epoch_outdated``.
    """
    rebuild = find_of(context, rebuild_id, TableRebuild)
    check_driver(rebuild, request.epoch)
    return context.catalog.segments(rebuild.table_uid, request.segments)


def commit_segment(context: Context, rebuild_id: str, request: CommitSegment) -> Done:
    """Put a build in the place of the one that was read, or note why not; the same again is the same (D1, D3).

    Returns:
        What became of the segment: where somebody else was faster it was skipped, whatever the driver says.

    Raises:
        Refused: ``rebuild_ended``, ``epoch_outdated``.
    """
    rebuild = find_of(context, rebuild_id, TableRebuild)
    outcome = request.done

    def change(present: TableRebuild) -> Step[TableRebuild] | None:
        nonlocal outcome
        known = context.catalog.segments_done(rebuild_id, (request.done.segment,))
        if known:
            (outcome,) = known
            return None
        check_driver(present, request.epoch)
        # The table first: whoever drops the segment, or makes another of its name, changes the table's revision.
        table = context.catalog.table_by_uid(present.table_uid)
        segment = context.catalog.segment(present.table_uid, request.done.segment)
        found = judged(context, present, Held(table, segment), request)
        outcome = found.done
        return _with_done(present, outcome), (*found.puts, PutDone(present.id, outcome))

    detail = {"rebuild": rebuild_id, "segment": request.done.segment, "outcome": request.done.outcome.value}
    operation = context.operation("refresh segment", rebuild.table, "driver", **detail)
    change_rebuild(context, rebuild, operation, change)
    return outcome


def commit_load(context: Context, rebuild_id: str, request: CommitLoad) -> TableRebuild:
    """Make all segments of a load visible at once, and end it; the same again is the same (F3).

    Segments of earlier loads with its prefix that it did not make again go in the same commit.

    Raises:
        Failed: ``ledger_imbalance``, ``quota_exceeded``.
        Refused: ``rebuild_ended``, ``epoch_outdated``, ``prefix_taken``, ``foreign_file``.
    """
    rebuild = find_of(context, rebuild_id, TableRebuild)
    written = sum(loaded.build.contents.rows for loaded in request.segments)
    filtered = request.read - request.skipped - written
    if filtered < 0 or (filtered and rebuild.plan.target.config.row_filter is None):
        raise Failed(
            "ledger_imbalance",
            "the load did not write what it read",
            found=f"{written} rows",
            expected=f"{request.read} read - {request.skipped} skipped",
        )

    def change(present: TableRebuild) -> Step[TableRebuild] | None:
        if present.status is RebuildStatus.SUCCEEDED and present.epoch == request.epoch:
            return None
        check_driver(present, request.epoch)
        check_paths(present, [each.build for each in request.segments])
        table = table_named(context, present.table)
        left = left_over(context, table, present, [each.segment for each in request.segments])
        _check_quota(context, table, request, left)
        table, puts = _loaded(context, table, present, request, left)
        account = {"read": request.read, "skipped": request.skipped, "written": written, "filtered": filtered}
        progress = Progress(done=len(request.segments), total=len(request.segments), unit="segments", records=written)
        counted = present.model_copy(update={**account, "progress": progress})
        ended = end(counted, RebuildStatus.SUCCEEDED, None, context.clock())
        # The table's revision was read before its segments: two loads cannot both make a segment of one name.
        gone = removed(context, table, present, left)
        seen = forget_failure(rebuild.subject)
        return ended, (PutTable(table, table.revision), *puts, *gone, seen, *attempt_left(context, present))

    operation = context.operation("load", rebuild.table, "driver", rebuild=rebuild_id, segments=len(request.segments))
    return change_rebuild(context, rebuild, operation, change)


def finished(context: Context, rebuild: TableRebuild) -> Step[TableRebuild]:
    """The end of a rebuild whose driver is done with every segment.

    Raises:
        Refused: ``segments_left``.
    """
    done = context.catalog.segments_done(rebuild.id)
    left = {planned.segment for planned in rebuild.plan.segments} - {each.segment for each in done}
    if left:
        raise Refused(
            "segments_left",
            "the rebuild is not done with its segments",
            found=sorted(left)[:_MOST_NAMED],
            expected="none",
        )
    failed = [each for each in done if each.outcome is SegmentOutcome.FAILED]
    error = _failed_text(failed, len(done)) if failed else None
    # How many bytes a segment had is the driver's to tell, whose last sign of life came before its last commit.
    whole = rebuild.progress.model_copy(update={"bytes": rebuild.progress.total_bytes})
    ended = end(rebuild.model_copy(update={"progress": whole}), ending(done), error, context.clock())
    if ended.status is RebuildStatus.SUCCEEDED:
        told = forget_failure(rebuild.subject)
    else:
        told = note_failure(rebuild, error or "some segments failed", context.clock())
    return ended, (told, *attempt_left(context, rebuild))


def _failed_text(failed: Sequence[Done], of: int) -> str:
    return f"{len(failed)} of {of} segments failed; the first, {failed[0].segment}: {failed[0].why}"


def _with_done(rebuild: TableRebuild, done: Done) -> TableRebuild:
    progress = rebuild.progress
    counted = {
        "progress": progress.model_copy(update={"done": progress.done + 1, "records": progress.records + done.rows}),
        "read": rebuild.read + done.rows + done.filtered,
        "filtered": rebuild.filtered + done.filtered,
        "written": rebuild.written + done.rows,
    }
    return rebuild.model_copy(update=counted)


def _loaded(
    context: Context, table: Table, rebuild: TableRebuild, request: CommitLoad, left: list[Segment]
) -> tuple[Table, tuple[Put, ...]]:
    puts: list[Put] = [PutConfig(rebuild.plan.target.config)]
    present = {s.name: s for s in context.catalog.segments(table.uid, [each.segment for each in request.segments])}
    check_own(context, rebuild, present.values())
    before = {segment.name for segment in left} | present.keys()
    owned = Owned(prefix_of(rebuild), bool(before) and before != {each.segment for each in request.segments})
    table, slots = next_slots(table, len(request.segments))
    for slot, loaded in zip(slots, request.segments, strict=True):
        outcome, put = pushed(context, table, present.get(loaded.segment), loaded, slot, owned)
        rows = loaded.build.contents.rows
        done = Done(segment=loaded.segment, outcome=outcome, rows=rows, bytes=loaded.build.bytes)
        puts += [*put, PutDone(rebuild.id, done)]
    return table, tuple(puts)


def _check_quota(context: Context, table: Table, request: CommitLoad, left: list[Segment]) -> None:
    quota_bytes = table.settings.quota_bytes
    if not quota_bytes:
        return
    replaced = [*context.catalog.segments(table.uid, [each.segment for each in request.segments]), *left]
    added_bytes = sum(each.build.bytes for each in request.segments) - sum(s.build.bytes for s in replaced)
    after_bytes = context.catalog.table_size(table.uid).bytes + added_bytes
    if after_bytes > quota_bytes:
        raise Failed(
            "quota_exceeded",
            f"{table.name} would become larger than it may be",
            found=f"{after_bytes} bytes",
            expected=f"at most quota_bytes = {quota_bytes}",
            hint=f"load less, or raise it: anew table update {table.name} --set quota_bytes=…",
        )
