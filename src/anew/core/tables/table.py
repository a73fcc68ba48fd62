"""The table aggregate: columns, settings, the configuration wanted now, and which nodes hold what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from anew.core.assignment import assign
from anew.core.errors import InvalidRequest, Refused
from anew.core.schedule import ScheduleState
from anew.core.tables.columns import Column
from anew.core.tables.config import SegmentConfig, segment_config
from anew.core.tables.settings import TableSettings

SLOTS = 64
"""Into how many places a table's segments are dealt, each of which some nodes hold."""

EVERY_SEGMENT = "*"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Table(BaseModel):
    """A table, without its segments.

    Attributes:
        uid: Of this table alone; a later one of the same name has another (rule R16).
        fabric: Where its segments and nodes are.
        settings: All of them; ``config`` is what of them and of the columns decides a segment's bytes.
        made: How many segments were ever made: the next one's slot follows from it.
        assignment: Slot → nodes that hold its segments, or are to.
        reloads: Segment, or `EVERY_SEGMENT`, → how often nodes were asked to make their copies again.
        schedule_state: What the refresh task did last.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    uid: str
    name: str
    fabric: str
    columns: tuple[Column, ...]
    settings: TableSettings
    config: SegmentConfig
    config_hash: str
    created_at_ms: int
    deleted_at_ms: int | None = None
    made: int = 0
    assignment: dict[int, tuple[str, ...]] = {}
    reloads: dict[str, int] = {}
    schedule_state: ScheduleState | None = None
    revision: int = 0

    def nodes_of(self, slot: int) -> tuple[str, ...]:
        """Which nodes hold a slot's segments, or are to."""
        return self.assignment.get(slot, ())

    def reload_of(self, segment: str) -> int:
        """How often nodes were asked to make their copies of a segment again."""
        return self.reloads.get(EVERY_SEGMENT, 0) + self.reloads.get(segment, 0)


def check_table_name(name: str) -> None:
    """Raise unless a table may be called so.

    Raises:
        InvalidRequest: ``bad_name``.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            "bad_name",
            "this is no name for a table",
            found=name,
            expected="a letter, then a-z, 0-9, _; ≤ 64",
        )


def next_slots(table: Table, count: int) -> tuple[Table, tuple[int, ...]]:
    """The slots of segments that are made now, dealt in turn, and the table that knows of them."""
    slots = tuple((table.made + number) % SLOTS for number in range(count))
    return table.model_copy(update={"made": table.made + count}), slots


def assigned(table: Table, nodes: Sequence[str]) -> Table:
    """The table with its slots on these nodes; what fits stays where it is."""
    return table.model_copy(
        update={"assignment": assign(SLOTS, table.settings.replicas, list(nodes), dict(table.assignment))}
    )


def asked_to_reload(table: Table, segment: str | None) -> Table:
    """The table whose nodes are to make their copies again, of one segment or of all for None."""
    what = EVERY_SEGMENT if segment is None else segment
    return table.model_copy(update={"reloads": {**table.reloads, what: table.reloads.get(what, 0) + 1}})


def changed(table: Table, columns: tuple[Column, ...] | None, settings: Mapping[str, Any]) -> Table:
    """The table with other columns (None: the same) or settings.

    Raises:
        InvalidRequest: They do not fit one another.
    """
    after_columns = table.columns if columns is None else columns
    after_settings = table.settings.model_copy(update=dict(settings))
    config = segment_config(after_columns, after_settings)
    return table.model_copy(
        update={
            "columns": after_columns,
            "settings": after_settings,
            "config": config,
            "config_hash": config.hash,
        }
    )


def check_not_deleted(table: Table) -> None:
    """Raise unless the table is there.

    Raises:
        Refused: ``table_deleted``.
    """
    if table.deleted_at_ms is not None:
        raise Refused("table_deleted", f"the table {table.name} was deleted", found=table.uid)
