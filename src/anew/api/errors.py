"""How requests are answered that were not carried out."""

from __future__ import annotations

from typing import Any

from anew.api.wire import Wire, example


class ErrorDetail(Wire):
    """Why a request was not carried out: ``code`` is for programs and never changes, the rest is for people."""

    code: str
    message: str
    found: Any = None
    expected: Any = None
    hint: str | None = None


class ErrorAnswer(Wire):
    """What every request that is not carried out is answered with."""

    model_config = example(
        error={
            "code": "unknown_store",
            "message": "there is no store flihgts",
            "found": "flihgts",
            "expected": "flights",
            "hint": "anew store list",
        }
    )

    error: ErrorDetail
