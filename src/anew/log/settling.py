"""Ends of partitions that move back for a moment, as they do while another broker takes over."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anew.log.interface import Log, Offsets, TopicPartition

_TIMES, _PAUSE_SECONDS = 5, 0.2


def settled_offsets(
    log: Log, reached: Mapping[TopicPartition, int], pause: Callable[[float], None]
) -> dict[TopicPartition, Offsets]:
    """What partitions hold; those are asked again a few times, all together, that end before where they should be.

    What is still below that offset afterwards is so: whoever asks judges it.

    Args:
        log: The log.
        reached: Partition → an offset up to which it is expected to have come.
        pause: Waits for so many seconds between two looks.

    Raises:
        Failed: ``topic_lost``.
        Unreachable: The log does not answer.
    """
    held = {at: log.offsets(at) for at in reached}
    for _ in range(_TIMES):
        behind = [at for at, offset in reached.items() if held[at].end < offset]
        if not behind:
            break
        pause(_PAUSE_SECONDS)
        held |= {at: log.offsets(at) for at in behind}
    return held
