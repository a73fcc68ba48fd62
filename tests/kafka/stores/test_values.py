"""Large values: what a store takes fits its topic, also after the limit was raised."""

from __future__ import annotations

import json

from tests.cluster.commands import Anew, wait_until


def _write(anew: Anew, key: str, size: int) -> int:
    row = json.dumps({"key": key, "value": {"name": "x" * size, "age": 1}})
    return anew.run_here("write", "large", "-", stdin=row + "\n").code


def test_a_value_as_large_as_the_store_takes_goes_through(anew: Anew) -> None:
    """One byte more than the limit is refused by the writer; a raised limit holds for the topic too."""
    anew.create("large", "hybrid=true", "partitions=1", "rt_partitions=1", "max_value_bytes=3000000")
    anew.here("push", "large", "--empty")
    assert _write(anew, "most", 2_999_000) == 0
    assert _write(anew, "too much", 3_000_001) == 1
    anew.here("store", "update", "large", "--set", "max_value_bytes=6000000")
    wait_until(lambda: _write(anew, "more", 5_900_000) == 0, "the topic to take larger records")
    wait_until(lambda: anew.value("large", "more") is not None, "the larger value")
    assert len(anew.value("large", "more")["name"]) == 5_900_000
    assert len(anew.value("large", "most")["name"]) == 2_999_000
