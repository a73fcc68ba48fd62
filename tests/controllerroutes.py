"""Which routes a controller has, and what each takes, as its handlers declare it."""

from __future__ import annotations

from fastapi import FastAPI

from anew.api.rights import Need
from anew.controller.app import make_app
from anew.controller.engine.context import Context
from anew.controller.http.admission import rights_of
from anew.controller.subjects import SUBJECTS
from anew.testing.memory.catalog import Database, MemoryCatalog


def _app() -> FastAPI:
    return make_app(Context(MemoryCatalog(Database()), {}, clock=lambda: 0, new_id=lambda: "id", subjects=SUBJECTS))


CONTROLLER_RIGHTS: dict[tuple[str, str], Need] = rights_of(_app())
"""(method, path) of each route → what it takes."""
