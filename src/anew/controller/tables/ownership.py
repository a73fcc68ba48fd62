"""Which load owns which segments: a load with the same prefix replaces them all, however it deals its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from anew.catalog.change import DropSegment, Put, PutDone
from anew.controller.engine.context import Context
from anew.controller.tables.changing import file_to_reclaim
from anew.core.errors import Refused
from anew.core.tables.rebuild import Done, SegmentOutcome, TableRebuild
from anew.core.tables.segment import Build, Segment
from anew.core.tables.table import Table
from anew.segments.layout import builds_path

_MOST_NAMED = 5


def prefix_of(rebuild: TableRebuild) -> str | None:
    """The prefix of a load; None for what has none: an import, whose segments belong to no load."""
    source = rebuild.plan.source
    return None if source is None else source.prefix or None


def left_over(context: Context, table: Table, rebuild: TableRebuild, made: Collection[str]) -> list[Segment]:
    """The segments of earlier loads with the same prefix that a load did not make again: its rows take their place."""
    prefix = prefix_of(rebuild)
    if prefix is None:
        return []
    # Those that were loaded before segments had an owner are found by the load that made their build.
    owners = _Owners(context)
    others = (segment for segment in context.catalog.segments(table.uid) if segment.name not in made)
    return [segment for segment in others if owners.of(segment) == prefix]


def check_own(context: Context, rebuild: TableRebuild, present: Collection[Segment]) -> None:
    """Raise unless the segments that a load would replace are its own, or of no load.

    Raises:
        Refused: ``prefix_taken``: a load with another prefix made a segment of that name.
    """
    prefix = prefix_of(rebuild)
    if prefix is None:
        return
    owners = _Owners(context)
    others = {segment.name: owner for segment in present if (owner := owners.of(segment)) not in (None, prefix)}
    if others:
        raise Refused(
            "prefix_taken",
            f"the prefix {prefix} would give segments the names of another load's",
            found=", ".join(f"{name} of the prefix {owner}" for name, owner in sorted(others.items())[:_MOST_NAMED]),
            expected="a prefix that gives names of its own",
            hint="load with another --prefix",
        )


def check_paths(rebuild: TableRebuild, builds: Iterable[Build]) -> None:
    """Raise unless builds lie in their own rebuild's directory: elsewhere lie the files of others.

    Raises:
        Refused: ``foreign_file``.
    """
    own = builds_path(rebuild.table_uid, rebuild.id, rebuild.epoch)
    for build in builds:
        if not build.path.startswith(f"{own}/") or ".." in build.path.split("/"):
            raise Refused(
                "foreign_file",
                "the file of a segment does not lie in the rebuild's own directory",
                found=build.path[:200],
                expected=f"a path in {own}",
                hint="commit what this rebuild wrote",
            )


def removed(context: Context, table: Table, rebuild: TableRebuild, segments: Collection[Segment]) -> tuple[Put, ...]:
    """What takes segments out of a table in the commit of the load that replaces them."""
    why = f"replaced by the load {rebuild.id}"
    puts: list[Put] = []
    for segment in segments:
        done = Done(segment=segment.name, outcome=SegmentOutcome.REMOVED, why=why)
        puts.append(DropSegment(table.uid, segment.name, segment.revision))
        puts.append(file_to_reclaim(context, table, segment.build.path, f"{segment.name} was {why}"))
        puts.append(PutDone(rebuild.id, done))
    return tuple(puts)


class _Owners:
    """The prefixes that segments belong to."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._of_rebuilds: dict[str, str | None] = {}

    def of(self, segment: Segment) -> str | None:
        """The prefix of a segment; one of before segments had any is that of the load which made its build."""
        made_by = segment.made_by
        if made_by is None:
            return segment.prefix
        if made_by not in self._of_rebuilds:
            rebuild = self._context.catalog.rebuild(made_by)
            self._of_rebuilds[made_by] = prefix_of(rebuild) if isinstance(rebuild, TableRebuild) else None
        return self._of_rebuilds[made_by]
