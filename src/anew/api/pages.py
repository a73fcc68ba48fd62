"""Lists in pages: how many items an answer holds at most, and from which key the next one goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from anew.api.wire import Wire
from anew.core.errors import InvalidRequest

DEFAULT_ITEMS = 100
"""How many items a page holds unless the request says otherwise."""

MAX_ITEMS = 1_000
"""The largest ``limit`` of a list."""

_MOST_DIGITS = 18
"""Of a time in milliseconds that a catalog can compare."""

T = TypeVar("T")


class Page(Wire, Generic[T]):
    """A part of a list.

    Attributes:
        items: At most ``limit`` of them, in the order of the list. A page may be shorter although it is not the last.
        next: The key to go on after, for the parameter ``after``; null: this is the last page.
    """

    items: tuple[T, ...]
    next: str | None = None


def page_of(found: Sequence[T], limit: int, key: Callable[[T], str]) -> Page[T]:
    """The page of what was read of a list, one item more than the page may hold.

    Args:
        found: The items behind the key of the page before, in the order of the list: more than ``limit`` where there is
            another page.
        limit: How many the page holds.
        key: The key of an item.
    """
    items = tuple(found[:limit])
    return Page(items=items, next=key(items[-1]) if len(found) > limit else None)


def all_items(page_after: Callable[[str | None], Page[T]]) -> Iterator[T]:
    """The items of all pages of a list, each page fetched once the one before it is used up.

    Args:
        page_after: Fetches the page after a key, the first one for None.
    """
    after = None
    while True:
        page = page_after(after)
        yield from page.items
        if page.next is None:
            return
        after = page.next


def timed_key(at_ms: int, item_id: str) -> str:
    """The key of an item in a list by time: ``1767225600000:rebuild-1``."""
    return f"{at_ms}:{item_id}"


def parse_timed_key(text: str) -> tuple[int, str]:
    """The time (ms) and the id of a `timed_key`.

    Raises:
        InvalidRequest: ``bad_page_key``.
    """
    at_ms, colon, item_id = text.partition(":")
    digits = at_ms.removeprefix("-")
    if not colon or not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise InvalidRequest(
            "bad_page_key",
            "the list has no such key to go on after",
            found=text[:100],
            expected="the field next of the page before",
        )
    return int(at_ms), item_id
