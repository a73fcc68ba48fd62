"""What is committed of a segment: a build in the place of the one that was read, or why not (cases C and D)."""

from __future__ import annotations

from dataclasses import dataclass

from anew.api.tables.requests import CommitSegment, LoadedSegment
from anew.catalog.change import Put, PutConfig, PutReclaim, PutSegment, PutTable, Reclaim
from anew.controller.engine.context import Context
from anew.controller.tables.changing import file_to_reclaim
from anew.controller.tables.ownership import check_paths
from anew.core.errors import Failed, InvalidRequest
from anew.core.tables.plan import TableRebuildKind
from anew.core.tables.rebuild import Done, SegmentOutcome, TableRebuild
from anew.core.tables.segment import Build, Failure, Segment, may_be_the_same_rows, same_content
from anew.core.tables.table import Table
from anew.segments.layout import builds_path

_DELETED = "the segment was deleted meanwhile"
_SUPERSEDED = "another build took its place meanwhile"


@dataclass(frozen=True, slots=True)
class Held:
    """What the catalog holds when a driver says what became of a segment."""

    table: Table | None
    segment: Segment | None


@dataclass(frozen=True, slots=True)
class Owned:
    """To which load a segment belongs, see `Segment`."""

    prefix: str | None
    redealt: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a segment, and what is written for it."""

    done: Done
    puts: tuple[Put, ...] = ()


def judged(context: Context, rebuild: TableRebuild, held: Held, request: CommitSegment) -> Judged:
    """What is to be committed: compare-and-swap against the build that was read (cases C1, C2, D1, D4)."""
    segment, done, target = held.segment, request.done, rebuild.plan.target
    if all(planned.segment != done.segment for planned in rebuild.plan.segments):
        raise InvalidRequest(
            "unplanned_segment", f"the plan of {rebuild.id} does not name this segment", found=done.segment
        )
    if segment is None or held.table is None or held.table.deleted_at_ms is not None:
        return Judged(_skipped(done, _DELETED))
    if segment.build.id != request.read:
        return Judged(_skipped(done, _SUPERSEDED))
    if done.outcome is SegmentOutcome.SKIPPED or (done.outcome is SegmentOutcome.FAILED and request.try_again):
        return Judged(done)
    if done.outcome is SegmentOutcome.FAILED:
        failure = Failure(config_hash=target.config_hash, error=done.why or "", at_ms=context.clock())
        return Judged(done, _fenced(held.table, segment.model_copy(update={"failure": failure})))
    build = (
        _repaired(context, rebuild, segment.build, request.build)
        if rebuild.kind is TableRebuildKind.TABLE_REPAIR
        else _of_the_plan(rebuild, segment.build, request.build)
    )
    _check_rows(segment.build, build, done)
    after = segment.model_copy(update={"build": build, "failure": None})
    puts: tuple[Put, ...] = (*_fenced(held.table, after), PutConfig(target.config))
    if build.path != segment.build.path:
        puts = (*puts, _replaced(context, held.table, segment))
    return Judged(done, puts)


def _fenced(table: Table, after: Segment) -> tuple[Put, ...]:
    """A segment in the place of the one that was judged, not of another that got its name since (rule R16).

    Revisions of a segment that was dropped and made again begin anew; those of its table do not.
    """
    return (PutTable(table, table.revision), PutSegment(after, after.revision))


def _of_the_plan(rebuild: TableRebuild, before: Build, build: Build | None) -> Build:
    """A fresh file of this very driver, or the one that was read, found to be right as it is (cases A4, D2)."""
    wanted = rebuild.plan.target.config_hash
    if build is None or build.config_hash != wanted:
        raise InvalidRequest(
            "bad_build",
            "the build is not one of the plan's configuration",
            found=None if build is None else f"{build.id} with {build.config_hash}",
            expected=wanted,
        )
    own = builds_path(rebuild.table_uid, rebuild.id, rebuild.epoch)
    fresh = build.path.startswith(f"{own}/") and ".." not in build.path.split("/") and build.id != before.id
    if not fresh and (build.id, build.path, build.sha256) != (before.id, before.path, before.sha256):
        raise InvalidRequest(
            "bad_build",
            "the build is neither a file of this driver's own nor the one that was read",
            found=f"{build.id} at {build.path}",
            expected=f"a path in {own}, or {before.id} at {before.path} with the same bytes",
        )
    return build


def _repaired(context: Context, rebuild: TableRebuild, before: Build, after: Build | None) -> Build:
    """A repair brings the very bytes back, or what a node made of them with a configuration that is known."""
    same = after is not None and (after.id, after.sha256) == (before.id, before.sha256)
    if after is None or not (same or _is_known_copy(context, before, after)):
        raise InvalidRequest(
            "bad_build",
            "this is neither the file that was lost nor a copy that a node made of it",
            found=None if after is None else f"{after.id} with sha256 {after.sha256}",
            expected=f"{before.id} with sha256 {before.sha256}",
        )
    if after.path != before.path:
        check_paths(rebuild, [after])
    return after


def _is_known_copy(context: Context, before: Build, after: Build) -> bool:
    known = after.config_hash is not None and context.catalog.table_config(after.config_hash) is not None
    return known and after.id != before.id and may_be_the_same_rows(before.contents, after.contents)


def _check_rows(before: Build, after: Build, done: Done) -> None:
    """Rows read = rows written + rows filtered (case C8)."""
    if before.contents.rows != after.contents.rows + done.filtered:
        raise Failed(
            "ledger_imbalance",
            f"the build of {done.segment} does not hold what was read",
            found=f"{after.contents.rows} rows written, {done.filtered} filtered",
            expected=f"{before.contents.rows} rows",
        )


def _replaced(context: Context, table: Table, segment: Segment) -> PutReclaim:
    note = file_to_reclaim(context, table, segment.build.path, f"{segment.name} has another build").reclaim
    kept_ms = context.clock() + table.settings.backup_retention_seconds * 1000
    due_ms = max(note.not_before_ms, kept_ms)
    return PutReclaim(Reclaim(note.id, note.kind, note.fabric, note.target, due_ms, note.reason))


def _skipped(done: Done, why: str) -> Done:
    return Done(segment=done.segment, outcome=SegmentOutcome.SKIPPED, why=why)


def pushed(
    context: Context, table: Table, present: Segment | None, loaded: LoadedSegment, slot: int, owned: Owned
) -> tuple[SegmentOutcome, list[Put]]:
    """A build that a user brought: a new segment, a new build of one that is there (D5), or the same content (D6).

    Args:
        context: The controller's.
        table: Which the segment belongs to.
        present: The segment of that name, if there is one.
        loaded: What was brought.
        slot: Where a new segment belongs.
        owned: To which load it belongs.
    """
    now_ms, build = context.clock(), loaded.build
    if present is None:
        segment = Segment(
            table_uid=table.uid,
            name=loaded.segment,
            slot=slot,
            created_at_ms=now_ms,
            pushed_at_ms=now_ms,
            build=build,
            prefix=owned.prefix,
            redealt=owned.redealt,
        )
        return SegmentOutcome.LOADED, [PutSegment(segment, None)]
    # What was dealt otherwise once stays so: a node may have a copy from before.
    belongs = {"prefix": owned.prefix, "redealt": owned.redealt or present.redealt}
    if same_content(present.build, build):
        noted = present.model_copy(update={"pushed_at_ms": now_ms, **belongs})
        return SegmentOutcome.SAME, [PutSegment(noted, present.revision)]
    after = present.model_copy(update={"build": build, "pushed_at_ms": now_ms, "failure": None, **belongs})
    return SegmentOutcome.LOADED, [PutSegment(after, present.revision), _replaced(context, table, present)]
