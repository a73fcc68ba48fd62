"""How long a fresh node takes until it serves a table: with a deep store that is in sync, and with one that is not.

The node's own thread and its loader's process work; the desired state is given to them as a controller would. Out of
sync, each file is fetched just the same, and then made again with the newest configuration.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import structlog.testing

from anew.api.location import LogLocation
from anew.api.models import DesiredState
from anew.api.tables.segments import DesiredSegment, DesiredTable, SegmentState
from anew.core.tables.columns import parse_columns
from anew.core.tables.config import SegmentConfig, segment_config
from anew.core.tables.segment import Build
from anew.core.tables.settings import TableSettings
from anew.deepstore.open import open_deep_store
from anew.node.loader import Loader
from anew.node.tables.hosting import SegmentHost
from anew.segments.tables.rebuild import make_file
from anew.testing.builders import FABRIC
from anew.testing.clock import NOON_MS
from bench.measuring import Bench, Claim, Measured, Repeats, take_turns, timed
from bench.serving import wait_until
from bench.synthetic import SEED
from bench.trips import COLUMNS, TABLE, emptied, trips

_SEGMENTS = 4
_PATIENCE_SECONDS = 600.0


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with a table of so many rows."""
    with structlog.testing.capture_logs():
        return [_measure(folder / str(size), size, repeats) for size in sizes]


def _measure(folder: Path, rows: int, repeats: Repeats) -> Measured:
    before, after = _config("dest"), _config("arr_delay")
    builds = [_build(folder, number, rows // _SEGMENTS, before) for number in range(_SEGMENTS)]
    loader = Loader()
    with closing(loader):

        def joins(config: SegmentConfig) -> float:
            host = SegmentHost(emptied(folder / "node"), loader)
            host.start()
            try:
                return timed(lambda: _serve(host, _desired(folder, builds, config)))
            finally:
                host.stop()

        seconds = take_turns({"in sync": lambda: joins(before), "not in sync": lambda: joins(after)}, repeats)
    return Measured(rows, seconds, figures={"segments": _SEGMENTS, "bytes": sum(build.bytes for build in builds)})


def _config(sort: str) -> SegmentConfig:
    return segment_config(parse_columns({"columns": COLUMNS}), TableSettings(time_column="left_at", sort=(sort,)))


def _build(folder: Path, number: int, rows: int, config: SegmentConfig) -> Build:
    """A segment's file in the deep store."""
    name = f"trips-{number}"
    made = folder / f"{name}.parquet"
    made.parent.mkdir(parents=True, exist_ok=True)
    rebuilt = make_file(trips(rows, number * rows), made, config)
    content = made.read_bytes()
    path = f"tables/{TABLE}/{name}.parquet"
    open_deep_store(str(folder / "deep")).put(path, content)
    return Build(
        id=f"build-{number}",
        path=path,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        config_hash=config.hash,
        contents=rebuilt.contents,
        built_at_ms=NOON_MS,
    )


def _desired(folder: Path, builds: Sequence[Build], config: SegmentConfig) -> DesiredState:
    table = DesiredTable(
        uid=TABLE,
        name=TABLE,
        revision=1,
        columns=config.columns,
        config=config,
        config_hash=config.hash,
        skip_segment_preprocess=False,
        segments=tuple(DesiredSegment(name=f"s{n}", build=build, hosted=True) for n, build in enumerate(builds)),
    )
    return DesiredState(
        revision=1,
        fabric=FABRIC,
        log=LogLocation(kind="embedded", address=str(folder / "log")),
        deep_store=str(folder / "deep"),
        stores=(),
        tables=(table,),
    )


def _serve(host: SegmentHost, desired: DesiredState) -> None:
    (table,) = desired.tables
    host.accept(desired)

    def serves() -> bool:
        found = host.report()
        return len(found) == len(table.segments) and all(
            report.state is SegmentState.SERVING and report.config_hash == table.config_hash for report in found
        )

    wait_until(serves, _PATIENCE_SECONDS)


BENCHES = (
    Bench(
        "join",
        "a fresh node until it serves a table: the deep store in sync, and not",
        "rows",
        (1_000_000, 2_000_000, 4_000_000),
        (1_000, 2_000),
        (
            Claim(
                "in sync ÷ not in sync",
                lambda found: found[-1].median("in sync") / found[-1].median("not in sync"),
                most=0.3,
            ),
        ),
        run,
        SEED,
    ),
)
