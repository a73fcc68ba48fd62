"""What it costs to plan a refresh of a table with very many segments, all of them stale: seconds and memory.

Planning is a pure choice over rows of the catalog; no file is opened. A process of its own plans, so that its memory is
known.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from anew.api.location import LogLocation
from anew.api.tables.requests import PlanRefresh
from anew.catalog.change import Change, Operation, PutConfig, PutTable
from anew.catalog.database import DatabaseCatalog
from anew.catalog.tables import SEGMENTS
from anew.controller.engine.context import Context, Fabric
from anew.controller.tables.planning import plan_refresh
from anew.core.tables.plan import TablePlan
from anew.core.tables.table import SLOTS
from anew.deepstore.open import open_deep_store
from anew.log.embedded import EmbeddedLog
from anew.testing.builders import FABRIC
from anew.testing.clock import NOON_MS
from anew.testing.table_builders import a_segment, a_table
from bench.machine import peak_rss_bytes
from bench.measuring import Bench, Claim, Measured, Repeats, timed
from bench.synthetic import SEED

_ROWS_AT_ONCE = 20_000
_CHOSEN = 20


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with so many segments."""
    return [_measure(folder / str(size), size, repeats) for size in sizes]


def _measure(folder: Path, segments: int, repeats: Repeats) -> Measured:
    folder.mkdir()
    _fill(folder, segments)
    asked = [sys.executable, "-m", "bench.refreshscale", str(folder), str(repeats.warm_ups), str(repeats.repetitions)]
    told = json.loads(subprocess.run(asked, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()[-1])
    if (told["chosen"], told["left"]) != (_CHOSEN, segments - _CHOSEN):
        raise AssertionError(f"of {segments} stale segments {told['chosen']} are chosen and {told['left']} left")
    shutil.rmtree(folder)
    return Measured(segments, {"plan": told["seconds"]}, {"peak_bytes": told["peak_bytes"]}, {"chosen": _CHOSEN})


def _context(folder: Path) -> Context:
    log = EmbeddedLog(folder / "log", clock=lambda: NOON_MS)
    fabric = Fabric(FABRIC, log, LogLocation(kind="embedded", address="log"), open_deep_store(str(folder / "deep")))
    return Context(DatabaseCatalog(_url(folder)), {FABRIC: fabric}, lambda: NOON_MS, lambda: "id")


def _url(folder: Path) -> str:
    return f"sqlite:///{folder}/catalog.db"


def _fill(folder: Path, segments: int) -> None:
    """A table whose segments are all of the configuration before; rows go in as rows, a record would take too long."""
    before, after = a_table(), a_table(sort=["city"])
    context = _context(folder)
    puts = (PutTable(after, None), PutConfig(before.config), PutConfig(after.config))
    context.catalog.commit(Change(Operation("make", NOON_MS, "bench", "create", after.name), puts))
    context.catalog.close()
    document = a_segment(config_hash=before.config_hash).model_dump_json()
    engine = sa.create_engine(_url(folder))
    for first in range(0, segments, _ROWS_AT_ONCE):
        rows = [
            {
                "table_uid": after.uid,
                "name": f"s{number:07d}",
                "revision": 1,
                "build": f"build-{number}",
                "bytes": 1_000_000,
                "rows": 10_000,
                "config_hash": before.config_hash,
                "slot": number % SLOTS,
                "created_at_ms": NOON_MS + number,
                "document": document,
            }
            for number in range(first, min(first + _ROWS_AT_ONCE, segments))
        ]
        with engine.begin() as connection:
            connection.execute(sa.insert(SEGMENTS), rows)
    engine.dispose()


def _plan(folder: Path, warm_ups: int, repetitions: int) -> None:
    """The process whose memory counts."""
    context = _context(folder)
    table = context.catalog.tables()[0]
    plans: list[TablePlan] = []

    def plan() -> None:
        plans[:] = [plan_refresh(context, table, PlanRefresh(max_segments=_CHOSEN))]

    seconds = [timed(plan) for _ in range(warm_ups + repetitions)][warm_ups:]
    peak_bytes = float(peak_rss_bytes(os.getpid()))
    told = {"seconds": seconds, "peak_bytes": peak_bytes, "chosen": len(plans[0].segments), "left": plans[0].left}
    print(json.dumps(told))


BENCHES = (
    Bench(
        "refresh-scale",
        "the plan of a refresh of a table whose segments are all stale",
        "segments",
        (250_000, 500_000, 1_000_000),
        (1_000, 2_000),
        (
            Claim("seconds for a plan of 1,000,000 segments", lambda found: found[-1].median("plan"), most=5.0),
            Claim("peak memory, GB", lambda found: found[-1].values["peak_bytes"] / 1e9, most=1.0),
        ),
        run,
        SEED,
    ),
)

if __name__ == "__main__":
    _plan(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
