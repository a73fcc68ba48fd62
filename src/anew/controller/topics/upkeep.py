"""Retention of topics in logs that have no service of their own to apply it: the embedded log."""

from __future__ import annotations

from dataclasses import dataclass

from anew.controller.engine.apart import Apart
from anew.controller.engine.context import Context
from anew.controller.topics.making import spec_of
from anew.controller.topics.records import topic_with
from anew.core.topics.topic import Kept, Topic
from anew.log.interface import present_partitions

MOST_PARTITIONS = 1_000
"""Of so many partitions a round applies retention, or of one topic with more; the next round goes on behind them."""
MOST_STEPS = 20
"""So often a round lets a partition forget a bounded number of records."""


@dataclass(slots=True)
class TopicRetention:
    """Applies the retention of topics, now and then.

    Attributes:
        context: The controller's collaborators.
    """

    context: Context
    _at_ms: int = 0
    _after: str = ""
    _is_behind: bool = False

    def step(self, apart: Apart) -> None:
        """Forget what topics keep no longer, in a bounded number of partitions; an error of one stops no other."""
        now_ms = self.context.clock()
        interval_ms = self.context.limits.low_water_interval_seconds * 1000
        if not (self._after or self._is_behind) and now_ms - self._at_ms < interval_ms:
            return
        if not self._after:
            self._is_behind = False
        partitions = 0
        for topic in self._due():
            needs = {("topics", topic.fabric)}
            if apart.away.isdisjoint(needs):
                with apart.step(f"retention of {topic.name}", needs=needs):
                    self._apply(topic)
            partitions += topic.partitions
            if partitions >= MOST_PARTITIONS:
                self._after = topic.name
                return
        self._after, self._at_ms = "", now_ms

    def _due(self) -> list[Topic]:
        """Topics with a retention in logs that do not apply it by themselves, those behind the last one."""
        fabrics = self.context.fabrics
        return [
            topic
            for topic in self.context.catalog.topics()
            if topic.name > self._after
            and topic.ready
            and topic.kept != Kept()
            and topic.hold is None
            and fabrics[topic.fabric].log_location.kind == "embedded"
        ]

    def _apply(self, topic: Topic) -> None:
        if topic_with(self.context, topic.uid).hold is not None:
            # Since the round has begun.
            return
        retention, log = spec_of(topic).retention, self.context.fabrics[topic.fabric].log
        for at in present_partitions(log, topic.name, topic.topic_uid):
            begin = -1
            for _ in range(MOST_STEPS):
                before, begin = begin, log.apply_retention(at, retention)
                if begin == before:
                    break
            else:
                # More is to go than a round takes: the next one does not wait until retention is due again.
                self._is_behind = True
