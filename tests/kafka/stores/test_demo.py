"""The demo on Kafka: the same story, and nothing of it runs on afterwards."""

from __future__ import annotations

import pytest

from anew.demo.stage import MARKER
from tests.brokers import ENVIRONMENT, broker_home
from tests.cluster.commands import Anew
from tests.ports import port_of


@pytest.mark.timeout(600)
def test_the_demo_plays_on_kafka() -> None:
    """Every check passes, and its broker is gone with its home."""
    with broker_home() as home:
        (home.path / MARKER).touch()
        anew = Anew(home.path, {**ENVIRONMENT, "ANEW_PORT": str(port_of("kafka demo"))})
        summary = anew.here("demo", "stores", "--kafka", "--every", "16")
        assert summary["passed"] is True
        assert [check["version"] for check in summary["checks"]] == [2, 1, 2]
        assert not home.path.exists()


@pytest.mark.timeout(600)
def test_the_story_of_streams_plays_on_kafka() -> None:
    """A job reads a topic and feeds a store through one broker: every check passes after the rewind too."""
    with broker_home() as home:
        (home.path / MARKER).touch()
        anew = Anew(home.path, {**ENVIRONMENT, "ANEW_PORT": str(port_of("kafka demo"))})
        summary = anew.here("demo", "streams", "--kafka", "--every", "100")
        assert summary["passed"] is True
        assert [check["minutes"] for check in summary["checks"]] == [15, 60]
