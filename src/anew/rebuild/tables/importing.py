"""Importing existing Parquet files as segments, as they are: without a config hash, as nobody knows how they were made.

The same steps as a load: begun, copied to fresh paths, committed at once. So a crash leaves files that no segment
names, and a lease that ends.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anew.api.rebuilds import RebuildView
from anew.api.tables.requests import CommitLoad, LoadedSegment, TableSnapshot
from anew.core.errors import Failed, InvalidRequest, NotFound
from anew.core.plan import Estimate
from anew.core.tables.config import SegmentConfig
from anew.core.tables.plan import TableFence, TableInput, TablePlan, TableRebuildKind, TableTarget
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.segment import Build, Contents, check_segment_name
from anew.deepstore.open import open_deep_store
from anew.rebuild.asking import asked_for, begun_before, follow
from anew.rebuild.driving import run_plan
from anew.rebuild.lease import Lease
from anew.rebuild.tables.driving import TableRun, working
from anew.rebuild.tables.readalike import check_read_alike
from anew.segments.layout import build_path, builds_path
from anew.segments.tables.foreign import examine

_BLOCK_BYTES = 4 * 1024 * 1024


def import_files(snapshot: TableSnapshot, files: Sequence[Path], run: TableRun) -> RebuildView:
    """Make a segment of each file, named after it; a segment of that name gets a new build (cases D5, D6).

    Returns:
        The ``rebuild`` shape.

    Raises:
        NotFound: ``no_input``.
        InvalidRequest: ``bad_name``, ``duplicate_segment``, ``not_parquet``, ``missing_column``, and what
            `anew.segments.tables.foreign.examine` and `check_read_alike` find; nothing was changed.
        Refused: ``plan_outdated``.
    """
    asked = asked_for("table import", snapshot.table.name, files=sorted(str(f.expanduser().resolve()) for f in files))
    before = begun_before(run.controller, run.request_id, asked)
    if before is not None:
        return follow(run.controller, before.id, run.observer)
    named = _named(files)
    found = {name: examined(path, snapshot.table.config) for name, path in named.items()}
    plan = _plan(snapshot, named, found).model_copy(update={"asked": asked})

    def work(rebuild: TableRebuild, _lease: Lease) -> RebuildView:
        made = tuple(_put(snapshot, rebuild, _File(name, path, found[name]), run) for name, path in named.items())
        read = sum(contents.rows for contents in found.values())
        commit = CommitLoad(epoch=rebuild.epoch, segments=made, read=read)
        return run.patiently(lambda: run.controller.commit_load(rebuild.id, commit))

    return run_plan(plan, run, working(run, work))


def _named(files: Sequence[Path]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for file in files:
        path = file.expanduser().resolve()
        if not path.is_file():
            raise NotFound("no_input", "the input does not exist", found=str(path), expected="a Parquet file")
        check_segment_name(path.stem)
        if path.stem in named:
            raise InvalidRequest(
                "duplicate_segment", "two files would become one segment", found=f"{named[path.stem]}, {path}"
            )
        named[path.stem] = path
    if not named:
        raise InvalidRequest("empty_input", "there is nothing to import", found="no FILE", expected="Parquet files")
    return named


def examined(path: Path, config: SegmentConfig) -> Contents:
    """What a file holds; what nobody could serve is refused before anything is made."""
    try:
        contents = examine(path, config)
        named = {name: stats for name, stats in contents.columns.items() if name in config.by_name}
        _check_present(path, config, contents)
        check_read_alike(path, named)
    except Failed as error:
        raise _refused(path, error) from error
    return contents


def _refused(path: Path, error: Failed) -> InvalidRequest:
    if error.code != "segment_unreadable":
        return InvalidRequest(
            error.code, error.message, found=error.found, expected=error.expected or "values that fit", hint=error.hint
        )
    return InvalidRequest(
        "not_parquet", f"{path} cannot be imported: {error.message}", found=error.found, expected="a Parquet file"
    )


def _check_present(path: Path, config: SegmentConfig, contents: Contents) -> None:
    for column in config.columns:
        needed = not column.nullable and column.default is None and column.name not in config.derived
        if needed and column.name not in contents.columns:
            raise InvalidRequest(
                "missing_column",
                f"{path} has no column {column.name}",
                found=", ".join(contents.columns),
                expected=f"{column.name}, which is not nullable and has no default",
            )
    if not contents.columns.keys() & config.by_name.keys():
        raise InvalidRequest(
            "missing_column",
            f"{path} has no column of the table",
            found=", ".join(contents.columns),
            expected=", ".join(config.by_name),
        )


def _plan(snapshot: TableSnapshot, named: dict[str, Path], found: dict[str, Contents]) -> TablePlan:
    table = snapshot.table
    source = TableInput(paths=tuple(str(path) for path in named.values()), format="import", prefix="", segment_rows=0)
    records = sum(contents.rows for contents in found.values())
    return TablePlan(
        kind=TableRebuildKind.TABLE_LOAD,
        table=table.name,
        target=TableTarget(config=table.config, config_hash=table.config_hash, fabric=table.fabric),
        why=(f"{len(named)} files become segments as they are, without a config hash",),
        estimate=Estimate(records=records, bytes=sum(path.stat().st_size for path in named.values())),
        source=source,
        fence=TableFence(table_uid=table.uid, config_hash=table.config_hash),
        planned_at_ms=snapshot.now_ms,
    ).sealed()


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    path: Path
    contents: Contents


def _put(snapshot: TableSnapshot, rebuild: TableRebuild, file: _File, run: TableRun) -> LoadedSegment:
    name, path = file.name, file.path
    store = open_deep_store(snapshot.deep_store)
    target = build_path(builds_path(rebuild.table_uid, rebuild.id, rebuild.epoch), name, "imported")
    with path.open("rb") as content:
        checksum = hashlib.file_digest(content, "sha256").hexdigest()
        content.seek(0)
        with store.write(target) as sink:
            shutil.copyfileobj(content, sink, _BLOCK_BYTES)
    stored = store.checksum(target)
    if stored != checksum:
        raise Failed("checksum_mismatch", f"{path} changed while it was copied", found=stored, expected=checksum)
    build = Build(
        id=f"{rebuild.id}-e{rebuild.epoch}-{name}",
        path=target,
        bytes=path.stat().st_size,
        sha256=checksum,
        config_hash=None,
        imported_under=rebuild.plan.target.config_hash,
        contents=file.contents,
        rebuild=rebuild.id,
        built_at_ms=run.clock(),
    )
    return LoadedSegment(segment=name, build=build)
