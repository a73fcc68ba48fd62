"""What a version may become in one fabric, as a table."""

from __future__ import annotations

from enum import StrEnum

from anew.core.errors import Refused
from anew.core.stores.store import VersionStatus

S = VersionStatus


class VersionEvent(StrEnum):
    """What can happen to a version in one fabric."""

    SEAL = "seal"
    CATCH_UP = "catch up"
    SWAP_IN = "swap in"
    SWAP_OUT = "swap out"
    ROLL_BACK = "roll back"
    DEFER = "defer"
    PUT_OFF = "put off"
    CUT_IN = "cut in"
    CUT_OUT = "cut out"
    TAKE = "take"
    FAIL = "fail"
    KILL = "kill"
    RETIRE = "retire"
    RECLAIM = "reclaim"


_E = VersionEvent
TRANSITIONS: dict[tuple[VersionStatus, VersionEvent], VersionStatus] = {
    (S.BUILDING, _E.SEAL): S.LOADING,
    (S.BUILDING, _E.PUT_OFF): S.PENDING,
    (S.PENDING, _E.TAKE): S.LOADING,
    (S.LOADING, _E.CATCH_UP): S.READY,
    (S.READY, _E.SWAP_IN): S.CURRENT,
    (S.READY, _E.DEFER): S.DEFERRED,
    (S.DEFERRED, _E.SWAP_IN): S.CURRENT,
    (S.BACKUP, _E.SWAP_IN): S.CURRENT,
    (S.ROLLED_BACK, _E.SWAP_IN): S.CURRENT,
    (S.CURRENT, _E.SWAP_OUT): S.BACKUP,
    (S.CURRENT, _E.ROLL_BACK): S.ROLLED_BACK,
    (S.FOLLOWING, _E.CUT_IN): S.CURRENT,
    (S.CURRENT, _E.CUT_OUT): S.FOLLOWING,
    **{(status, _E.FAIL): S.FAILED for status in (S.BUILDING, S.PENDING, S.LOADING, S.READY)},
    **{(status, _E.KILL): S.KILLED for status in (S.BUILDING, S.PENDING, S.LOADING, S.READY, S.DEFERRED)},
    (S.FOLLOWING, _E.KILL): S.KILLED,
    **{
        (status, _E.RETIRE): S.RETIRED
        for status in (S.PENDING, S.BACKUP, S.ROLLED_BACK, S.DEFERRED, S.FAILED, S.KILLED)
    },
    (S.RETIRED, _E.RECLAIM): S.RECLAIMED,
}


def step(status: VersionStatus, event: VersionEvent) -> VersionStatus:
    """What the version is after the event.

    Raises:
        Refused: ``bad_transition``: the event cannot happen in this status.
    """
    after = TRANSITIONS.get((status, event))
    if after is None:
        possible = sorted(e.value for s, e in TRANSITIONS if s is status)
        raise Refused(
            "bad_transition",
            f"a version that is {status.value} cannot {event.value}",
            found=status.value,
            expected=f"one of these events: {', '.join(possible)}" if possible else "nothing: this is its end",
        )
    return after
