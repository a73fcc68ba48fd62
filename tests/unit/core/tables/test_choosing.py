"""What a refresh takes: the decision table of the guide, the limit, the order, and what it leaves."""

from __future__ import annotations

from itertools import chain

import pytest

from anew.core.tables.choosing import MAX_NAMED, Asked, Chosen, Mode, Serving, choose, mode_of
from anew.core.tables.segment import StaleSegment

_H, _OTHER = "t1-wanted", "t1-other"
_NODES = ("node-1", "node-2")
_DEFAULT, _RELOAD_ONLY, _FORCE = Mode.DEFAULT, Mode.RELOAD_ONLY, Mode.FORCE_RELOAD


def _stale(name: str, h: str | None = None, slot: int = 0, made_ms: int = 0, failed: str | None = None) -> StaleSegment:
    return StaleSegment(name, f"build-of-{name}", 100, 10, h, slot, made_ms, failed)


def _serving(*served: str | None, name: str = "s") -> Serving:
    """What node-1 and node-2 say of the one segment in slot 0."""
    return Serving({node: {name: one} for node, one in zip(_NODES, served, strict=True)}, {0: _NODES})


def _chosen(
    stale: list[StaleSegment], serving: Serving, mode: Mode = _DEFAULT, most: int = 0, *, retry_failed: bool = False
) -> Chosen:
    return choose(stale, _H, Asked(mode, most, retry_failed), serving, {})


def _names(chosen: Chosen) -> list[str]:
    return [segment.name for segment in chosen.segments]


@pytest.mark.parametrize(
    ("reload_only", "force_reload", "mode"),
    [
        (False, False, _DEFAULT),
        (True, False, _RELOAD_ONLY),
        (True, True, _FORCE),
        (False, True, _FORCE),
    ],
)
def test_the_guide_s_two_flags_are_three_modes(reload_only: bool, force_reload: bool, mode: Mode) -> None:  # noqa: FBT001
    """ForceReload is reloadOnly that asks no node."""
    assert mode_of(reload_only=reload_only, force_reload=force_reload) is mode


_SERVED: dict[str, tuple[tuple[str | None, str | None], set[Mode]]] = {
    "both have it": ((_H, _H), {_DEFAULT, _FORCE}),
    "one has another": ((_H, _OTHER), {_DEFAULT, _RELOAD_ONLY, _FORCE}),
    "both have another": ((_OTHER, _OTHER), {_DEFAULT, _RELOAD_ONLY, _FORCE}),
    "one does not say": ((_H, None), {_DEFAULT, _RELOAD_ONLY, _FORCE}),
    "none says": ((None, None), {_DEFAULT, _RELOAD_ONLY, _FORCE}),
}


@pytest.mark.case("tables:B1", "tables:B2", "tables:B3", "tables:B5", "tables:B6", "tables:A8")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("served", _SERVED)
@pytest.mark.parametrize("h", [None, _OTHER], ids=["no hash", "another hash"])
def test_the_decision_table(h: str | None, served: str, mode: Mode) -> None:
    """A missing or another hash is taken, but in reloadOnly only where some copy is not known to be in sync."""
    copies, taken_in = _SERVED[served]
    chosen = _chosen([_stale("s", h)], _serving(*copies), mode)
    assert _names(chosen) == (["s"] if mode in taken_in else [])
    assert chosen.drift == (["s"] if served == "both have it" else [])
    assert chosen.left == len(chosen.skipped) == (0 if mode in taken_in else 1)
    if mode not in taken_in:
        assert "nodes serve the wanted configuration" in chosen.skipped["s"]


@pytest.mark.case("tables:A8")
def test_what_is_not_said_is_never_fresh() -> None:
    """A node that does not answer, one that does not know the segment, and no node at all: taken in reloadOnly too."""
    silent = Serving({"node-1": {"s": _H}}, {0: _NODES})
    without = Serving({"node-1": {"s": _H}, "node-2": {"other": _H}}, {0: _NODES})
    for serving in (silent, without, Serving({}, {0: _NODES}), Serving({}, {})):
        chosen = _chosen([_stale("s")], serving, _RELOAD_ONLY)
        assert (_names(chosen), chosen.drift) == (["s"], [])


@pytest.mark.case("tables:A8")
def test_a_node_that_holds_other_segments_does_not_matter() -> None:
    """A silent node makes only those segments unknown that it is to hold."""
    serving = Serving({"node-1": {"a": _H, "b": _H}}, {0: ("node-1",), 1: ("node-1", "node-2")})
    chosen = _chosen([_stale("a", slot=0), _stale("b", slot=1)], serving, _RELOAD_ONLY)
    assert (_names(chosen), chosen.drift) == (["b"], ["a"])


# -- so many, and in which order -------------------------------------------------------------------------------------


def _many(count: int, slots: int = 1) -> list[StaleSegment]:
    return [_stale(f"s{number:04d}", slot=number % slots, made_ms=number) for number in range(count)]


@pytest.mark.case("tables:B8")
def test_newest_first_up_to_the_limit() -> None:
    """The newest are taken, newest first; the rest is counted, and named as far as it was looked at."""
    stale = _many(50)
    chosen = _chosen(stale, Serving({}, {}), most=20)
    assert _names(chosen) == [f"s{number:04d}" for number in reversed(range(30, 50))]
    assert chosen.left == 30
    other_order = _chosen(stale[::-1], Serving({}, {}), most=20)
    assert _names(other_order) == _names(chosen)


