"""The oracle of job histories complains of whatever is not as it must be, and of nothing else."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.crash.jobs import oracle
from tests.crash.jobs.drawing import FUNCTIONS, PARTITIONS, POINTS, history_of
from tests.crash.jobs.oracle import Account, Cell, Read, Stretch, records

_OLD, _NEW = Stretch(1, "plain", "g1", (0, 0)), Stretch(2, "plain", "g2", (0, 0))
_SEEDS = range(10)
"""Those of `tests/crash/jobs/test_histories.py`."""


def _row(place: tuple[int, int], key: str, text: str | None, at: int, number: int = 1) -> dict[str, Any]:
    rest = {"n": number, "deleted": text is None, "timestamp": 50}
    return {"partition": place[0], "offset": place[1], "key": key, "text": text, "at": at, **rest}


def _account() -> Account:
    """Two writes, at moments 1 and 5; the first one arrives at 3. Generation 2 serves from 7 or 8 on."""
    account = Account()
    account.writes.append((0.0, (0, 0)))
    account.add([_row((0, 0), "a", "x", 10), _row((0, 1), "b", "y", 10), _row((1, 0), "c", "z", 10)])
    account.writes.append((1.0, (2, 1)))
    account.serve((_OLD,), (0, 0), 0.0, 0.0)
    account.arrived(3.0, (2, 1))
    account.add([_row((0, 2), "a", "w", 20), _row((0, 3), "b", None, 0), _row((1, 1), "c", "late", 5)])
    account.writes.append((5.0, (4, 2)))
    account.serve((_NEW,), (2, 1), 7.0, 8.0)
    account.arrived(9.0, (4, 2))
    return account


_FIRST: dict[str, Cell] = {"a": ("x.g1", 10), "b": ("y.g1", 10), "c": ("z.g1", 10)}
_LAST: dict[str, Cell] = {"a": ("w.g2", 20), "c": ("z.g2", 10)}


@pytest.mark.parametrize(
    ("began", "ended", "found"),
    [
        (0.5, 0.8, {}),
        (1.0, 2.0, {"a": ("x.g1", 10)}),
        (3.5, 4.0, _FIRST),
        (5.5, 6.0, _FIRST),
        (5.5, 6.0, {**_FIRST, "a": ("w.g1", 20)}),
        (5.5, 6.0, {"a": ("x.g1", 10), "c": ("z.g1", 10)}),
        (7.5, 7.8, _FIRST),
        (7.5, 7.8, {**_LAST, "a": ("x.g2", 10)}),
        (12.5, 12.8, _FIRST),
        (9.5, 9.8, _LAST),
    ],
)
def test_what_could_be_read_is_taken(began: float, ended: float, found: dict[str, Cell]) -> None:
    """What had arrived, and what was written and may have, of the one generation or the other while readers go over."""
    assert _account().wrong([Read(began, ended, found)]) is None


@pytest.mark.parametrize(
    ("began", "ended", "found"),
    [
        pytest.param(0.5, 0.8, {"a": ("x.g1", 10)}, id="what is not written yet"),
        pytest.param(3.5, 4.0, {"a": ("x.g1", 10)}, id="less than had arrived"),
        pytest.param(3.5, 4.0, {**_FIRST, "a": ("x.g1", 11)}, id="another time"),
        pytest.param(3.5, 4.0, {**_FIRST, "d": ("x.g1", 10)}, id="a key that is not there"),
        pytest.param(3.5, 4.0, {**_FIRST, "a": ("x.g2", 10)}, id="a generation that does not serve yet"),
        pytest.param(5.5, 6.0, {**_FIRST, "c": ("late.g1", 5)}, id="what is older than what had arrived"),
        pytest.param(7.5, 7.8, {**_FIRST, "a": ("x.g2", 10)}, id="a mixture of generations"),
        pytest.param(13.5, 13.8, _FIRST, id="the old generation long after the cut-over was acknowledged"),
        pytest.param(9.5, 9.8, {**_LAST, "b": ("y.g2", 10)}, id="what was deleted"),
        pytest.param(9.5, 9.8, {"c": ("z.g2", 10)}, id="a key that is gone"),
    ],
)
def test_what_could_not_be_read_is_told(began: float, ended: float, found: dict[str, Cell]) -> None:
    """Whatever is older, younger, mixed, or of nobody is named."""
    assert _account().wrong([Read(began, ended, found)]) is not None


def test_a_read_of_two_versions_is_told() -> None:
    """A batch of keys is of one version, also where each value could be."""
    read = Read(9.5, 9.8, _LAST, frozenset({1, 2}))
    assert _account().wrong([read]) == (read, "a read of several versions: [1, 2]")


def test_a_reader_that_goes_back_is_told() -> None:
    """One that reads on may know of a cut-over some seconds later; one that has seen it sees nothing older any more."""
    old, new = Read(8.5, 8.8, _FIRST), Read(8.9, 9.0, _LAST)
    assert _account().wrong([old, new]) is None
    again = Read(9.1, 9.2, _FIRST)
    found = _account().wrong([old, new, again])
    assert found is not None
    assert found[0] is again


@pytest.mark.parametrize("found", [{}, {"a": ("w.g2", 20)}, {**_LAST, "a": ("w.g2", 21)}, {**_LAST, "a": ("w.g1", 20)}])
def test_another_end_than_must_be_is_told(found: dict[str, Cell]) -> None:
    """Once all has arrived, keys, values and times are these and no others."""
    assert _account().wrong_now(Read(9.5, 9.8, _LAST)) is None
    assert _account().wrong_now(Read(9.5, 9.8, found)) is not None


def test_of_equal_times_the_last_of_each_partition_may_win() -> None:
    """Keys of two partitions that come together: how these lie to one another is for the batches to say."""
    account = Account()
    account.add([_row((0, 0), "p-1", "x", 10), _row((0, 1), "p-1", "y", 10), _row((1, 0), "q-1", "z", 10)])
    account.writes.append((1.0, (2, 1)))
    account.serve((Stretch(1, "rekeyed", "g", (0, 0)),), (0, 0), 0.0, 0.0)
    taken = [text for text in "xyz" if account.wrong_now(Read(2.0, 3.0, {"r1": (f"{text}.g", 10)})) is None]
    assert taken == ["y", "z"]


def test_what_was_deployed_goes_on_where_the_old_code_ended() -> None:
    """Each event is of one of the two; of equal times the younger generation's record wins."""
    account = Account()
    account.add([_row((0, 0), "a", "x", 10), _row((0, 1), "a", "y", 10), _row((0, 2), "b", "z", 9)])
    view = (Stretch(1, "plain", "g1", (0, 0), (1, 0)), Stretch(2, "plain", "g2", (1, 0)))
    assert records(account.events, view, (3, 0)) == Counter([("a", "x.g1", 10), ("a", "y.g2", 10), ("b", "z.g2", 9)])
    account.writes.append((1.0, (3, 0)))
    account.serve(view, (0, 0), 0.0, 0.0)
    assert account.wrong_now(Read(2.0, 3.0, {"a": ("y.g2", 10), "b": ("z.g2", 9)})) is None
    assert account.wrong_now(Read(2.0, 3.0, {"a": ("x.g1", 10), "b": ("z.g2", 9)})) is not None


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        ("plain", {("k-1", "x.t", 70_000), ("k-1", None, 50)}),
        ("filtered", {("k-1", None, 50)}),
        ("rekeyed", {("r1", "x.t", 70_000), ("r1", None, 50)}),
        ("deleting", {("k-1", None, 70_000), ("k-1", None, 50)}),
        ("late", {("k-1", "x.t", 70_000 - 7_200_000), ("k-1", None, 50 - 7_200_000)}),
        ("coarse", {("k-1", "x.t", 60_000), ("k-1", None, 0)}),
        ("doubled", {(key, *rest) for key in ("k-1", "k-1x") for rest in (("x.t", 70_000), (None, 50))}),
    ],
)
def test_each_function_is_what_it_says(function: str, wanted: set[tuple[str, str | None, int]]) -> None:
    """Rows of an event with a time and of a delete, worked out by hand."""
    account = Account()
    account.add([_row((0, 0), "k-1", "x", 70_000, number=3), _row((0, 1), "k-1", None, 0, number=0)])
    assert records(account.events, (Stretch(1, function, "t", (0, 0)),), (2, 0)) == Counter(wanted)


