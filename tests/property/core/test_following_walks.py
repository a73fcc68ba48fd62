"""Random walks through the life of a store that a job feeds: what serves is always of the generation that lives."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from anew.core.errors import AnewError
from anew.core.feed import Feed
from anew.core.stores import lifecycle
from anew.core.stores.following import base_written, begin_following, cut_back, cut_over, give_up_following
from anew.core.stores.jobfeeds import add_feed, drop_feed
from anew.core.stores.planning import RepushRequest, Snapshot, plan_repush
from anew.core.stores.retention import low_water, retirable
from anew.core.stores.store import IN_THE_MAKING, SERVABLE, Store, VersionStatus
from anew.testing.builders import FABRIC, a_version
from anew.testing.clock import NOON_MS
from tests.unit.core.stores.jobs import EMPTY, FULL, fed_store, feed_of, follower_of

S = VersionStatus
_GONE = frozenset({S.FAILED, S.KILLED, S.RETIRED, S.RECLAIMED})
_CHOSEN = st.integers(0, 11)


class FedStoreLife(RuleBasedStateMachine):
    """Rewinds in place and beside, cut-overs, repushes, swaps, rollbacks, retention and truncation in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Store = fed_store(1)
        self.now_ms = NOON_MS
        self.generations: dict[str, Feed] = {}
        self.live = ""
        self.ends: dict[str, int] = {}

    @initialize()
    def create(self) -> None:
        """A store whose empty version applies the first generation's feed."""
        self.store = fed_store(1)
        self._begun(self.store.feeds[0])
        self.live = self.store.feeds[0].id

    def _begun(self, feed: Feed) -> None:
        self.generations[feed.id] = feed
        self.ends[feed.id] = 0

    def _next_feed(self) -> Feed:
        return feed_of(len(self.generations) + 1)

    def _number(self, *statuses: VersionStatus) -> int | None:
        return max((v.number for v in self.store.versions if v.status in statuses), default=None)

    def _one_of(self, statuses: Collection[VersionStatus], chosen: int) -> int:
        """The number of a version that has one of the statuses; of the one that serves where there is none."""
        numbers = [v.number for v in self.store.versions if v.status in statuses]
        return numbers[chosen % len(numbers)] if numbers else self.store.current[FABRIC]

    # -- the job ---------------------------------------------------------------------------------------------------

    @rule()
    def rewind_in_place(self) -> None:
        """A younger generation takes over, on all versions."""
        feed = self._next_feed()
        self.store = add_feed(self.store, feed)
        self._begun(feed)
        self.live = feed.id

    @rule()
    def rewind_beside(self) -> None:
        """A younger generation gets a version of its own."""
        feed, serving = self._next_feed(), lifecycle.existing(self.store, self.store.current[FABRIC])
        replaced = [self.generations[each] for each in serving.feeds]
        self.store = begin_following(self.store, follower_of(feed, *replaced), {}, self.now_ms)
        self._begun(feed)

    @rule()
    def write_base(self) -> None:
        """The controller writes the empty base."""
        number = self._number(S.FOLLOWING)
        if number is not None:
            self.store = base_written(self.store, number, FABRIC, EMPTY)

    @rule(chosen=_CHOSEN)
    def cut_over(self, chosen: int) -> None:
        """The job cuts over to a version that follows; what cannot be is refused and changes nothing."""
        before, number = self.store, self._one_of({S.FOLLOWING}, chosen)
        try:
            self.store = cut_over(self.store, number, self.live, self.now_ms)
        except AnewError:
            assert self.store == before
            return
        self.live = lifecycle.existing(self.store, number).feeds[-1]

    @rule()
    def cut_back(self) -> None:
        """The job cuts back to what was replaced."""
        before = self.store
        try:
            self.store = cut_back(self.store, self.live, self.now_ms)
        except AnewError:
            assert self.store == before
            return
        self.live = lifecycle.existing(self.store, self.store.current[FABRIC]).feeds[-1]

    @rule()
    def give_up(self) -> None:
        """The job drops a version that follows."""
        number = self._number(S.FOLLOWING)
        if number is not None:
            self.store = give_up_following(self.store, number, "dropped", self.now_ms)

    @rule(chosen=_CHOSEN)
    def drop_feed(self, chosen: int) -> None:
        """A feed that no version names leaves."""
        known = list(self.generations)[chosen : chosen + 1]
        for feed_id in known:
            try:
                self.store = drop_feed(self.store, feed_id)
            except AnewError:
                continue
            assert feed_id != self.live

    # -- everybody else --------------------------------------------------------------------------------------------

    @rule()
    def begin_repush(self) -> None:
        """Somebody begins a repush of what serves."""
        if self.store.in_the_making() is not None:
            return
        ends = {at: self.ends[feed.id] for feed in self.store.feeds for at in feed.feed_partitions()}
        plan = plan_repush(Snapshot(self.store, ends, {}, {}, None, self.now_ms), RepushRequest())
        source = lifecycle.existing(self.store, plan.source.version or 0)
        made = a_version(
            plan.target.version,
            S.BUILDING,
            kind=plan.kind,
            feeds=plan.target.feeds,
            start=plan.target.start,
            replaces=source.replaces,
            unpushed=source.unpushed,
            source_version=source.number,
            swap_from=self.store.current[FABRIC],
        )
        self.store = lifecycle.begin(self.store, plan, made, self.now_ms)

    @rule()
    def finish_repush(self) -> None:
        """It is sealed, loaded, and swapped if nothing has moved."""
        number = self._number(S.BUILDING)
        if number is not None:
            start = lifecycle.existing(self.store, number).fabrics[FABRIC].start
            sealed = lifecycle.seal(self.store, number, FULL, start, self.now_ms)
            ready = lifecycle.caught_up(sealed, number, FABRIC, self.now_ms)
            self.store = lifecycle.swap_when_ready(ready, number, FABRIC, self.now_ms)

    @rule(chosen=_CHOSEN, back=st.booleans())
    def move(self, chosen: int, back: bool) -> None:  # noqa: FBT001 - drawn
        """Somebody swaps or rolls back to any version; what cannot be is refused and changes nothing."""
        number = self._one_of(SERVABLE, chosen)
        before, act = self.store, lifecycle.roll_back if back else lifecycle.swap
        try:
            self.store = act(self.store, number, FABRIC, self.now_ms)
        except AnewError:
            assert self.store == before

    @rule(seconds=st.integers(1, 100_000), records=st.integers(0, 30))
    def wait(self, seconds: int, records: int) -> None:
        """Time passes, and generations write."""
        self.now_ms += seconds * 1000
        for feed in self.ends:
            self.ends[feed] += records

    @rule()
    def collect(self) -> None:
        """Retention takes both of its steps."""
        for number in retirable(self.store, self.now_ms):
            assert lifecycle.existing(self.store, number).status not in (S.FOLLOWING, S.CURRENT)
            self.store = lifecycle.retire(self.store, number, self.now_ms)
            self.store = lifecycle.reclaimed(self.store, number, FABRIC, self.now_ms)

    @rule()
    def truncate(self) -> None:
        """Low-water marks move as far as they may."""
        ends = {at: self.ends[feed.id] for feed in self.store.feeds for at in feed.feed_partitions()}
        marks = low_water(self.store, ends)
        feeds = tuple(feed.model_copy(update={"low_water": marks[feed.id]}) for feed in self.store.feeds)
        self.store = self.store.model_copy(update={"feeds": feeds})

    # -- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def what_serves_is_of_the_generation_that_lives(self) -> None:
        """Whatever anybody does, the current version applies the feed of the generation that the job says lives."""
        (serving,) = [v for v in self.store.versions if v.status is S.CURRENT]
        assert self.store.current == {FABRIC: serving.number}
        assert self.live in serving.feeds

    @invariant()
    def what_versions_need_is_there(self) -> None:
        """No feed is truncated above a version's start, and none that a version applies has left (rules R2, R9)."""
        for version in self.store.versions:
            if version.status in _GONE:
                continue
            start = version.fabrics[FABRIC].start
            for feed_id in version.feeds:
                feed = self.store.feed(feed_id)
                assert feed is not None
                assert all(start.get(at, 0) >= feed.low_water[at.partition] for at in feed.feed_partitions())

    @invariant()
    def nothing_followed_is_in_the_making(self) -> None:
        """A version that follows counts as no rebuild."""
        making = [v for v in self.store.versions if v.status in IN_THE_MAKING]
        assert len(making) <= 1


@pytest.mark.case("rules:R2", "rules:R9", "rules:R14", "rules:R15")
def test_whatever_happens_the_generation_that_lives_serves() -> None:
    """Between rewinds, cut-overs, repushes, swaps and rollbacks in any order, readers have what the job says."""
    walks = settings(derandomize=True, max_examples=400, stateful_step_count=50, deadline=None)
    run_state_machine_as_test(FedStoreLife, settings=walks)
