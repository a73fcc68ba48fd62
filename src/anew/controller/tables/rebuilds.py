"""Refreshes and loads: a driver begins one, says of each segment what became of it, and finishes.

What a crash leaves behind: the segments that were committed stay, the others are as they were; the driver's lease ends,
the record with it, and what lies in the rebuild's own directory without a segment that names it goes after the grace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anew.api.models import EndRebuild, Heartbeat, HeartbeatAnswer, ResumeRebuild
from anew.api.tables import BeginTableRebuild, CommitLoad, CommitSegment, FinishRebuild, ReadSegments
from anew.catalog.change import (
    Change,
    Put,
    PutConfig,
    PutDone,
    PutFlag,
    PutReclaim,
    PutRequest,
    PutTable,
    PutTableRebuild,
    Reclaim,
)
from anew.controller.context import Context, check_unaltered, made_before, request_id_reused
from anew.controller.drivers import forget_failure, note_failure
from anew.controller.rebuilds import check_driven
from anew.controller.tables.judging import Held, Owned, judged, pushed
from anew.controller.tables.owning import check_own, check_paths, left_over, prefix_of, removed
from anew.controller.tables.planning import segments_in_work
from anew.controller.tables.records import (
    change_rebuild,
    check_driver,
    check_epoch,
    table_named,
    table_rebuild_of,
    tried,
)
from anew.core.errors import Failed, InvalidRequest, NotFound, Refused
from anew.core.rebuild import DRIVEN_STAGES, Progress, RebuildStatus, Stage, advance, end
from anew.core.tables.plan import TablePlan, TableRebuildKind
from anew.core.tables.rebuild import Done, SegmentOutcome, TableRebuild, ending
from anew.core.tables.segment import Segment
from anew.core.tables.table import Table, next_slots
from anew.segments.layout import builds_path

_MOST_NAMED = 5


def begin(context: Context, request: BeginTableRebuild, actor: str) -> TableRebuild:
    """Begin what a plan says, if nothing that it was made from has moved; idempotent by request id.

    Raises:
        InvalidRequest: ``plan_altered``, ``request_id_reused``.
        Refused: ``plan_outdated``.
        NotFound: ``unknown_table``.
    """

    def attempt() -> TableRebuild:
        begun = _begun_before(context, request)
        if begun is not None:
            return begun
        try:
            return _begin(context, request, actor)
        except (Refused, InvalidRequest):
            # The same request may have been under way twice, and the other one was faster.
            begun = _begun_before(context, request)
            if begun is None:
                raise
            return begun

    return tried(attempt)


def _begin(context: Context, request: BeginTableRebuild, actor: str) -> TableRebuild:
    plan = request.plan
    check_unaltered(plan)
    table = table_named(context, plan.table)
    _check_fence(context, table, plan)
    now_ms, rebuild_id = context.clock(), context.new_id()
    rebuild = TableRebuild(
        id=rebuild_id,
        kind=plan.kind,
        table=table.name,
        table_uid=table.uid,
        status=RebuildStatus.RUNNING,
        stage=Stage.BEGIN,
        plan=plan,
        epoch=1,
        lease_until_ms=now_ms + int(context.limits.lease_seconds * 1000),
        created_at_ms=now_ms,
        stage_since_ms=now_ms,
        driver=request.driver,
        progress=Progress(
            total=len(plan.segments), unit="segments", total_bytes=sum(planned.bytes for planned in plan.segments)
        ),
    )
    puts: tuple[Put, ...] = (
        # So that of two refreshes that begin at once the second sees what the first took.
        PutTable(table, table.revision),
        PutTableRebuild(rebuild, None),
        PutRequest(request.request_id, plan.request_hash, rebuild_id),
    )
    detail = {"rebuild": rebuild_id, "plan": plan.id, "segments": len(plan.segments)}
    operation = context.operation(f"begin {plan.kind.value}", table.name, actor, **detail)
    context.catalog.commit(Change(operation, puts))
    return table_rebuild_of(context, rebuild_id)


def heartbeat(context: Context, rebuild: TableRebuild, request: Heartbeat) -> HeartbeatAnswer:
    """Renew the driver's lease; an ended rebuild is answered with "stop".

    Raises:
        InvalidRequest: ``bad_stage``.
        Refused: ``epoch_outdated``.
    """
    if rebuild.ended:
        return HeartbeatAnswer(kill_asked=True, lease_until_ms=rebuild.lease_until_ms)
    check_driver(rebuild, request.epoch)
    check_driven(request.stage)
    now_ms = context.clock()
    lease_ms = now_ms + int(context.limits.lease_seconds * 1000)
    renewed = advance(rebuild, request.stage, now_ms)
    # Progress is counted here, commit by commit; what the driver counts is Spark's tasks.
    heard = {"lease_until_ms": lease_ms, "troubles": request.troubles}
    context.catalog.put_table_rebuild(renewed.model_copy(update=heard), rebuild.revision)
    return HeartbeatAnswer(kill_asked=False, lease_until_ms=lease_ms)


def read_segments(context: Context, rebuild_id: str, request: ReadSegments) -> list[Segment]:
    """What is there now of some segments of the rebuild's table; those that are gone are left out.

    Raises:
        Refused: ``rebuild_ended``, ``epoch_outdated``.
    """
    rebuild = table_rebuild_of(context, rebuild_id)
    check_driver(rebuild, request.epoch)
    return context.catalog.segments(rebuild.table_uid, request.segments)


def commit_segment(context: Context, rebuild_id: str, request: CommitSegment) -> Done:
    """Put a build in the place of the one that was read, or note why not; the same again is the same (D1, D3).

    Returns:
        What became of the segment: where somebody else was faster it was skipped, whatever the driver says.

    Raises:
        Refused: ``rebuild_ended``, ``epoch_outdated``.
    """
    rebuild = table_rebuild_of(context, rebuild_id)
    outcome = request.done

    def change(present: TableRebuild) -> tuple[TableRebuild, tuple[Put, ...]] | None:
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
    change_rebuild(context, rebuild_id, operation, change)
    return outcome


def commit_load(context: Context, rebuild_id: str, request: CommitLoad) -> TableRebuild:
    """Make all segments of a load visible at once, and end it; the same again is the same (F3).

    Segments of earlier loads with its prefix that it did not make again go in the same commit.

    Raises:
        Failed: ``ledger_imbalance``, ``quota_exceeded``.
        Refused: ``rebuild_ended``, ``epoch_outdated``, ``prefix_taken``, ``foreign_file``.
    """
    rebuild = table_rebuild_of(context, rebuild_id)
    written = sum(loaded.build.contents.rows for loaded in request.segments)
    filtered = request.read - request.skipped - written
    if filtered < 0 or (filtered and rebuild.plan.target.config.row_filter is None):
        raise Failed(
            "ledger_imbalance",
            "the load did not write what it read",
            found=f"{written} rows",
            expected=f"{request.read} read - {request.skipped} skipped",
        )

    def change(present: TableRebuild) -> tuple[TableRebuild, tuple[Put, ...]] | None:
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
        seen = forget_failure("table", table.name)
        return ended, (PutTable(table, table.revision), *puts, *gone, seen, *attempt_left(context, present))

    operation = context.operation("load", rebuild.table, "driver", rebuild=rebuild_id, segments=len(request.segments))
    return change_rebuild(context, rebuild_id, operation, change)


def finish(context: Context, rebuild_id: str, request: FinishRebuild) -> TableRebuild:
    """End a rebuild whose driver is done with every segment; the same again is the same.

    Raises:
        Refused: ``epoch_outdated``, ``segments_left``.
    """
    rebuild = table_rebuild_of(context, rebuild_id)
    if rebuild.ended:
        return rebuild
    done = context.catalog.segments_done(rebuild_id)
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

    def change(present: TableRebuild) -> tuple[TableRebuild, tuple[Put, ...]] | None:
        if present.ended:
            return None
        check_driver(present, request.epoch)
        # How many bytes a segment had is the driver's to tell, whose last sign of life came before its last commit.
        whole = present.progress.model_copy(update={"bytes": present.progress.total_bytes})
        fast = present.model_copy(update={"records_per_s": request.records_per_s, "progress": whole})
        ended = end(fast, ending(done), error, context.clock())
        good = ended.status is RebuildStatus.SUCCEEDED
        told = forget_failure("table", present.table) if good else _failure(context, present, ended.error)
        return ended, (told, *attempt_left(context, present))

    operation = context.operation(f"{rebuild.kind.value} done", rebuild.table, "driver", rebuild=rebuild_id)
    return change_rebuild(context, rebuild_id, operation, change)


def _failed_text(failed: Sequence[Done], of: int) -> str:
    return f"{len(failed)} of {of} segments failed; the first, {failed[0].segment}: {failed[0].why}"


def _failure(context: Context, rebuild: TableRebuild, error: str | None) -> PutFlag:
    return note_failure("table", rebuild.table, rebuild.id, error or "some segments failed", context.clock())


def end_badly(
    context: Context,
    rebuild: TableRebuild,
    status: RebuildStatus,
    why: str,
    actor: str,
    holds: Callable[[TableRebuild], bool] = lambda _: True,
) -> TableRebuild:
    """End a rebuild that is not done; what it committed stays."""

    def change(present: TableRebuild) -> tuple[TableRebuild, tuple[Put, ...]] | None:
        if present.ended or not holds(present):
            return None
        told = [_failure(context, present, why)] if status is RebuildStatus.FAILED else []
        return end(present, status, why, context.clock()), (*told, *attempt_left(context, present))

    operation = context.operation(f"rebuild {status.value}", rebuild.table, actor, rebuild=rebuild.id, error=why)
    return change_rebuild(context, rebuild.id, operation, change)


def fail(context: Context, rebuild: TableRebuild, request: EndRebuild) -> TableRebuild:
    """The driver gives up.

    Raises:
        Refused: ``epoch_outdated``.
    """
    epoch = rebuild.epoch if request.epoch is None else request.epoch
    why = "the driver gave up" if request.error is None else request.error
    ended = end_badly(context, rebuild, RebuildStatus.FAILED, why, "driver", lambda newest: newest.epoch == epoch)
    check_epoch(ended, epoch)
    return ended


def kill(context: Context, rebuild: TableRebuild, actor: str) -> TableRebuild:
    """End a rebuild from outside; its driver stops at its next sign of life.

    Raises:
        Refused: ``rebuild_ended``.
    """
    if rebuild.ended:
        raise Refused("rebuild_ended", f"the rebuild {rebuild.id} has ended", found=rebuild.status.value)
    return end_badly(context, rebuild, RebuildStatus.KILLED, f"killed by {actor}", actor)


def expire(context: Context, rebuild: TableRebuild) -> TableRebuild:
    """Fail a rebuild whose driver gave no sign of life, unless it gave one in this very moment."""
    return end_badly(
        context,
        rebuild,
        RebuildStatus.FAILED,
        rebuild.why_expired,
        "controller",
        lambda newest: newest.stage in DRIVEN_STAGES and context.clock() > newest.lease_until_ms,
    )


def resume(context: Context, rebuild: TableRebuild, request: ResumeRebuild, actor: str) -> TableRebuild:
    """Give a rebuild a new driver, which goes on with the segments that are not done (R22).

    Raises:
        Refused: ``rebuild_ended``, ``driver_alive``.
    """

    def change(present: TableRebuild) -> tuple[TableRebuild, tuple[Put, ...]]:
        if present.ended:
            raise Refused(
                "rebuild_ended",
                f"the rebuild {present.id} has ended",
                found=f"{present.status.value}: {present.error}",
                expected="a rebuild that runs",
                hint=f"start a new one: anew table refresh {present.table}",
            )
        silent_ms = context.clock() - (present.lease_until_ms - int(context.limits.lease_seconds * 1000))
        if silent_ms < context.limits.takeover_seconds * 1000:
            raise Refused(
                "driver_alive",
                f"the rebuild {present.id} has a driver",
                found=f"{present.driver} gave a sign of life {silent_ms} ms ago",
                expected=f"none for {int(context.limits.takeover_seconds * 1000)} ms",
                hint=f"wait a moment, or end it: anew rebuild kill {present.id}",
            )
        now_ms = context.clock()
        taken = {
            "epoch": present.epoch + 1,
            "driver": request.driver,
            "lease_until_ms": now_ms + int(context.limits.lease_seconds * 1000),
            # The new driver's signs of life begin with the first stage.
            "stage": Stage.BEGIN,
            "stage_since_ms": now_ms,
        }
        return present.model_copy(update=taken), attempt_left(context, present)

    operation = context.operation("resume rebuild", rebuild.table, actor, rebuild=rebuild.id)
    return change_rebuild(context, rebuild.id, operation, change)


def attempt_left(context: Context, rebuild: TableRebuild) -> tuple[PutReclaim, ...]:
    """The note that what a driver left in its directory, and no segment names, is to go after the grace."""
    path = builds_path(rebuild.table_uid, rebuild.id, rebuild.epoch)
    fabric, target = rebuild.plan.target.fabric, f"{rebuild.table_uid}\n{path}"
    why = f"files of {rebuild.id} that no segment names"
    return (PutReclaim(Reclaim(f"{path}@{fabric}", "attempt", fabric, target, context.reclaim_due_ms(), why)),)


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


def _check_fence(context: Context, table: Table, plan: TablePlan) -> None:
    fence = plan.fence
    found = [] if table.uid == fence.table_uid else [f"another table of the name {table.name}"]
    if table.config_hash != fence.config_hash:
        found.append(f"configuration {table.config_hash}")
    if plan.kind is not TableRebuildKind.TABLE_LOAD:
        taken = segments_in_work(context, table.uid)
        found += [f"{p.segment} is in {taken[p.segment]}" for p in plan.segments if p.segment in taken][:_MOST_NAMED]
    if found:
        raise Refused(
            "plan_outdated",
            "what the plan was made from has changed",
            found="; ".join(found),
            expected=f"configuration {fence.config_hash}, and segments that no other refresh works on",
            hint="make a new plan",
        )


def _begun_before(context: Context, request: BeginTableRebuild) -> TableRebuild | None:
    made = made_before(context, request.request_id, request.plan.request_hash)
    if made is None:
        return None
    found = context.catalog.table_rebuild(made)
    if found is None:
        raise NotFound("unknown_rebuild", "the request made something else", found=request.request_id)
    if found.table != request.plan.table:
        # What the hash was made of is the client's to say: it opens no other table's rebuild.
        raise request_id_reused(request.request_id, request.plan.request_hash)
    return found