@pytest.mark.case("tables:B8")
def test_zero_means_all() -> None:
    """Without a limit all that is stale is taken, and nothing is left."""
    chosen = _chosen(_many(1_500), Serving({}, {}), most=0)
    assert (len(chosen.segments), chosen.left, chosen.skipped) == (1_500, 0, {})
    fits = _chosen(_many(20), Serving({}, {}), most=20)
    assert (len(fits.segments), fits.left) == (20, 0)


@pytest.mark.case("tables:B8")
def test_stale_on_nodes_comes_first() -> None:
    """Segments that nodes serve otherwise come before newer ones of which all copies are in sync already."""
    stale = _many(6)
    fresh = {f"s{number:04d}": _H for number in (2, 4, 5)}
    serving = Serving({"node-1": fresh}, {0: ("node-1",)})
    assert _names(_chosen(stale, serving, most=4)) == ["s0003", "s0001", "s0000", "s0005"]
    assert _names(_chosen(stale, serving, most=2)) == ["s0003", "s0001"]


@pytest.mark.case("tables:B8")
def test_nodes_take_turns() -> None:
    """The work goes round over the nodes that hold the segments, each with its newest first."""
    stale = [_stale(f"a{n}", slot=0, made_ms=100 + n) for n in range(4)] + [_stale("b0", slot=1), _stale("c0", slot=2)]
    serving = Serving({}, {0: ("node-1",), 1: ("node-2",), 2: ("node-3",)})
    assert _names(_chosen(stale, serving)) == ["a3", "b0", "c0", "a2", "a1", "a0"]
    assert _names(_chosen(stale, serving, most=3)) == ["a3", "b0", "c0"]


@pytest.mark.case("tables:B8")
def test_the_rest_comes_in_the_next_runs() -> None:
    """Run after run without what was taken before: every segment is taken exactly once."""
    stale, serving = _many(53, slots=3), Serving({}, {0: ("node-1",), 1: ("node-2",), 2: ("node-1",)})
    runs: list[list[str]] = []
    while stale:
        chosen = _chosen(stale, serving, most=20)
        runs.append(_names(chosen))
        assert chosen.left == len(stale) - len(runs[-1])
        stale = [segment for segment in stale if segment.name not in runs[-1]]
    assert [len(run) for run in runs] == [20, 20, 13]
    assert sorted(chain(*runs)) == [segment.name for segment in _many(53)]


def test_what_is_left_is_named_up_to_a_limit() -> None:
    """However many are left, so many are named and all are counted; drift alike."""
    serving = Serving({"node-1": {s.name: _H for s in _many(MAX_NAMED + 50)}}, {0: ("node-1",)})
    chosen = _chosen(_many(MAX_NAMED + 50), serving, _RELOAD_ONLY)
    assert (len(chosen.skipped), len(chosen.drift), chosen.left) == (MAX_NAMED, MAX_NAMED, MAX_NAMED + 50)
    full = _chosen(_many(40, slots=2), Serving({}, {0: ("node-1",), 1: ("node-2",)}), most=20)
    assert (len(full.segments), full.left) == (20, 20)
    assert set(full.skipped.values()) == {"the run is full; the next one takes it"}


# -- what stands in the way ------------------------------------------------------------------------------------------


@pytest.mark.case("tables:B9")
def test_what_another_refresh_works_on_is_left() -> None:
    """None of the other's segments is taken, in any mode, and the plan says which refresh has them."""
    for mode in Mode:
        chosen = choose(
            _many(3), _H, Asked(mode, 0, retry_failed=True), Serving({}, {}), {"s0001": "refresh-1", "x": "refresh-1"}
        )
        assert _names(chosen) == ["s0002", "s0000"]
        assert (chosen.skipped, chosen.left) == ({"s0001": "the refresh refresh-1 works on it"}, 1)


@pytest.mark.case("tables:C3")
def test_what_failed_is_not_tried_again_unless_asked() -> None:
    """The same configuration is not tried again until it changes, or somebody asks; others go on."""
    stale = [_stale("bad", failed=_H), _stale("once", failed=_OTHER), _stale("good")]
    chosen = _chosen(stale, Serving({}, {}))
    assert sorted(_names(chosen)) == ["good", "once"]
    assert (chosen.skipped, chosen.left) == (
        {"bad": "it failed with this configuration; --retry-failed tries again"},
        1,
    )
    asked = _chosen(stale, Serving({}, {}), retry_failed=True)
    assert (sorted(_names(asked)), asked.left) == (["bad", "good", "once"], 0)


def test_skipped_segments_do_not_fill_the_run() -> None:
    """The limit counts what is taken, not what is left for a reason of its own."""
    stale = [*(_stale(f"bad{n}", made_ms=100 + n, failed=_H) for n in range(5)), _stale("a"), _stale("b", made_ms=1)]
    chosen = _chosen(stale, Serving({}, {}), most=2)
    assert (_names(chosen), chosen.left, len(chosen.skipped)) == (["b", "a"], 5, 5)


def test_nothing_stale_is_nothing_to_do() -> None:
    """Without stale segments nothing is taken, left or drifting."""
    assert _chosen([], Serving({}, {})) == Chosen()
