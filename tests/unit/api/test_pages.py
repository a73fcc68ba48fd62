"""Lists in pages, without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.api.pages import Page, all_items, page_of, parse_timed_key, timed_key
from anew.core.errors import InvalidRequest


@given(st.integers(-(10**18) + 1, 10**18 - 1), st.text())
def test_a_timed_key_is_read_as_it_was_written(at_ms: int, item_id: str) -> None:
    """Whatever the id holds, colons too."""
    assert parse_timed_key(timed_key(at_ms, item_id)) == (at_ms, item_id)


@pytest.mark.parametrize("text", ["", ":", ":r-1", "r-1", "1", "--1:r-1", "1.5:r-1", "\u0661:r-1", f"{10**18}:r-1"])
def test_what_is_no_timed_key_is_refused(text: str) -> None:
    """It needs a time that a catalog can compare, and a colon."""
    with pytest.raises(InvalidRequest) as caught:
        parse_timed_key(text)
    assert caught.value.code == "bad_page_key"


@given(st.lists(st.integers(), unique=True).map(sorted), st.integers(1, 5))
def test_pages_of_a_list_are_the_list(items: list[int], limit: int) -> None:
    """Each page goes on behind the key of the one before, and only the last one has none."""
    asked: list[str | None] = []

    def page_after(key: str | None) -> Page[int]:
        asked.append(key)
        behind = [item for item in items if key is None or item > int(key)]
        return page_of(behind[: limit + 1], limit, str)

    assert list(all_items(page_after)) == items
    assert len(asked) == max(1, -(-len(items) // limit))


def test_a_page_is_fetched_once_it_is_needed() -> None:
    """Whoever takes the first items alone asks for the first page alone."""

    def page_after(key: str | None) -> Page[int]:
        assert key is None
        return Page(items=(1, 2), next="2")

    items = all_items(page_after)
    assert (next(items), next(items)) == (1, 2)
