"""Topics that forget nothing for a while, because rebuilds read their history: held, and kept as before afterwards.

1. A rebuild begins: its hold is in the topic's document, in the same commit, and the log is to be told (again). Logs
   that have no service of their own forget nothing from then on.
2. What the log keeps is noted, unless it keeps everything: then that may be our own word, and what was noted stays. A
   crash after it: nothing was changed.
3. The log is told to keep everything. A crash after it: it is told again, which changes nothing.
4. The note says that it was told. From now on an operator's change is his: it is never undone.
5. The last rebuild needs it no more, or is gone. The note says that the log is not to be taken as told.
6. Where the log still keeps everything it is told to keep what it did before; where somebody has changed that
   meanwhile, it stays. A crash after it: the next round finds that changed.
7. The note goes.

Each note is taken only where the one before it is still there: who joins meanwhile, or leaves, is looked at by the next
round, and the log is told nothing on behalf of a note that was not taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from anew.catalog.change import Put
from anew.controller.engine.apart import Apart
from anew.controller.engine.context import Context
from anew.controller.topics.making import retention_of
from anew.controller.topics.records import change_topic
from anew.core.topics.topic import Hold, Kept, Topic
from anew.log.interface import KEEP_FOR_EVER

_LOG = structlog.get_logger("anew.controller")


@dataclass(slots=True)
class HeldTopics:
    """Holds topics and lets go of them, now and then.

    Attributes:
        context: The controller's collaborators.
    """

    context: Context
    _looked_at_ms: int = 0

    def step(self, apart: Apart) -> None:
        """Tell logs what is to be held, and let go of what nobody needs; an error of one stops no other.

        Whether history is still needed is asked of logs: not in each round.
        """
        now_ms = self.context.clock()
        is_due = now_ms - self._looked_at_ms >= self.context.limits.low_water_interval_seconds * 1000
        self._looked_at_ms = now_ms if is_due else self._looked_at_ms
        for topic in self.context.catalog.topics():
            hold = topic.hold
            if hold is None or not topic.ready or (hold.by and hold.lifted and not is_due):
                continue
            needs = {("topics", topic.fabric)}
            if apart.away.isdisjoint(needs):
                with apart.step(f"retention of {topic.name}", needs=needs):
                    _settle(self.context, topic)


def _settle(context: Context, topic: Topic) -> None:
    hold = topic.hold
    assert hold is not None, "it is held"
    needing = tuple(holder for holder in hold.by if _needs(context, holder.rebuild))
    if needing:
        _hold(context, topic, hold.model_copy(update={"by": needing}))
    else:
        _let_go(context, topic, hold.model_copy(update={"by": (), "lifted": False}))


def _hold(context: Context, topic: Topic, hold: Hold) -> None:
    log = context.fabrics[topic.fabric].log
    if not hold.lifted:
        present = log.facts(topic.name, topic.topic_uid).retention
        if hold.before is None or present != KEEP_FOR_EVER:
            before = Kept(time_ms=present.time_ms, partition_bytes=present.partition_bytes)
            hold = hold.model_copy(update={"before": before})
    noted = _noted(context, topic, hold, "history held")
    if noted is None or hold.lifted:
        return
    log.set_retention(topic.name, topic.topic_uid, KEEP_FOR_EVER)
    _LOG.info("retention_lifted", topic=topic.name, held_by=[each.name for each in hold.by])
    _noted(context, noted, hold.model_copy(update={"lifted": True}), "retention lifted")


def _let_go(context: Context, topic: Topic, hold: Hold) -> None:
    noted = _noted(context, topic, hold, "history released")
    if noted is None:
        return
    log, before = context.fabrics[topic.fabric].log, hold.before
    if before is not None and log.facts(topic.name, topic.topic_uid).retention == KEEP_FOR_EVER:
        log.set_retention(topic.name, topic.topic_uid, retention_of(before))
        _LOG.info("retention_restored", topic=topic.name, **before.model_dump())
    _noted(context, noted, None, "retention restored")


def _needs(context: Context, rebuild_id: str) -> bool:
    """Whether a rebuild still reads the history that is held for it.

    Raises:
        AnewError: Nobody can say now: everything stays as it is.
    """
    rebuild = context.catalog.rebuild(rebuild_id)
    return rebuild is not None and context.subjects.of(rebuild).reads_history(context, rebuild)


def _noted(context: Context, topic: Topic, hold: Hold | None, what: str) -> Topic | None:
    """The topic with another note; None: somebody else has changed the note meanwhile, and nothing was noted."""
    if hold == topic.hold:
        return topic
    is_same = False

    def change(present: Topic) -> tuple[Topic, tuple[Put, ...]]:
        nonlocal is_same
        is_same = present.hold == topic.hold
        return (present.model_copy(update={"hold": hold}) if is_same else present), ()

    after = change_topic(context, topic.uid, context.operation(what, topic.name, "controller"), change)
    return after if is_same else None
