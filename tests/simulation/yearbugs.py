"""Bugs that are planted in what leaves a store and in what the catalog forgets; see `tests.simulation.keeping`.

Each is found within days of `tests.simulation.years`; two of them show in histories as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from anew.catalog.forget import ForgetRebuilds, ForgetRequests
from anew.controller.stores import leaving
from anew.controller.upkeep import forgetting
from anew.core.stores import leaving as core_leaving
from anew.core.stores import lifecycle
from anew.core.stores.store import VersionStatus
from anew.core.tables.segment import Segment
from anew.testing.builders import FABRIC
from anew.testing.memory import forgetting as memory_forgetting
from tests.simulation.planting import Bug, Plant, both, bug

YEAR_BUGS: list[Bug] = []


def _bug(name: str, *found_by: str) -> Callable[[Plant], Plant]:
    def keep(plant: Plant) -> Plant:
        YEAR_BUGS.append(Bug(name, plant, frozenset(found_by), 0, None))
        return plant

    return keep


@bug("R15: what is retired leaves before its files are gone", "history is kept", seed=2)
@_bug("R15: what is retired leaves before its files are gone", "what leaves has no files")
def _leaves_early() -> AbstractContextManager[Any]:
    gone = {VersionStatus.RETIRED, VersionStatus.RECLAIMED}

    def leavers(store: Any, most: int) -> Any:
        return [version for version in store.versions if gone.issuperset(version.statuses.values())][:most]

    return patch.object(leaving, "leavers", leavers)


@bug("R15: a version counts as reclaimed when it retires", "nothing is left behind", seed=2)
@_bug("R15: a version counts as reclaimed when it retires", "what leaves has no files")
def _reclaimed_at_once() -> AbstractContextManager[Any]:
    def retired(store: Any, number: int, now_ms: int) -> Any:
        return lifecycle.reclaimed(retire(store, number, now_ms), number, FABRIC, now_ms)

    retire = lifecycle.retire
    return patch.object(lifecycle, "retire", retired)


@_bug("leaving: a version does not wait for the end of its rebuild", "what leaves has ended")
def _leaves_its_rebuild() -> AbstractContextManager[Any]:
    return patch.object(leaving, "_ready", lambda _context, store: core_leaving.leavers(store, 500))


@_bug("forgetting: a rebuild goes by its age alone, though it runs", "a rebuild that runs is known")
def _running_forgotten() -> AbstractContextManager[Any]:
    def unnamed(tables: Any, before_ms: int, _named_from_ms: int) -> Iterator[str]:
        return iter([rebuild.id for rebuild in tables.rebuilds.values() if rebuild.created_at_ms < before_ms])

    def ended(_tables: Any, rebuilds: Any, _named_from_ms: int) -> Iterator[str]:
        return (rebuild.id for rebuild in rebuilds)

    # A running rebuild has its version, which keeps it as well.
    oldest = patch("anew.testing.memory.catalog.unnamed", unnamed)
    return both(oldest, patch.object(memory_forgetting, "_ended", ended))


@_bug("forgetting: a rebuild goes while its version is there", "a rebuild is known while what it made is there")
def _maker_forgotten() -> AbstractContextManager[Any]:
    def unnamed(tables: Any, before_ms: int, named_from_ms: int) -> Iterator[str]:
        ended = (rebuild for rebuild in tables.rebuilds.values() if rebuild.created_at_ms < before_ms)
        return memory_forgetting._ended(tables, ended, named_from_ms)

    return patch("anew.testing.memory.catalog.unnamed", unnamed)


@_bug("forgetting: nobody looks which segments ask for a rebuild", "a rebuild is known while a segment asks for it")
def _load_forgotten() -> AbstractContextManager[Any]:
    return patch.object(Segment, "made_by", property(lambda _: None))


@_bug("R22: a rebuild goes before its request", "a rebuild is known while a request names it")
def _asked_in_vain() -> AbstractContextManager[Any]:
    def ended(_tables: Any, rebuilds: Any, _named_from_ms: int) -> Iterator[str]:
        return (rebuild.id for rebuild in rebuilds if rebuild.ended)

    def rebuilds(context: Any, _most: int, _named_from_ms: int) -> Iterator[Any]:
        before_ms = context.clock() - context.limits.row_retention.rebuild * 1000
        ids = tuple(context.catalog.unnamed_rebuilds(before_ms))
        return iter([forgetting.Due("rebuilds", "", "old", len(ids), (ForgetRebuilds(ids),))] if ids else [])

    return both(patch.object(memory_forgetting, "_ended", ended), patch.object(forgetting, "_rebuilds", rebuilds))


@_bug(
    "R22: a request goes while its rebuild runs", "a request is known while its rebuild runs", "a request begins once"
)
def _asked_too_late() -> AbstractContextManager[Any]:
    def found(tables: Any, history: Any, forget: Any) -> Any:
        if isinstance(forget, ForgetRequests):
            return (key for key, at_ms in tables.request_times.items() if at_ms < forget.before_ms)
        return of(tables, history, forget)

    of = memory_forgetting._found
    return patch.object(memory_forgetting, "_found", found)


@_bug("R22: a request goes after half its retention", "a request is known for its retention", "a request begins once")
def _forgotten_early() -> AbstractContextManager[Any]:
    def of_all(context: Any, most: int) -> Any:
        kept = context.limits.row_retention
        limits = replace(context.limits, row_retention=replace(kept, request=kept.request // 2))
        return wanted(replace(context, limits=limits), most)

    wanted = forgetting._of_all
    return patch.object(forgetting, "_of_all", of_all)
