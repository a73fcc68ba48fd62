"""Topics that forget nothing for a while, because rebuilds read their history: held, and kept as before afterwards.

1. A rebuild begins: its hold is in the topic's document, in the same commit. Logs that have no service of their own
   forget nothing from then on.
2. What the log keeps is noted. A crash after it: nothing was changed.
3. The log is told to keep everything. A crash after it: it is told again, which changes nothing.
4. The note says that it was told. From now on an operator's change is his: it is never undone.
5. The last rebuild needs it no more, or is gone. Where the log still keeps everything it is told to keep what it did
   before; where somebody has changed that meanwhile, it stays. A crash after it: the next round finds that changed.
6. The note goes.
"""

from __future__ import annotations

import structlog

from anew.catalog.change import Put
from anew.controller.engine.apart import Apart
from anew.controller.engine.context import Context
from anew.controller.topics.records import change_topic
from anew.core.topics.topic import Hold, Kept, Topic
from anew.log.interface import KEEP_FOR_EVER, Retention

_LOG = structlog.get_logger("anew.controller")


def settle_holds(context: Context, apart: Apart) -> None:
    """Hold the topics that are to be held, and let go of those that nobody needs; an error of one stops no other."""
    for topic in context.catalog.topics():
        if topic.hold is None or not topic.ready:
            continue
        needs = {("topics", topic.fabric)}
        if apart.away.isdisjoint(needs):
            with apart.step(f"retention of {topic.name}", needs=needs):
                _settle(context, topic)


def _settle(context: Context, topic: Topic) -> None:
    hold = topic.hold
    assert hold is not None, "it is held"
    needing = tuple(holder for holder in hold.by if _needs(context, holder.rebuild))
    if needing != hold.by:
        topic = _noted(context, topic, hold.model_copy(update={"by": needing}), "history released")
        hold = topic.hold or hold
    log = context.fabrics[topic.fabric].log
    present = log.facts(topic.name, topic.topic_uid).retention
    if not hold.by:
        if hold.before is not None and present == KEEP_FOR_EVER:
            log.set_retention(topic.name, topic.topic_uid, Retention(hold.before.time_ms, hold.before.partition_bytes))
            _LOG.info("retention_restored", topic=topic.name, **hold.before.model_dump())
        _noted(context, topic, None, "retention restored")
        return
    if hold.before is None:
        before = Kept(time_ms=present.time_ms, partition_bytes=present.partition_bytes)
        hold = hold.model_copy(update={"before": before})
        topic = _noted(context, topic, hold, "history held")
    if not hold.lifted:
        log.set_retention(topic.name, topic.topic_uid, KEEP_FOR_EVER)
        _LOG.info("retention_lifted", topic=topic.name, held_by=[each.name for each in hold.by])
        _noted(context, topic, hold.model_copy(update={"lifted": True}), "retention lifted")


def _needs(context: Context, rebuild_id: str) -> bool:
    """Whether a rebuild still reads the history that is held for it; where nobody can say now it does."""
    rebuild = context.catalog.rebuild(rebuild_id)
    return rebuild is not None and context.subjects.of(rebuild).reads_history(context, rebuild)


def _noted(context: Context, topic: Topic, hold: Hold | None, what: str) -> Topic:
    """The topic with another note, unless somebody else has changed the note: then the next round looks again."""

    def change(present: Topic) -> tuple[Topic, tuple[Put, ...]]:
        is_same = present.hold == topic.hold
        return (present.model_copy(update={"hold": hold}) if is_same else present), ()

    return change_topic(context, topic.uid, context.operation(what, topic.name, "controller"), change)
