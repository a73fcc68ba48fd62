"""Versions that were reclaimed leave their store: what the catalog reads in every round depends on what lives.

A store remembers the numbers of those that have left, so that what is said of them stays true. The versions themselves
become rows of the catalog, in the same commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from anew.core.stores.store import RebuildKind, Store, Version


def leavers(store: Store, most: int) -> list[Version]:
    """The versions that were reclaimed in every fabric, the lowest numbers first, at most so many."""
    return sorted((version for version in store.versions if version.reclaimed), key=lambda v: v.number)[:most]


def past(version: Version) -> Version:
    """The version as it is kept once it has left: without the places of replicas that are gone."""
    return version.moved(version.fabrics, assignment={})


def left(store: Store, numbers: Collection[int]) -> Store:
    """The store without these versions.

    What was made from them keeps its place in its chain of plain repushes: ``plain_source`` names the next version that
    is still there.
    """
    leaving = {version.number: version for version in store.versions if version.number in numbers}
    if not leaving:
        return store
    staying = [version for version in store.versions if version.number not in leaving]
    here = {version.number for version in staying}
    behind: dict[int, int | None] = {}
    for number in sorted(leaving):
        # A source has a lower number than what is made from it: it was looked at before.
        behind[number] = _behind(leaving[number], here, behind) if leaving[number].kind is RebuildKind.REPUSH else None
    versions = tuple(_relinked(version, here, leaving, behind) for version in staying)
    numbered = _runs(chain(store.past_numbers, ((number, number) for number in leaving)))
    return store.model_copy(update={"versions": versions, "past_numbers": numbered})


def source_in_store(version: Version, numbers: Collection[int]) -> int | None:
    """The number of the version that the chain behind a version goes on with, among those that are there."""
    wanted = version.source_version if version.source_version in numbers else version.plain_source
    return wanted if wanted in numbers else None


def _behind(version: Version, here: Collection[int], behind: dict[int, int | None]) -> int | None:
    found = source_in_store(version, here)
    if found is not None:
        return found
    passed = (number for number in (version.source_version, version.plain_source) if number in behind)
    return next((behind[number] for number in passed if number is not None), None)


def _relinked(
    version: Version, here: Collection[int], leaving: Collection[int], behind: dict[int, int | None]
) -> Version:
    if version.source_version not in leaving and version.plain_source not in leaving:
        return version
    return version.model_copy(update={"plain_source": _behind(version, here, behind)})


def _runs(runs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same numbers in as few runs as possible."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return tuple(merged)
