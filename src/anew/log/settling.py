"""Ends of partitions that move back for a moment, as they do while another broker takes over."""

from __future__ import annotations

from collections.abc import Callable

from anew.log.interface import Log, Offsets, TopicPartition

_TIMES, _PAUSE_SECONDS = 5, 0.2


def settled_offsets(log: Log, at: TopicPartition, reached: int, pause: Callable[[float], None]) -> Offsets:
    """What a partition holds; asked again a few times where it ends before an offset that it should have reached.

    What is still below that offset afterwards is so: whoever asks judges it.

    Args:
        log: The log.
        at: The partition.
        reached: An offset up to which it is expected to have come.
        pause: Waits for so many seconds between two looks.

    Raises:
        Failed: ``topic_lost``.
        Unreachable: The log does not answer.
    """
    held = log.offsets(at)
    for _ in range(_TIMES):
        if held.end >= reached:
            break
        pause(_PAUSE_SECONDS)
        held = log.offsets(at)
    return held
