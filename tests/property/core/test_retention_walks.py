"""Retention over random life cycles in two fabrics, built with the steps of the life cycle itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anew.core.errors import AnewError
from anew.core.feed import NOWHERE
from anew.core.stores import lifecycle
from anew.core.stores.retention import keeping, retirable
from anew.core.stores.store import IN_THE_MAKING, ManifestRef, RebuildKind, Store, Version, VersionStatus
from anew.core.stores.transitions import VersionEvent
from anew.testing.builders import a_config, a_store, a_version
from anew.testing.clock import NOON_MS
from tests.property.core.histories import MODEST

S = VersionStatus
K = RebuildKind
_FABRICS = ("dc-0", "dc-1")
_RETENTION_SECONDS, _WAIT_SECONDS = 100, 10
_RETENTION_MS, _WAIT_MS = _RETENTION_SECONDS * 1000, _WAIT_SECONDS * 1000
_DEAD = {S.FAILED, S.KILLED}
_GONE = {S.RETIRED, S.RECLAIMED}


def _manifest(number: int) -> ManifestRef:
    return ManifestRef(path=f"v{number}", checksum="c", files=1, rows=1, tombstones=0, bytes=1, fingerprint=number)


@dataclass
class _Life:
    """A store and its time; each step is one that the life cycle allows, or changes nothing."""

    store: Store = field(
        default_factory=lambda: a_store(
            config=a_config(backup_retention_seconds=_RETENTION_SECONDS),
            fabrics=_FABRICS,
            current=dict.fromkeys(_FABRICS, 0),
        )
    )
    now_ms: int = NOON_MS

    def begin(self, kind: RebuildKind, source: int | None, *, defer: bool = False) -> int | None:
        """Begin a version, when none is in the making and its source can be read; its number."""
        store = self.store
        read = None if source is None else store.version(source)
        possible = kind is K.FULL_PUSH or (read is not None and read.readable)
        if store.in_the_making() is not None or store.deferred() is not None or not possible:
            return None
        made = a_version(
            store.next_version,
            kind=kind,
            source_version=None if kind is K.FULL_PUSH else source,
            defer_swap=defer,
            statuses=dict.fromkeys(_FABRICS, S.BUILDING),
            since_ms=self.now_ms,
        )
        for fabric, number in store.current.items():
            made = made.moved((fabric,), swap_from=number)
        self.store = store.model_copy(update={"versions": (*store.versions, made), "next_version": made.number + 1})
        return made.number

    def seal(self) -> None:
        """Seal what is building."""
        making = self.store.in_the_making()
        if making is not None and making.manifest is None:
            manifest = _manifest(making.number)
            self.store = lifecycle.seal(self.store, making.number, manifest, NOWHERE, self.now_ms)

    def swap_when_ready(self, fabric: str) -> None:
        """Swap what is loading in a fabric."""
        making = self.store.in_the_making()
        if making is not None and making.statuses[fabric] is S.LOADING:
            self.store = lifecycle.caught_up(self.store, making.number, fabric, self.now_ms)
            self.store = lifecycle.swap_when_ready(self.store, making.number, fabric, self.now_ms)

    def end_badly(self, event: VersionEvent) -> None:
        """Fail or kill what is in the making, or kill what is deferred."""
        version = self.store.in_the_making() or (self.store.deferred() if event is VersionEvent.KILL else None)
        if version is not None:
            self.store = lifecycle.end_badly(self.store, version.number, event, "why", self.now_ms)

    def move(self, swapper: lifecycle.Swapper, number: int, fabric: str) -> None:
        """Swap or roll back, as far as the life cycle allows it."""
        try:
            self.store = swapper(self.store, number, fabric, self.now_ms)
        except AnewError:
            return

    def hold(self, number: int, seconds: int) -> None:
        """A long read holds a version that can be read."""
        try:
            self.store = lifecycle.hold(self.store, number, self.now_ms + seconds * 1000, self.now_ms)
        except AnewError:
            return

    def collect(self) -> None:
        """Retire what may go, and check that it was right."""
        gone = _may_go(self.store, self.now_ms)
        _check(self.store, self.now_ms, gone)
        for number in gone:
            self.store = lifecycle.retire(self.store, number, self.now_ms)
        assert _may_go(self.store, self.now_ms) == {}

    def chained(self, kind: RebuildKind) -> None:
        """One rebuild of the current version, from its begin to its swap everywhere."""
        self.begin(kind, self.store.current[_FABRICS[0]])
        self.finish()

    def finish(self) -> None:
        """Bring what is in the making to its swap everywhere."""
        self.seal()
        for fabric in _FABRICS:
            self.swap_when_ready(fabric)


def _may_go(store: Store, now_ms: int) -> dict[int, str]:
    return retirable(store, now_ms, repush_source_wait_seconds=_WAIT_SECONDS)


def _claimed(store: Store, version: Version, now_ms: int) -> bool:
    making = store.in_the_making()
    is_source = making is not None and making.source_version == version.number
    return is_source or now_ms < store.read_until_ms.get(version.number, 0)


def _targets(versions: list[Version], store: Store, fabric: str) -> list[Version]:
    return [v for v in versions if v.statuses[fabric] is S.BACKUP and v.number < store.current[fabric]]


def _check(store: Store, now_ms: int, gone: dict[int, str]) -> None:
    """What must hold of a set of versions to delete, said without the walk that found it."""
    alive = [version for version in store.versions if _GONE.isdisjoint(version.statuses.values())]
    kept = keeping(store, now_ms, repush_source_wait_seconds=_WAIT_SECONDS)
    assert sorted([*gone, *kept]) == [version.number for version in alive]
    assert all([*gone.values(), *kept.values()])
    for version in alive:
        statuses = set(version.statuses.values())
        if version.number in gone:
            assert statuses.isdisjoint({S.CURRENT, *IN_THE_MAKING})
            assert not _claimed(store, version, now_ms)
            assert not (version.defer_swap and S.DEFERRED in statuses)
            for fabric, status in version.statuses.items():
                passed_ms = now_ms - version.fabrics[fabric].since_ms
                if status in (S.BACKUP, S.ROLLED_BACK) and passed_ms < _RETENTION_MS:
                    current = lifecycle.existing(store, store.current[fabric])
                    assert (status, version.kind, current.kind) == (S.BACKUP, K.REPUSH, K.REPUSH)
                    assert passed_ms >= _WAIT_MS
        elif statuses <= _DEAD:
            assert _claimed(store, version, now_ms)
    for fabric in _FABRICS:
        targets = _targets(alive, store, fabric)
        within = [v for v in targets if now_ms < v.fabrics[fabric].since_ms + _RETENTION_MS]
        assert not within or any(version.number not in gone for version in targets)


_numbers = st.integers(1, 9)
_fabrics = st.sampled_from(_FABRICS)
_kinds = st.sampled_from([K.REPUSH, K.REPUSH, K.REPUSH, K.TTL_REPUSH, K.FULL_PUSH])
_seconds = st.sampled_from([1, _WAIT_SECONDS, _WAIT_SECONDS, 40, _RETENTION_SECONDS])
_steps = st.one_of(
    st.tuples(st.just("rebuild"), _kinds, _seconds),
    st.tuples(st.just("wait"), _seconds),
    st.tuples(st.just("collect")),
    st.tuples(st.just("begin"), _kinds, _numbers, st.sampled_from([False, False, False, True])),
    st.tuples(st.just("seal")),
    st.tuples(st.just("swap when ready"), _fabrics),
    st.tuples(st.just("end"), st.sampled_from([VersionEvent.FAIL, VersionEvent.KILL])),
    st.tuples(st.just("move"), st.sampled_from([lifecycle.swap, lifecycle.roll_back]), _numbers, _fabrics),
    st.tuples(st.just("hold"), _numbers, st.sampled_from([5, 2 * _RETENTION_SECONDS])),
)
_WALKS = settings(MODEST, max_examples=150)


def _take(life: _Life, step: tuple[object, ...]) -> None:
    match step:
        case ("begin", RebuildKind() as kind, int(source), bool(defer)):
            life.begin(kind, source, defer=defer)
        case ("rebuild", RebuildKind() as kind, int(seconds)):
            life.finish()
            life.now_ms += seconds * 1000
            life.chained(kind)
        case ("seal",):
            life.seal()
        case ("swap when ready", str(fabric)):
            life.swap_when_ready(fabric)
        case ("end", VersionEvent() as event):
            life.end_badly(event)
        case ("move", swapper, int(number), str(fabric)):
            life.move(lifecycle.swap if swapper is lifecycle.swap else lifecycle.roll_back, number, fabric)
        case ("hold", int(number), int(seconds)):
            life.hold(number, seconds)
        case ("wait", int(seconds)):
            life.now_ms += seconds * 1000
        case ("collect",):
            life.collect()
        case _:
            raise AssertionError(step)


@pytest.mark.case("stores:H7", "stores:H8", "rules:R15")
@_WALKS
@given(st.lists(_steps, min_size=25, max_size=60))
def test_retention_never_takes_what_is_needed(steps: list[tuple[object, ...]]) -> None:
    """In any life it spares what serves, is made, is read from or is waited for, and one version to go back to; failed
    and killed versions go at once; and when all time has passed only what an event must end remains."""
    life = _Life()
    life.chained(K.FULL_PUSH)
    for step in steps:
        _take(life, step)
        _check(life.store, life.now_ms, _may_go(life.store, life.now_ms))
    life.now_ms += 3 * _RETENTION_MS
    life.collect()
    for version in life.store.versions:
        statuses = set(version.statuses.values())
        if not statuses <= _GONE and not _claimed(life.store, version, life.now_ms):
            serves_or_is_made = not statuses.isdisjoint({S.CURRENT, *IN_THE_MAKING})
            assert serves_or_is_made or (version.defer_swap and S.DEFERRED in statuses)


@pytest.mark.case("stores:H7", "stores:H8")
@MODEST
@given(st.lists(st.integers(_WAIT_SECONDS, 2 * _RETENTION_SECONDS), min_size=1, max_size=15))
def test_chained_repushes_do_not_leak(gaps: list[int]) -> None:
    """However many plain repushes follow one another further apart than the wait, at most three versions remain: the
    current one, its source, and one real backup; and always one to go back to within its retention."""
    life = _Life()
    life.chained(K.FULL_PUSH)
    for gap in gaps:
        life.now_ms += gap * 1000
        life.collect()
        life.chained(K.REPUSH)
        life.collect()
        alive = [version for version in life.store.versions if _GONE.isdisjoint(version.statuses.values())]
        assert len(alive) <= 3
        assert lifecycle.rollback_target(life.store, _FABRICS[0]) < life.store.current[_FABRICS[0]]
