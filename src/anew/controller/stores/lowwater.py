"""Low-water marks: below them nobody needs a feed's records any more (rule R2)."""

from __future__ import annotations

import structlog

from anew.catalog.change import PutReclaim, Reclaim
from anew.controller.engine.context import Context
from anew.controller.stores.feeds import offsets_at
from anew.controller.stores.records import change_store
from anew.core.errors import AnewError, Unreachable
from anew.core.stores.retention import low_water, may_forget
from anew.core.stores.store import Store

_LOG = structlog.get_logger("anew.controller")


def move_low_water(context: Context, store: Store) -> None:
    """Move the low-water marks in the catalog first; the logs are truncated after the grace (rule R2).

    Raises:
        Unreachable: A log does not answer.
    """
    if not store.feeds or not all(feed.ready for feed in store.feeds):
        return
    asked = may_forget(store)
    if not asked:
        return
    now_ms = context.clock()
    try:
        at_rewind = offsets_at(context.fabrics, store.feeds, now_ms - store.config.rewind_seconds * 1000, asked)
    except Unreachable:
        raise
    except AnewError as error:
        _LOG.warning("low_water_not_moved", store=store.name, **error.to_json())
        return
    due_ms = context.reclaim_due_ms()

    def change(present: Store) -> tuple[Store, tuple[PutReclaim, ...]]:
        marks = low_water(present, at_rewind)
        feeds = tuple(feed.model_copy(update={"low_water": marks[feed.id]}) for feed in present.feeds)
        puts = [
            PutReclaim(_truncation(feed.fabric, feed.topic, feed.topic_uid, at.partition, mark, due_ms))
            for feed, before in zip(feeds, present.feeds, strict=True)
            for at, mark in zip(feed.feed_partitions(), feed.low_water, strict=True)
            if mark > before.low_water[at.partition]
        ]
        return present.model_copy(update={"feeds": feeds}), tuple(puts)

    change_store(context, store.uid, context.operation("low water", store.name, "controller"), change)


def _truncation(fabric: str, topic: str, uid: str, partition: int, offset: int, due_ms: int) -> Reclaim:
    target = f"{topic}\n{uid}\n{partition}\n{offset}"
    return Reclaim(f"truncate/{uid}/{partition}/{offset}", "truncate", fabric, target, due_ms, "below low water")
