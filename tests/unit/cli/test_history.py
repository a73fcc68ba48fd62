"""``anew history --follow``: the last lines, then what comes, each once and the newest last."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anew.api.upkeep import EventLine, Events, HistoryLine
from anew.cli.history import _follow
from anew.testing.clock import NOON_MS


def _line(number: int, subject: str = "flights") -> dict[str, Any]:
    return {"id": f"op-{number}", "at_ms": NOON_MS, "actor": "a", "what": "w", "subject": subject, "detail": {}}


class _Controller:
    """One that is interrupted once it has told all."""

    def __init__(self, *answers: list[EventLine]) -> None:
        self._answers = [Events(items=(), next=7, oldest=1)]
        self._answers += [Events(items=tuple(items), next=8 + n, oldest=1) for n, items in enumerate(answers)]
        self.asked: list[int] = []

    def history(self, _store: str | None, limit: int) -> list[HistoryLine]:
        """Of operation 3 the cursor does not know yet when it is asked first."""
        return [HistoryLine(**_line(number)) for number in (3, 2, 1)][:limit]

    def events(self, after: int, *, store: str | None, wait_seconds: float = 0.0) -> Events:
        """The next answer."""
        assert store == "flights"
        self.asked.append(after)
        if not self._answers:
            raise KeyboardInterrupt
        return self._answers.pop(0)


@pytest.mark.parametrize("as_json", [True, False])
def test_each_line_is_printed_once_as_it_comes(capsys: pytest.CaptureFixture[str], *, as_json: bool) -> None:
    """What is done while the lines before are read is told once."""
    controller: Any = _Controller(
        [EventLine(revision=8, **_line(3))],
        [],
        [EventLine(revision=12, **_line(5))],
    )
    with pytest.raises(KeyboardInterrupt):
        _follow(controller, "flights", 2, as_json=as_json)
    printed = capsys.readouterr().out.splitlines()
    if as_json:
        assert [json.loads(line)["id"] for line in printed] == ["op-2", "op-3", "op-5"]
    assert (len(printed), controller.asked[1:]) == (3, [7, 8, 9, 10])
