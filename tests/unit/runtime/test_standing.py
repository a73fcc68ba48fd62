"""Replicas stand for the base of the version that they hold, and for no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from anew.core.errors import Refused
from anew.runtime.connect import Cluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """One whose store people serves version 2 now."""

    @contextmanager
    def found(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(subject=SimpleNamespace(version=SimpleNamespace(number=2)))

    monkeypatch.setattr(Cluster, "_sources", found)
    monkeypatch.setattr("anew.client.verify.standing", found)
    return object.__new__(Cluster)


def test_after_a_swap_replicas_are_not_read_for_the_version_before(cluster: Cluster) -> None:
    """Damage was found in version 1; whoever serves now holds another base, and the repair begins again."""
    with pytest.raises(Refused) as caught, cluster._standing("people", 1):
        pytest.fail("the replicas of another version are read")
    assert (caught.value.code, caught.value.found) == ("plan_outdated", "version 2")
    assert caught.value.hint == "repair again: anew store repair people"


def test_replicas_of_the_version_itself_are_read(cluster: Cluster) -> None:
    """No swap came."""
    with cluster._standing("people", 2) as standing:
        assert standing.subject.version.number == 2
