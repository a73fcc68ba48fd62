"""What the stores of a cluster do on the embedded log, they do on Kafka: the same tests, on other fixtures."""

from __future__ import annotations

from tests.cluster.test_reconfigurations import test_twenty_reconfigurations_lose_nothing_and_fail_no_read
from tests.cluster.test_under_load import test_a_repush_under_load_keeps_every_write_and_every_delete
from tests.cluster.test_verify import test_a_store_is_proved_equal_through_its_life

__all__ = [
    "test_a_repush_under_load_keeps_every_write_and_every_delete",
    "test_a_store_is_proved_equal_through_its_life",
    "test_twenty_reconfigurations_lose_nothing_and_fail_no_read",
]
