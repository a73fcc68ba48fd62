"""``catalog restore``: a lost catalog made again from the records and manifests in the deep stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anew.api.models import RestoreCatalog
from anew.api.upkeep import RestoredCatalog, RestoredStore, RestoredVersion
from anew.catalog.change import CheckEmpty, Put, PutFlag, PutReclaim, PutRequest, PutRestored, RaiseCounter
from anew.catalog.interface import Catalog
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.controller.engine.requests import made_before
from anew.controller.restore.findings import look
from anew.controller.restore.stores import Rebuilt, era_after, outlived, rebuilt
from anew.controller.restore.tables import puts_of, restored_tables
from anew.controller.restore.topicsandjobs import RebuiltTopic, restored_documents
from anew.controller.stores.reclaim import all_of, notes_of
from anew.core.confighash import value_hash
from anew.core.errors import Failed, Refused
from anew.core.feed import Feed
from anew.core.stores.names import incarnation_counter
from anew.core.stores.store import Store, VersionStatus
from anew.log.interface import topic_partition

_SCHEMA_GAP = 1_000
"""Schema ids that were given after the last record must not be given again: records in a log may name them."""


def restore(context: Context, request: RestoreCatalog, actor: str) -> RestoredCatalog:
    """Make the catalog again, in one transaction; a dry run says what would be made.

    Raises:
        Refused: ``catalog_not_empty``, ``nothing_to_restore``; nothing was changed.
        InvalidRequest: ``request_id_reused``.
        Unreachable: A deep store or a log does not answer; nothing was changed.
    """
    before = _made_before(context, request)
    if before is not None:
        return before
    found = look(context.fabrics.values())
    made = [one for of in found if (one := rebuilt(of, tuple(context.fabrics), context.clock())) is not None]
    _let_one_live(made, context.clock())
    for one in made:
        _follow_logs(context, one)
    tables = restored_tables(context)
    documents = restored_documents(context)
    used = (one.store.revision for one in made), (one.greatest for one in tables.tables), documents.revisions
    first = era_after(revision for of in used for revision in of)
    answer = RestoredCatalog(
        dry_run=request.dry_run,
        empty=_is_empty(context.catalog),
        stores=tuple(_shown(one) for one in made),
        tables=tuple(one.shown() for one in tables.tables),
        topics=documents.shown_topics(),
        jobs=documents.shown_jobs(),
        notes=(*tables.notes, *documents.notes),
    )
    if request.dry_run:
        return answer
    if not (made or tables.tables or documents.topics or documents.jobs):
        raise Refused(
            "nothing_to_restore",
            "the deep stores hold nothing to make a catalog from",
            found={fabric.name: fabric.deep_store.root_uri for fabric in context.fabrics.values()},
            expected="records of stores, tables, topics or jobs, or manifests of versions",
            hint="is this the home of the lost catalog?",
        )
    puts: list[Put] = [CheckEmpty()]
    if request.request_id is not None:
        puts.append(PutRequest(request.request_id, _body_hash(), answer.model_dump_json()))
    for one in made:
        puts.append(PutRestored(one.store.model_copy(update={"revision": first})))
        puts += [] if one.displaced else list(_reclaims(context, one.store))
    puts += _counters((one.store for one in made), documents.topics)
    puts += documents.puts(context, first)
    puts += puts_of(context, tables, first)
    puts.append(RaiseCounter("revision", first))
    names = {
        "stores": [one.store.name for one in made],
        "tables": [one.table.name for one in tables.tables],
        "topics": [one.topic.name for one in documents.topics],
        "jobs": [one.job.name for one in documents.jobs],
    }
    operation = context.operation("restore catalog", "cluster", actor, **names)
    commit(context, operation, *puts)
    return answer


def _is_empty(catalog: Catalog) -> bool:
    live = catalog.stores() or catalog.tables() or catalog.topics() or catalog.jobs()
    deleted = catalog.deleted_stores() or catalog.deleted_tables() or catalog.deleted_topics()
    return not (live or deleted or catalog.deleted_jobs())


def _made_before(context: Context, request: RestoreCatalog) -> RestoredCatalog | None:
    made = made_before(context, request.request_id, _body_hash())
    return None if made is None else RestoredCatalog.model_validate_json(made)


def _body_hash() -> str:
    return value_hash({"restore": "catalog"})


def _let_one_live(made: list[Rebuilt], now_ms: int) -> None:
    """Of stores with one name the newest lives."""
    older = outlived(one.store for one in made)
    for one in made:
        if one.store.uid in older:
            one.notes.append("a younger store has its name: it counts as deleted; its files stay")
            one.store, one.displaced = one.store.model_copy(update={"deleted_at_ms": now_ms}), True


def _follow_logs(context: Context, one: Rebuilt) -> None:
    """Low-water marks from the logs themselves; a topic that is not there any more is told of."""
    store = one.store
    if store.deleted_at_ms is not None:
        return
    feeds = tuple(_as_in_log(context, feed, one) if feed.ready else feed for feed in store.feeds)
    one.store = store.model_copy(update={"feeds": feeds})


def _as_in_log(context: Context, feed: Feed, one: Rebuilt) -> Feed:
    log = context.fabrics[feed.fabric].log
    topic = log.topic(feed.topic)
    if topic is None or topic.uid != feed.topic_uid:
        one.notes.append(f"the topic {feed.topic} of {feed.fabric} is lost: its nearline writes cannot be applied")
        return feed
    try:
        marks = tuple(
            max(low, log.offsets(topic_partition(feed, partition)).begin)
            for partition, low in enumerate(feed.low_water)
        )
    except Failed as error:
        one.notes.append(f"the topic {feed.topic} of {feed.fabric}: {error.message}")
        return feed
    return feed.model_copy(update={"low_water": marks})


def _reclaims(context: Context, store: Store) -> Iterator[PutReclaim | PutFlag]:
    """The intents that were lost with the catalog (rule R22)."""
    if store.deleted_at_ms is not None:
        yield from all_of(context, store)
        return
    for version in store.versions:
        for fabric, there in version.fabrics.items():
            if there.status is VersionStatus.RETIRED:
                yield from notes_of(context, store, version, fabric, "retired before")


def _counters(stores: Iterator[Store], topics: Iterable[RebuiltTopic]) -> list[Put]:
    greatest: dict[str, int] = {}
    for one in topics:
        topic = one.topic
        ids = (number for number in (topic.key_schema_id, topic.value_schema_id) if number is not None)
        greatest["schema_id"] = max(greatest.get("schema_id", 0), *ids, 0)
        name = f"incarnation/{topic.fabric}/{topic.name}"
        greatest[name] = max(greatest.get(name, 0), topic.incarnation)
    for store in stores:
        greatest["schema_id"] = max(greatest.get("schema_id", 0), *store.schemas, store.key_schema_id)
        for feed in store.feeds:
            name = incarnation_counter(store.name, feed.fabric)
            greatest[name] = max(greatest.get(name, 0), feed.incarnation)
    if "schema_id" in greatest:
        greatest["schema_id"] += _SCHEMA_GAP
    return [RaiseCounter(name, number) for name, number in sorted(greatest.items())]


def _shown(one: Rebuilt) -> RestoredStore:
    store = one.store
    versions = (
        RestoredVersion(
            number=version.number,
            statuses={fabric: status.value for fabric, status in version.statuses.items()},
            rows=None if version.manifest is None else version.manifest.rows,
        )
        for version in store.versions
    )
    return RestoredStore(
        name=store.name,
        uid=store.uid,
        source=one.source,
        current=dict(store.current),
        next_version=store.next_version,
        deleted=store.deleted_at_ms is not None,
        versions=tuple(versions),
        notes=tuple(one.notes),
    )
