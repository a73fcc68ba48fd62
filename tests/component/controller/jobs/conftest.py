"""A controller with a job for each test."""

from __future__ import annotations

import pytest

from tests.component.controller.harness import Cluster
from tests.component.controller.jobs.jobs_harness import Jobs


@pytest.fixture
def jobs(cluster: Cluster) -> Jobs:
    """Two topics of two partitions, and a job without a generation."""
    made = Jobs(cluster)
    made.topics()
    made.create()
    return made
