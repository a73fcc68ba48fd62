"""What nodes are to hold of tables, and which node holds which slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from anew.api.models import NodeReport
from anew.api.tables.segments import DesiredSegment, DesiredTable, SegmentState
from anew.controller.engine.context import Context
from anew.controller.tables.records import change_table
from anew.core.assignment import assign
from anew.core.tables.segment import Segment
from anew.core.tables.table import SLOTS, Table


def desired_tables(context: Context, node: str, fabric: str) -> tuple[DesiredTable, ...]:
    """The fabric's tables as a node is to know them: any node may be asked about any table."""
    return tuple(_desired(context, table, node) for table in context.catalog.tables() if table.fabric == fabric)


def reassign(context: Context, table: Table, nodes: list[str], reports: Iterable[NodeReport]) -> Table:
    """Give slots of lost nodes to others; a node is let go only after its successors serve (rule R25)."""
    if not nodes:
        return table
    wanted = next_slots_of(table, nodes, context.catalog.segments(table.uid), reports) if _short(table, nodes) else None
    if wanted is None or wanted == table.assignment:
        return table
    judged = table.revision

    def change(present: Table) -> tuple[Table, tuple[()]]:
        # What was judged on reports holds for the table that it was judged on.
        if present.revision != judged:
            return present, ()
        return present.model_copy(update={"assignment": wanted}), ()

    return change_table(context, table.uid, context.operation("assign segments", table.name, "controller"), change)


def next_slots_of(
    table: Table, nodes: list[str], segments: Iterable[Segment], reports: Iterable[NodeReport]
) -> dict[int, tuple[str, ...]]:
    """The assignment to work towards: successors join at once, predecessors leave when these serve every segment."""
    held = table.assignment
    target = assign(SLOTS, table.settings.replicas, nodes, held)
    serving = served_builds(table, reports)
    by_slot = defaultdict[int, list[Segment]](list)
    for segment in segments:
        by_slot[segment.slot].append(segment)
    result = {}
    for slot, wanted in target.items():
        ready = all(_serves(serving.get(node, {}), by_slot[slot]) for node in wanted)
        result[slot] = wanted if ready else tuple(dict.fromkeys((*held.get(slot, ()), *wanted)))
    return result


def served_builds(table: Table, reports: Iterable[NodeReport]) -> dict[str, dict[str, str]]:
    """Node → segment → the build that it serves."""
    return {
        report.node: {
            found.segment: found.build
            for found in report.segments
            if found.table_uid == table.uid and found.state is SegmentState.SERVING and found.build is not None
        }
        for report in reports
    }


def _serves(served: Mapping[str, str], segments: list[Segment]) -> bool:
    return all(served.get(segment.name) == segment.build.id for segment in segments)


def _short(table: Table, nodes: list[str]) -> bool:
    """Whether some slot has fewer holders than it should, or one that is to go."""
    wanted = min(table.settings.replicas, len(nodes))
    for slot in range(SLOTS):
        holders = table.nodes_of(slot)
        if len([node for node in holders if node in nodes]) != wanted or len(holders) != wanted:
            return True
    return False


def _desired(context: Context, table: Table, node: str) -> DesiredTable:
    return DesiredTable(
        uid=table.uid,
        name=table.name,
        revision=table.revision,
        columns=table.columns,
        config=table.config,
        config_hash=table.config_hash,
        skip_segment_preprocess=table.settings.skip_segment_preprocess,
        segments=tuple(
            DesiredSegment(
                name=segment.name,
                build=segment.build,
                hosted=node in table.nodes_of(segment.slot),
                reload=table.reload_of(segment.name),
                redealt=segment.redealt,
            )
            for segment in context.catalog.segments(table.uid)
        ),
    )
