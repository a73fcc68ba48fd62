"""Positions as Samza's checkpoint tool writes them: last processed offsets, which are read as the next ones."""

from __future__ import annotations

import pytest

from anew.core.errors import InvalidRequest
from anew.core.jobs.properties import is_properties, positions_in, properties_of

_PLACE = "systems.kafka.streams.page.views.partitions"


@pytest.mark.case("streams:A3")
@pytest.mark.parametrize("task", ["Partition 0", "Partition\\ 0", "a.b", "t"])
@pytest.mark.parametrize("separator", ["=", " = ", ":"])
def test_a_last_processed_offset_is_read_as_the_next_one(task: str, separator: str) -> None:
    """Whatever the task is called, with a space as it is or escaped; comments and empty lines are passed over."""
    text = f"# edited\n\n! twice\n  tasknames.{task}.{_PLACE}.3{separator}41  \ntasknames.{task}.{_PLACE}.4=-1\n"
    assert is_properties(text)
    assert positions_in(text) == {"page.views": {3: 42, 4: 0}}


@pytest.mark.case("streams:A3")
def test_lines_that_are_not_understood_are_refused_with_their_numbers() -> None:
    """Each of them; what is left is not taken either. So is a partition that is named twice."""
    lines = ["tasknames.t.systems.k.streams.s.partitions.0=1", "tasknames.t.partitions.0=1", "", "offset=4"]
    with pytest.raises(InvalidRequest) as caught:
        positions_in("\n".join([*lines, lines[0]]))
    assert caught.value.code == "bad_positions"
    assert str(caught.value.found).split("; ") == [
        "line 2: tasknames.t.partitions.0=1",
        "line 4: offset=4",
        f"line 5, a partition again: {lines[0]}",
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "tasknames.t.systems.k.streams.s.partitions.0=-2", "x\n" * 9])
def test_a_file_without_positions_is_none(text: str) -> None:
    """An empty one, an offset that there cannot be; of many wrong lines the first are named."""
    with pytest.raises(InvalidRequest) as caught:
        positions_in(text)
    assert caught.value.code == "bad_positions"
    assert text.count("x") == 0 or str(caught.value.found).endswith("line 5: x; and 4 more")


@pytest.mark.case("streams:A2")
def test_what_is_written_is_read_as_the_same_positions() -> None:
    """Also a partition of which nothing was processed yet."""
    positions = {"views": {0: 12, 1: 0}, "page.views": {0: 7}}
    assert positions_in("\n".join(properties_of("anew", positions))) == positions


def test_json_is_another_form() -> None:
    """The file says itself of which form it is."""
    assert not any(is_properties(text) for text in ('{"a": {"0": 1}}', " \n[1]"))
