"""Random walks through the life of a store: what must hold after every step."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from anew.core.errors import AnewError, Refused
from anew.core.feed import PositionMap
from anew.core.stores import lifecycle
from anew.core.stores.retention import low_water, retirable
from anew.core.stores.store import IN_THE_MAKING, ManifestRef, Store, VersionStatus
from anew.core.stores.transitions import TRANSITIONS, VersionEvent
from anew.testing.builders import FABRIC, a_config, a_feed, a_plan, a_store, a_version
from anew.testing.clock import NOON_MS

S = VersionStatus
_RETENTION_SECONDS = 100
_NUMBERS = st.integers(1, 12)
_PARTITIONS = 2


def _manifest(number: int) -> ManifestRef:
    return ManifestRef(path=f"v{number}", checksum="c", files=1, rows=1, tombstones=0, bytes=1, fingerprint=number)


class StoreLife(RuleBasedStateMachine):
    """Pushes, repushes, failures, swaps, rollbacks, retention and truncation in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Store = a_store()
        self.now_ms = NOON_MS
        self.used: list[int] = []
        self.log_end = 0
        self.truncated = 0

    @initialize()
    def create(self) -> None:
        """A hybrid store without a version."""
        config = a_config(hybrid=True, backup_retention_seconds=_RETENTION_SECONDS)
        self.store = a_store(config=config, feeds=(a_feed(partitions=_PARTITIONS),))

    def _number(self, *statuses: VersionStatus) -> int | None:
        numbers = [v.number for v in self.store.versions if v.status in statuses]
        return max(numbers) if numbers else None

    @rule(rewind=st.integers(0, 30), repush=st.booleans())
    def begin(self, rewind: int, repush: bool) -> None:  # noqa: FBT001 - drawn
        """Begin what a plan of this moment says: refused while another is in the making."""
        feed = self.store.feeds[0]
        source = self.store.current[FABRIC] if repush and self.store.current[FABRIC] else None
        offset = self.log_end if source else max(feed.low_water[0], self.log_end - rewind)
        start = PositionMap(dict.fromkeys(feed.feed_partitions(), offset))
        plan = a_plan(self.store, self.store.next_version, start)
        plan = plan.model_copy(update={"fence": plan.fence.model_copy(update={"feeds": (feed.id,)})}).sealed()
        made = a_version(
            plan.target.version,
            S.BUILDING,
            feeds=(feed.id,),
            start=start,
            source_version=source,
            swap_from=self.store.current[FABRIC],
        )
        if self.store.in_the_making() is not None:
            with pytest.raises(Refused, match="is running"):
                lifecycle.begin(self.store, plan, made, self.now_ms)
            return
        self.store = lifecycle.begin(self.store, plan, made, self.now_ms)
        self.used.append(made.number)

    @rule()
    def seal(self) -> None:
        """The version in the making is sealed."""
        number = self._number(S.BUILDING)
        if number is not None:
            start = lifecycle.existing(self.store, number).fabrics[FABRIC].start
            self.store = lifecycle.seal(self.store, number, _manifest(number), start, self.now_ms)

    @rule()
    def catch_up_and_swap(self) -> None:
        """The sealed version is ready and swaps if nobody moved the pointer meanwhile."""
        number = self._number(S.LOADING)
        if number is not None:
            self.store = lifecycle.caught_up(self.store, number, FABRIC, self.now_ms)
            planned = lifecycle.existing(self.store, number).fabrics[FABRIC].swap_from
            undisturbed = planned == self.store.current[FABRIC]
            self.store = lifecycle.swap_when_ready(self.store, number, FABRIC, self.now_ms)
            after = lifecycle.existing(self.store, number)
            assert (after.status is S.CURRENT) == undisturbed
            assert (after.error is None) == undisturbed

    @rule(event=st.sampled_from([VersionEvent.FAIL, VersionEvent.KILL]))
    def end_badly(self, event: VersionEvent) -> None:
        """The rebuild fails or is killed."""
        number = self._number(*IN_THE_MAKING)
        if number is not None:
            self.store = lifecycle.end_badly(self.store, number, event, "why", self.now_ms)

    @rule(number=_NUMBERS)
    def swap(self, number: int) -> None:
        """Somebody swaps to any version; what cannot be is refused and changes nothing."""
        before = self.store
        try:
            self.store = lifecycle.swap(self.store, number, FABRIC, self.now_ms)
        except AnewError:
            assert self.store == before
            return
        assert before.current[FABRIC] in (0, *(v.number for v in self.store.versions if v.status is S.BACKUP))

    @precondition(lambda self: self.store.current[FABRIC] > 0)
    @rule()
    def roll_back(self) -> None:
        """Somebody rolls back to the newest backup."""
        before = self.store.current[FABRIC]
        backups = [v.number for v in self.store.versions if v.status is S.BACKUP and v.number < before]
        if not backups:
            with pytest.raises(Refused, match="no version to roll back to"):
                lifecycle.rollback_target(self.store, FABRIC)
            return
        target = lifecycle.rollback_target(self.store, FABRIC)
        assert target == max(backups)
        self.store = lifecycle.roll_back(self.store, target, FABRIC, self.now_ms)
        assert self.store.current[FABRIC] == target
        assert lifecycle.existing(self.store, before).status is S.ROLLED_BACK

    @rule(seconds=st.integers(1, _RETENTION_SECONDS))
    def wait(self, seconds: int) -> None:
        """Time passes and records are written."""
        self.now_ms += seconds * 1000
        self.log_end += seconds

    @rule()
    def retire(self) -> None:
        """Retention takes its first step."""
        for number in retirable(self.store, self.now_ms):
            before = lifecycle.existing(self.store, number)
            source = getattr(self.store.in_the_making(), "source_version", None)
            assert number not in (self.store.current[FABRIC], source)
            if before.status in (S.BACKUP, S.ROLLED_BACK):
                assert self.now_ms >= before.fabrics[FABRIC].since_ms + _RETENTION_SECONDS * 1000
            elif before.status is S.DEFERRED:
                overtaken = self.store.current[FABRIC] > number
                assert overtaken or self.now_ms >= before.fabrics[FABRIC].since_ms + _RETENTION_SECONDS * 1000
            else:
                assert before.status in (S.FAILED, S.KILLED)
            self.store = lifecycle.retire(self.store, number, self.now_ms)

    @rule()
    def reclaim(self) -> None:
        """The files of a retired version go."""
        number = self._number(S.RETIRED)
        if number is not None:
            self.store = lifecycle.reclaimed(self.store, number, FABRIC, self.now_ms)

    @rule(rewind=st.integers(0, 50))
    def truncate(self, rewind: int) -> None:
        """The low-water mark moves and the log is truncated below it."""
        feed = self.store.feeds[0]
        marks = low_water(self.store, dict.fromkeys(feed.feed_partitions(), max(0, self.log_end - rewind)))
        assert all(new >= old for new, old in zip(marks[feed.id], feed.low_water, strict=True))
        self.store = self.store.model_copy(update={"feeds": (feed.model_copy(update={"low_water": marks[feed.id]}),)})
        self.truncated = max(marks[feed.id])

    @invariant()
    def the_pointer_names_the_current_version(self) -> None:
        """The pointer is 0 or names the only version that is current."""
        current = [v.number for v in self.store.versions if v.statuses[FABRIC] is S.CURRENT]
        assert current == ([self.store.current[FABRIC]] if self.store.current[FABRIC] else [])

    @invariant()
    def numbers_only_grow(self) -> None:
        """No number is used twice and the next one is above all."""
        assert self.used == sorted(set(self.used)) == [v.number for v in self.store.versions]
        assert self.store.next_version > max(self.used, default=0)

    @invariant()
    def one_rebuild_at_a_time(self) -> None:
        """At most one version is in the making."""
        assert sum(v.status in IN_THE_MAKING for v in self.store.versions) <= 1

    @invariant()
    def no_version_needs_what_was_truncated(self) -> None:
        """Every version that may still be read starts at or above what the log still holds (rule R2)."""
        gone = {S.FAILED, S.KILLED, S.RETIRED, S.RECLAIMED}
        for version in self.store.versions:
            if version.status not in gone:
                assert min(version.fabrics[FABRIC].start.values()) >= self.truncated


@pytest.mark.case("rules:R2", "rules:R14", "rules:R15")
def test_whatever_happens_the_store_stays_whole() -> None:
    """At every step one pointer, one rebuild, growing numbers, and no start below what the log holds."""
    walks = settings(derandomize=True, max_examples=60, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(StoreLife, settings=walks)


def test_the_table_has_no_way_back_from_the_end() -> None:
    """Reclaimed is the end; a failed, killed or retired version never serves again; only swaps and cut-overs serve."""
    dead = {S.FAILED, S.KILLED, S.RETIRED, S.RECLAIMED}
    for (status, event), after in TRANSITIONS.items():
        assert status is not S.RECLAIMED
        assert status not in dead or after in dead
        assert (after is S.CURRENT) == (event in (VersionEvent.SWAP_IN, VersionEvent.CUT_IN))
