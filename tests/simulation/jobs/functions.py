"""The functions of the jobs of histories, row by row. The runs and the oracle share them: a job's code is its author's.

This module imports nothing of the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LATE_MS = 40_000
"""Event times of `late` lie so far back: behind every grace of the histories."""
_COARSE_MS = 20_000


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """A row: key, text (None: a delete) and time."""

    key: str
    text: str | None
    time_ms: int


def _plain(event: Event) -> list[Event]:
    return [event]


def _filtered(event: Event) -> list[Event]:
    return [event] if _sum(event) % 3 else []


def _rekeyed(event: Event) -> list[Event]:
    return [Event(f"k{int(event.key[1:]) % 3}", event.text, event.time_ms)]


def _deleting(event: Event) -> list[Event]:
    return [event if _sum(event) % 3 else Event(event.key, None, event.time_ms)]


def _late(event: Event) -> list[Event]:
    return [Event(event.key, event.text, event.time_ms - LATE_MS)]


def _coarse(event: Event) -> list[Event]:
    return [Event(event.key, event.text, event.time_ms - event.time_ms % _COARSE_MS)]


def _doubled(event: Event) -> list[Event]:
    other = f"k{(int(event.key[1:]) + 1) % 8}"
    return [event, Event(other, None if event.text is None else f"{event.text}+", event.time_ms)]


FUNCTIONS: dict[str, Callable[[Event], list[Event]]] = {
    "plain": _plain,
    "filtered": _filtered,
    "rekeyed": _rekeyed,
    "deleting": _deleting,
    "late": _late,
    "coarse": _coarse,
    "doubled": _doubled,
}


def _shape(*kept: str) -> dict[str, bool]:
    return {part: part in kept for part in ("rows", "key", "time")}


SHAPES: dict[str, dict[str, bool]] = {
    "plain": _shape("rows", "key", "time"),
    "filtered": _shape(),
    "rekeyed": _shape("rows", "time"),
    "deleting": _shape("rows", "key", "time"),
    "late": _shape("rows", "key"),
    "coarse": _shape("rows", "key"),
    "doubled": _shape(),
}
"""What each keeps of an event, as its trial would find."""


def _sum(event: Event) -> int:
    return sum(map(ord, event.text or event.key))


def outputs(name: str, tag: str, event: Event) -> list[Event]:
    """What a function gives for an event; its texts end with the tag, which tells codes apart."""
    made = FUNCTIONS[name](event)
    return [Event(e.key, None if e.text is None else f"{e.text}.{tag}", e.time_ms) for e in made]
