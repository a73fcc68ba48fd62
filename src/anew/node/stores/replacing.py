"""When a replica is loaded again, and when it must not go: what it has may be the last copy (rule R3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anew.core.backoff import backoff_seconds
from anew.core.errors import AnewError, Failed
from anew.log.interface import Log, TopicPartition, topic_partition
from anew.node.faults import fault_of, is_damage
from anew.node.stores.holding import Holding
from anew.storage.replica import Replica

_RELOAD_SECONDS = (10.0, 600.0)
"""Between a load of a replica and the next one for what comes again."""
_RELOADS_FORGOTTEN_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class Replacements:
    """Decides for a node's one applier thread which replicas are loaded again.

    Attributes:
        log: Where the feeds are.
        clock_seconds: A monotonic clock.
    """

    log: Log
    clock_seconds: Callable[[], float]

    def look_again(self, holding: Holding, replica: Replica, retry_at: float) -> bool:
        """Whether what readers or a verification found damaged still is.

        It is told, and the replica loaded again as one is that cannot apply: where writes are rare nothing else would
        come across it.
        """
        if holding.damaged is None:
            found = replica.read_again()
            if found is None:
                return False
            error = fault_of(found)
            holding.damaged = str(error) if is_damage(error) else None
        else:
            error = Failed("storage_broken", "a replica is damaged", found=holding.damaged)
        holding.breaks(error, str(error), retry_at)
        if holding.damaged is not None:
            self.replace(holding, str(error))
        return True

    def replace(self, holding: Holding, why: str) -> None:
        """Have a replica loaded again, if that is possible now."""
        if self._can_be_read_again(holding) and self._may_reload(holding):
            holding.reload, holding.apply_failures, holding.retry_at = why, 0, 0.0

    def _may_reload(self, holding: Holding) -> bool:
        """Whether it is time to load it again: what comes again after a load comes again with the next one too."""
        now = self.clock_seconds()
        if now - holding.reloaded_at > _RELOADS_FORGOTTEN_SECONDS:
            holding.reloads = 0
        first, longest = _RELOAD_SECONDS
        if holding.reloads and now - holding.reloaded_at < backoff_seconds(holding.reloads - 1, first, longest):
            return False
        holding.reloads, holding.reloaded_at = holding.reloads + 1, now
        return True

    def _can_be_read_again(self, holding: Holding) -> bool:
        """Whether the log has all that follows the base: else what was applied may be the last copy of it (rule R3)."""
        try:
            self.check_may_go(holding, "")
        except AnewError:
            return False
        return True

    def check_may_go(self, holding: Holding, why: str) -> None:
        """Nothing takes the place of a replica unless the log has what follows the base: it may be the last copy.

        Raises:
            Failed: ``storage_broken``: it stays, as it is.
            Unreachable: Nobody can say so now: it stays meanwhile.
        """
        for feed, at in holding.feed_partitions():
            begin = self._begin_of(topic_partition(feed, at.partition))
            if begin is None or begin > holding.start_of(feed, at):
                raise Failed(
                    "storage_broken",
                    "a replica cannot go on, and is kept: it may have the last copy of what the log has no more",
                    found=why,
                    expected="a log that has all that follows the version's start",
                    hint="mend what keeps it from going on, or make the version again: anew repush NAME",
                )

    def _begin_of(self, at: TopicPartition) -> int | None:
        """Where a feed partition begins in the log; None where it is lost.

        Raises:
            Unreachable: The log does not answer.
        """
        try:
            return self.log.offsets(at).begin
        except Failed:
            return None
