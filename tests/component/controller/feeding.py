"""What the wing of jobs does with stores, for tests: it commits pure changes, and generations append records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from anew.controller.engine.nodes import live_reports
from anew.controller.stores.feeds import ends_of, ensure_feeds
from anew.controller.stores.output import new_feed, write_bases
from anew.controller.stores.readiness import Readiness, judge
from anew.controller.stores.records import change_store
from anew.core.feed import Feed, PositionMap
from anew.core.identity import identified_origins, sequences
from anew.core.partition import XxHash64Partitioner
from anew.core.stamp import Origin, OriginKind
from anew.core.stores.following import Follower, begin_following, cut_back, cut_over
from anew.core.stores.jobfeeds import add_feed
from anew.core.stores.store import Store
from anew.log.interface import APPEND_RECORDS, topic_partition
from anew.segments.layout import version_path
from anew.testing.builders import FABRIC
from tests.component.controller.harness import Cluster

JOB = "clicks"


def origin_of(generation: int) -> Origin:
    """A generation of the job."""
    return Origin(OriginKind.JOB, JOB, generation)


def change(cluster: Cluster, what: str, act: Callable[[Store], Store]) -> Store:
    """Commit a change of the store."""
    operation = cluster.context.operation(what, "flights", "job clicks")
    return change_store(cluster.context, cluster.store().uid, operation, lambda present: (act(present), ()))


def announced(cluster: Cluster, generation: int) -> Feed:
    """A feed for a generation, which nothing names yet."""
    return new_feed(cluster.context, cluster.store(), origin_of(generation), FABRIC)


def feed_in_place(cluster: Cluster, generation: int) -> Feed:
    """Begin a generation that writes into all versions; its feed, ready."""
    feed = announced(cluster, generation)
    change(cluster, "add feed", lambda store: add_feed(store, feed))
    make(cluster)
    return known(cluster, feed)


def follow(cluster: Cluster, generation: int, *replaces: Feed, from_first_record: bool = True) -> tuple[Feed, int]:
    """Begin a generation with a version of its own; its feed, and the version's number."""
    feed = announced(cluster, generation)
    context = cluster.context
    ends = ends_of(context.fabrics, cluster.store().real_time_feeds)

    def begin(store: Store) -> Store:
        path = version_path(store.uid, store.next_version, "rewind", 1)
        made = Follower(feed, tuple(each.id for each in replaces), from_first_record, "rewind", path)
        return begin_following(store, made, ends, context.clock())

    number = change(cluster, "begin following", begin).versions[-1].number
    return feed, number


def make(cluster: Cluster) -> None:
    """Make what the store announces: topics, and empty bases."""
    write_bases(cluster.context, ensure_feeds(cluster.context, cluster.store().uid))


def known(cluster: Cluster, feed: Feed) -> Feed:
    """A feed as the catalog has it now."""
    found = cluster.store().feed(feed.id)
    assert found is not None
    return found


def put_out(cluster: Cluster, feed: Feed, count: int, batch: int = 0) -> None:
    """Append that many records of the generation whose feed it is."""
    feed = known(cluster, feed)
    origin = Origin.decode(feed.origin_bytes)
    for number in range(count):
        key = f"key-{number}".encode()
        (carried,) = identified_origins(origin, batch, sequences(0, 1, number, 1)).to_pylist()
        record = {"written_ms": cluster.clock(), "origin": carried, "key": key, "schema_id": 1, "value": b"value"}
        at = topic_partition(feed, XxHash64Partitioner(feed.partitions).of(key))
        cluster.log.append(at, pa.RecordBatch.from_pylist([record], schema=APPEND_RECORDS))


def readiness(cluster: Cluster, version: int, target: PositionMap) -> Readiness:
    """How far a version is."""
    store, reports = cluster.store(), live_reports(cluster.context, (FABRIC,))[FABRIC]
    return judge(store, cluster.version(version), FABRIC, reports, target)


def ends(cluster: Cluster, *feeds: Feed) -> PositionMap:
    """The ends of feeds."""
    return ends_of(cluster.context.fabrics, tuple(known(cluster, feed) for feed in feeds))


def cut(cluster: Cluster, number: int, live: Feed | None) -> Store:
    """Cut over to a version."""
    now_ms, feed = cluster.clock(), None if live is None else live.id
    return change(cluster, "cut over", partial(_cut_over, number, feed, now_ms))


def cut_again(cluster: Cluster, live: Feed) -> Store:
    """Cut back."""
    now_ms = cluster.clock()
    return change(cluster, "cut back", lambda store: cut_back(store, live.id, now_ms))


def _cut_over(number: int, live: str | None, now_ms: int, store: Store) -> Store:
    return cut_over(store, number, live, now_ms)