def test_a_partition_that_was_added_is_read_from_its_beginning() -> None:
    """What a start does not name begins at 0; below an end that does not name it, nothing of it is read."""
    account = Account()
    account.add([_row((0, 0), "a", "x", 10), _row((0, 1), "b", "y", 10), _row((2, 0), "c", "z", 10)])
    stretch = Stretch(1, "plain", "t", (1, 0))
    b, c = ("b", "y.t", 10), ("c", "z.t", 10)
    assert records(account.events, (stretch,), (2, 0, 1)) == Counter({b: 1, c: 1})
    assert records(account.events, (stretch,), (2, 0)) == Counter({b: 1})
    assert records(account.events, (Stretch(1, "plain", "t", (1, 0), (2, 0)),), (2, 0, 1)) == Counter({b: 1})
    found = oracle.allowed(account.events, (stretch,), (2, 0), (2, 0, 1))
    assert found == {"b": frozenset({("y.t", 10)}), "c": frozenset({None, ("z.t", 10)})}


def test_the_histories_of_the_tests_have_everything() -> None:
    """Ten seeds draw each function, start, point of death and step, deletes, equal times, a partition that wakes."""
    drawn = [history_of(seed) for seed in _SEEDS]
    steps = [step for history in drawn for step in history.steps]
    begun = [step for step in steps if step.function] + drawn
    assert {each.function for each in begun} == set(FUNCTIONS) == set(oracle.FUNCTIONS)
    starts = {each.start if isinstance(each.start, str) else "offsets" for each in drawn}
    assert starts == {"oldest", "newest", "offsets"}
    assert {step.point for step in steps if step.what == "kill"} == set(POINTS)
    wanted = {"write", "kill", "rest", "rewind", "cut_over", "cut_back", "reclaim", "deploy", "repush", "refuse"}
    wanted.add("grow")
    assert {step.what for step in steps} == wanted
    assert {history.output for history in drawn} == {"store", "topic"}
    written = [(history, event) for history in drawn for step in history.steps for event in step.events]
    assert PARTITIONS >= 3
    assert len({event.partition for _, event in written}) == PARTITIONS
    assert any(event.deleted for _, event in written)
    assert sum(event.ago_ms == 0 for _, event in written) > 100
    woke = {history.seed for history, event in written if event.partition == history.quiet}
    assert set() < woke < set(_SEEDS)
    assert all(
        event.partition != history.quiet or history.seed in woke for history in drawn for event in history.before
    )


def test_a_seed_is_a_history() -> None:
    """The same seed draws the same, another one something else."""
    assert history_of(3) == history_of(3) != history_of(13)


def test_the_oracle_imports_nothing_of_the_product() -> None:
    """What says how things must be shares nothing with what makes them so."""
    for module in ("oracle.py", "drawing.py"):
        source = (Path(oracle.__file__).parent / module).read_text(encoding="utf-8")
        assert not re.search(r"^\s*(from|import) anew\b", source, re.MULTILINE)
