"""Who may end whose rebuild, as data: decided by what a rebuild is, never by what it is called (case H2)."""

from __future__ import annotations

from collections.abc import Collection

from anew.core.errors import Refused
from anew.core.stores.store import IN_THE_MAKING, SERVABLE, RebuildKind, Store, Version

_K = RebuildKind
MAY_KILL: dict[tuple[RebuildKind, RebuildKind], bool] = {
    (_K.FULL_PUSH, _K.FULL_PUSH): False,
    (_K.FULL_PUSH, _K.REPUSH): True,
    (_K.FULL_PUSH, _K.TTL_REPUSH): True,
    (_K.REPUSH, _K.FULL_PUSH): False,
    (_K.REPUSH, _K.REPUSH): False,
    (_K.REPUSH, _K.TTL_REPUSH): False,
    (_K.TTL_REPUSH, _K.FULL_PUSH): False,
    (_K.TTL_REPUSH, _K.REPUSH): False,
    (_K.TTL_REPUSH, _K.TTL_REPUSH): False,
    **{(kind, _K.STREAM_REPROCESSING): False for kind in _K},
    **{(_K.STREAM_REPROCESSING, kind): False for kind in _K},
}
"""(incoming, running) → whether the incoming one ends the running one; otherwise the incoming one is refused.

A user's push brings new data and goes before the upkeep of old data; upkeep never ends anything, not even upkeep. What
follows a job is never in the making, so that it ends nothing and nothing ends it.
"""


def displaced(store: Store, incoming: RebuildKind, fabrics: Collection[str]) -> tuple[Version, ...]:
    """The versions in the making that end for a rebuild of that kind in some fabrics.

    What is made, or waits, in other fabrics alone is not in the way. What other fabrics have, load or wait for as well
    is not ended for some of its fabrics.

    Raises:
        Refused: ``rebuild_running``, ``swap_deferred`` (case H10).
    """
    waiting = store.deferred(fabrics)
    if waiting is not None:
        raise Refused(
            "swap_deferred",
            f"{waiting.name_in(store.name)} waits to be swapped",
            found=f"version {waiting.number} is deferred, as it was asked for",
            expected="no deferred version",
            hint=f"anew swap {store.name} {waiting.number}, or give it up: anew rebuild kill {waiting.rebuild}",
        )
    in_the_way = tuple(version for version in store.versions if version.has(IN_THE_MAKING, fabrics))
    for running in in_the_way:
        others = running.fabrics.keys() - set(fabrics)
        if not MAY_KILL[incoming, running.kind] or running.has(SERVABLE | IN_THE_MAKING, others):
            raise Refused(
                "rebuild_running",
                f"a rebuild of {store.name} is running",
                found=f"{running.name_in(store.name)}, a {running.kind.value}, by {running.rebuild}",
                expected="no version in the making",
                hint=f"wait for it, or: anew rebuild kill {running.rebuild}",
            )
    return in_the_way
