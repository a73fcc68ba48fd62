"""A node whose disk is full says so at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.node.disk import DiskWatch
from anew.testing.clock import NOON_MS, ManualClock
from tests.disks import filled, small_disk


@pytest.mark.processes
def test_a_full_disk_is_told_for_as_long_as_it_is_full(tmp_path: Path) -> None:
    """With its place, how much is free, and since when; once there is room nothing is told."""
    clock, disk = ManualClock(), tmp_path / "disk"
    with small_disk(disk, 4):
        watch = DiskWatch(disk, clock)
        assert watch.faults() == ()
        with filled(disk):
            (fault,) = watch.faults()
            clock.advance(5_000)
            assert watch.faults() == (fault,)
            assert (fault.code, fault.since_ms) == ("disk_full", NOON_MS)
            assert f"{disk} is full: 0 of {4 << 20} bytes" in fault.what
        assert watch.faults() == ()


def test_a_directory_that_is_gone_is_no_full_disk(tmp_path: Path) -> None:
    """What cannot be looked at is told by whatever needs it."""
    assert DiskWatch(tmp_path / "gone", ManualClock()).faults() == ()
