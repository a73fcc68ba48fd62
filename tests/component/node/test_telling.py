"""What a node tells its controller, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anew.core.errors import Unreachable
from anew.node.loader import Loader
from anew.node.process import ControllerLink
from tests.component.node.harness import engine_at, world
from tests.component.node.test_node import PlayedController, settings_in

pytestmark = pytest.mark.processes

_HOUR_MS = 3_600_000


def test_what_a_controller_has_just_heard_is_not_told_again(tmp_path: Path) -> None:
    """A report goes out when it says something new, when the last one failed, and every two seconds, by any clock."""
    now_ms, controller, loader = _HOUR_MS, PlayedController(), Loader()
    with world(tmp_path) as words:
        words.version(1, {"k": "v"})
        engine = engine_at(tmp_path, loader)
        link = ControllerLink(controller, engine, replace(settings_in(tmp_path), clock=lambda: now_ms))

        def told() -> int:
            before = len(controller.reports)
            link.report()
            return len(controller.reports) - before

        assert (told(), told()) == (1, 0)
        engine.accept(words.desired())
        engine.step()
        assert (told(), told()) == (1, 0)
        now_ms += 1_999
        assert told() == 0
        now_ms += 1
        assert (told(), told()) == (1, 0)
        now_ms -= _HOUR_MS // 2
        assert (told(), told()) == (1, 0)
        controller.away, now_ms = True, now_ms + 2_000
        with pytest.raises(Unreachable):
            link.report()
        controller.away = False
        assert (told(), told()) == (1, 0)
        engine.stop()
    loader.close()
