"""Dead letters set aside: each record that no version applies is copied, as it is, to its store's dead-letter topic.

The catalog has decided before (rule R21); what is copied here is for people. Copying comes before the note that it was
done, so that a crash in between copies again: every copy says of which record it is. The topic is made with the first
dead letter, under a uid that follows from the store's, so that a creation whose answer was lost knows its own; the flag
holds the identity that the log gave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import structlog

from anew.catalog.change import Put, PutFlag, PutReclaim, PutSetAside, Reclaim
from anew.controller.engine.apart import Apart
from anew.controller.engine.commit import commit
from anew.controller.engine.context import Context
from anew.core.admission import Rejection
from anew.core.feed import Feed
from anew.core.stores.names import dead_letter_topic
from anew.core.stores.store import Store
from anew.log.interface import SetAside, TopicPartition, TopicSpec, record_bytes, topic_partition

_MOST_PER_ROUND = 1_000
_LOG = structlog.get_logger("anew.controller")


def set_aside(context: Context, apart: Apart) -> None:
    """Copy what waits; what cannot be copied now waits for the next round, and keeps nothing else waiting.

    Of each feed partition it is noted at once that its letters were copied: were that said of all together, one that
    cannot be read would have the others copied again in every round.
    """
    for uid in context.catalog.dead_letter_counts(waiting=True):
        store = context.catalog.store_by_uid(uid)
        letters = context.catalog.waiting_dead_letters(uid, _MOST_PER_ROUND)
        if store is None:
            with apart.step(f"dead letters of {uid}"):
                _note(context, uid, letters, 0)
        elif store.deleted_at_ms is not None:
            with apart.step(f"dead letters of {store.name}"):
                # Its topic may have been made while the others were reclaimed.
                left = dead_letters_left(store, context.reclaim_due_ms(), f"{store.name} deleted")
                _note(context, uid, letters, 0, left)
        else:
            for (feed_id, partition), some in groupby(letters, lambda letter: (letter.feed, letter.partition)):
                with apart.step(f"dead letters of {feed_id}/{partition}"):
                    _copy(context, store, feed_id, partition, tuple(some))


def dead_letters_left(store: Store, due_ms: int, why: str) -> list[PutReclaim | PutFlag]:
    """The notes that a deleted store's dead-letter topics are to go."""
    puts: list[PutReclaim | PutFlag] = []
    for fabric in sorted({feed.fabric for feed in store.feeds}):
        target = f"{dead_letter_topic(store.name)}\n{_made_uid(store)}"
        puts.append(PutReclaim(Reclaim(f"{store.uid}/dead-letters/{fabric}", "topic", fabric, target, due_ms, why)))
        puts.append(PutFlag(_flag(store, fabric), None))
    return puts


def _made_uid(store: Store) -> str:
    return f"{store.uid}-dead-letters"


def _flag(store: Store, fabric: str) -> str:
    return f"dead_letter_topic/{store.uid}/{fabric}"


def _copy(context: Context, store: Store, feed_id: str, partition: int, letters: Sequence[Rejection]) -> None:
    feed, copied = store.feed(feed_id), 0
    if feed is not None:
        to, log = _topic(context, store, feed), context.fabrics[feed.fabric].log
        wanted = [SetAside(letter.offset, letter.reason) for letter in letters]
        copied = log.set_aside(topic_partition(feed, partition), wanted, to)
        present = context.catalog.store_by_uid(store.uid)
        if present is None or present.deleted_at_ms is not None:
            return  # the next round lets go of the topic
    _note(context, store.uid, letters, copied)


def _topic(context: Context, store: Store, feed: Feed) -> TopicPartition:
    """The topic's only partition; made where it is not there.

    Raises:
        Refused: ``topic_exists``: somebody else has a topic of that name.
    """
    log, name, flag = context.fabrics[feed.fabric].log, dead_letter_topic(store.name), _flag(store, feed.fabric)
    present = log.topic(name)
    uid = None if present is None else present.uid
    if uid is None or uid != context.catalog.flags().get(flag):
        largest = record_bytes(record_bytes(store.config.max_value_bytes))
        uid = log.create_topic(TopicSpec(name, _made_uid(store), 1, largest)).uid
        operation = context.operation("dead-letter topic made", store.name, "controller", topic=name)
        commit(context, operation, PutFlag(flag, uid))
    return TopicPartition(name, uid, 0)


def _note(
    context: Context, store_uid: str, letters: Sequence[Rejection], copied: int, more: Sequence[Put] = ()
) -> None:
    operation = context.operation("dead letters set aside", store_uid, "controller", count=len(letters), copied=copied)
    commit(context, operation, PutSetAside(tuple(letters)), *more)
    _LOG.info("dead_letters_set_aside", store=store_uid, count=len(letters), copied=copied)
