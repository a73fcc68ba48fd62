"""What the stores of a cluster do on the embedded log, they do on Kafka: the same tests, on other fixtures."""

from __future__ import annotations

import pytest

from tests.cluster.test_reconfigurations import Step, test_reconfigurations_lose_nothing_and_fail_no_read
from tests.cluster.test_under_load import test_a_repush_under_load_keeps_every_write_and_every_delete
from tests.cluster.test_verify import test_a_store_is_proved_equal_through_its_life

__all__ = [
    "test_a_repush_under_load_keeps_every_write_and_every_delete",
    "test_a_store_is_proved_equal_through_its_life",
    "test_reconfigurations_lose_nothing_and_fail_no_read",
]


@pytest.fixture(scope="module")
def reconfigurations() -> list[Step]:
    """Those that change what is read from topics, or written to them; of files the embedded log tells enough."""
    return [
        ("ttl",),
        ("hybrid=false", "then", "hybrid=true"),
        ("sort",),
        ("transport=log", "amplification_factor=2"),
        ("rewind_from=eop", "lag_limit_records=500"),
        ("partitions=8",),
        ("partitioner=tests.cluster.placing:ByLastByte", 'partitioner_params={"plus": 3}'),
        ("partitions=5",),
        ("transport=files",),
        ("rollback",),
    ]
