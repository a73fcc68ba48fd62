"""Deciding about values whose schema nobody knows: once, in the catalog, for all replicas and scans (rule R21)."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from anew.api.stores.replicas import UnknownSchema
from anew.controller.engine.context import Context
from anew.controller.stores.records import change_store
from anew.controller.stores.schemas import registered_since
from anew.core.errors import AnewError, Refused
from anew.core.stores.store import Store
from anew.log.interface import topic_partition

_LOG = structlog.get_logger("anew.controller")


def settle(context: Context, unknown: Iterable[UnknownSchema]) -> None:
    """Decide about what nodes wait at; what cannot be decided now is asked again with the next report.

    Everything that the partition holds by now is decided with it, so that many bad records cost one decision. Whoever
    writes by our schemas had them registered before, and the store is read after the end: no such record is rejected.
    Under a schema registry the store first gets the schemas that others registered for its topic; a registry that does
    not answer is waited for.
    """
    for one in unknown:
        try:
            _settle(context, one)
        except AnewError as error:
            _LOG.warning("schema_not_settled", **error.to_json())


def _settle(context: Context, unknown: UnknownSchema) -> None:
    known = context.catalog.store_by_uid(unknown.store_uid)
    feed = None if known is None else known.feed(unknown.feed)
    if known is None or feed is None or _is_decided(known, unknown):
        return
    end = context.fabrics[feed.fabric].log.offsets(topic_partition(feed, unknown.partition)).end
    # After the end: who wrote a record below it had its schema registered before.
    taken = registered_since(context, known, feed.topic)

    def change(present: Store) -> tuple[Store, tuple[()]]:
        if _is_decided(present, unknown):
            return present, ()
        if taken:
            if present.schemas != known.schemas:
                raise Refused("revision_conflict", "the store got a schema meanwhile", found=list(present.schemas))
            present = present.model_copy(update={"schemas": {**present.schemas, **taken}})
            if _is_decided(present, unknown):
                return present, ()
        newest, below = present.newest_schema_id, max(end, unknown.offset + 1)
        feeds = tuple(
            one.with_settled(unknown.partition, below, newest) if one.id == unknown.feed else one
            for one in present.feeds
        )
        return present.model_copy(update={"feeds": feeds}), ()

    detail = unknown.model_dump(exclude={"store_uid"})
    operation = context.operation("reject unknown schema", known.name, "controller", **detail)
    change_store(context, unknown.store_uid, operation, change)


def _is_decided(store: Store, unknown: UnknownSchema) -> bool:
    """Whether the node only has to hear what is known by now."""
    feed = store.feed(unknown.feed)
    if store.deleted_at_ms is not None or feed is None or unknown.schema_id in store.schemas:
        return True
    settled = feed.settled_in(unknown.partition)
    return bool(settled) and settled[-1].below > unknown.offset
