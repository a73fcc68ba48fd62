"""Repairing: files of the deep store that were changed or removed come back from the copies that nodes serve.

Looked at are all files, by their checksums; taken is a copy with the very bytes that were lost, else one that a node
made again by itself. It goes to a fresh path, is checked there, and is committed by compare-and-swap like any build: a
crash before that leaves a file that no segment names.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anew.api.models import FinishRebuild
from anew.api.node_http import NodeClient
from anew.api.rebuilds import RebuildView
from anew.api.tables.copy_wire import SegmentCopy
from anew.api.tables.requests import CommitSegment, TableSnapshot
from anew.core.errors import AnewError, Failed, NotFound, Unreachable
from anew.core.plan import Estimate
from anew.core.tables.plan import PlannedSegment, TableFence, TablePlan, TableRebuildKind, TableTarget
from anew.core.tables.rebuild import Done, SegmentOutcome, TableRebuild
from anew.core.tables.segment import Build, Segment
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.rebuild.driving import run_plan
from anew.rebuild.lease import Lease
from anew.rebuild.tables.driving import TableRun, working
from anew.segments.layout import build_path, builds_path

_BLOCK_BYTES = 4 * 1024 * 1024


def plan_repair(snapshot: TableSnapshot, only: Collection[str] = ()) -> TablePlan:
    """Read every file of a table's segments, and plan to bring those back that are not what they should be.

    Args:
        snapshot: The table with its segments.
        only: The segments to look at; none named: all.

    Raises:
        NotFound: ``unknown_segment``.
        Unreachable: The deep store does not answer.
    """
    unknown = set(only) - {segment.name for segment in snapshot.segments}
    if unknown:
        raise NotFound("unknown_segment", "the table has no such segment", found=", ".join(sorted(unknown)))
    table, store = snapshot.table, open_deep_store(snapshot.deep_store)
    looked = [segment for segment in snapshot.segments if not only or segment.name in only]
    damaged = [(segment, wrong) for segment in looked if (wrong := _wrong_with(store, segment.build)) is not None]
    planned = tuple(
        PlannedSegment(
            segment=segment.name,
            build=segment.build.id,
            config_hash=segment.build.config_hash,
            reasons=(wrong,),
            bytes=segment.build.bytes,
            rows=segment.build.contents.rows,
        )
        for segment, wrong in damaged
    )
    records, size = sum(each.rows for each in planned), sum(each.bytes for each in planned)
    return TablePlan(
        kind=TableRebuildKind.TABLE_REPAIR,
        table=table.name,
        target=TableTarget(config=table.config, config_hash=table.config_hash, fabric=table.fabric),
        why=(f"{len(planned)} of {len(looked)} files are not what they should be",),
        estimate=Estimate(records=records, bytes=size),
        segments=planned,
        fence=TableFence(table_uid=table.uid, config_hash=table.config_hash),
        planned_at_ms=snapshot.now_ms,
    ).sealed()


def _wrong_with(store: DeepStore, build: Build) -> str | None:
    """What is wrong with a build's file; None: nothing."""
    stored = store.stat(build.path)
    if stored is None:
        return f"{build.path} is gone"
    if stored.size_bytes != build.bytes:
        return f"{build.path} has {stored.size_bytes} bytes instead of {build.bytes}"
    found = store.checksum(build.path)
    return None if found == build.sha256 else f"{build.path} has other bytes: sha256 {found} instead of {build.sha256}"


def repair(snapshot: TableSnapshot, plan: TablePlan, nodes: NodeClient, run: TableRun) -> RebuildView:
    """Bring back what a plan names; returns the ``rebuild`` shape.

    Raises:
        Refused: ``plan_outdated``; nothing was changed.
        Failed: ``rebuild_failed``: no segment could be brought back.
    """
    by_name = {segment.name: segment for segment in snapshot.segments}

    def work(rebuild: TableRebuild, _lease: Lease) -> RebuildView:
        for planned in plan.segments:
            one = _One(snapshot.deep_store, by_name[planned.segment], rebuild, nodes, run)
            commit = CommitSegment(epoch=rebuild.epoch, read=planned.build, **one.outcome())
            run.patiently(partial(run.controller.commit_segment, rebuild.id, commit))
        request = FinishRebuild(epoch=rebuild.epoch, records_per_s=None)
        return run.patiently(lambda: run.controller.finish_rebuild(rebuild.id, request))

    return run_plan(plan, run, working(run, work))


@dataclass(frozen=True, slots=True)
class _Offered:
    """A node's copy of a segment."""

    node: str
    url: str
    copy: SegmentCopy


@dataclass(frozen=True, slots=True)
class _One:
    """One segment that is brought back."""

    deep_store: str
    segment: Segment
    rebuild: TableRebuild
    nodes: NodeClient
    run: TableRun

    def outcome(self) -> dict[str, Any]:
        """What became of it, and the build: the first copy that proves whole is taken."""
        reasons: list[str] = []
        for each in self._offered(reasons):
            try:
                build = self._brought(each)
            except (AnewError, OSError) as error:
                reasons.append(f"{each.node}: {error}")
                continue
            done = Done(
                segment=self.segment.name,
                outcome=SegmentOutcome.REPAIRED,
                rows=build.contents.rows,
                bytes=build.bytes,
                filtered=self.segment.build.contents.rows - build.contents.rows,
                why=f"from {each.node}" + (", which had made it again" if each.copy.rebuilt else ""),
            )
            return {"done": done, "build": build}
        why = "; ".join(reasons) or "no node is alive"
        done = Done(segment=self.segment.name, outcome=SegmentOutcome.FAILED, why=f"no node has a copy of it: {why}")
        return {"done": done, "try_again": True}

    def _offered(self, reasons: list[str]) -> list[_Offered]:
        """The copies of the wanted build, those with its very bytes first."""
        found = []
        for view in self.run.patiently(self.run.controller.nodes):
            try:
                copy = self.nodes.segment_copy(view.url, self.rebuild.table, self.segment.name)
            except (NotFound, Unreachable) as error:
                reasons.append(f"{view.id}: {error}")
                continue
            if copy.build == self.segment.build.id:
                found.append(_Offered(view.id, view.url, copy))
            else:
                reasons.append(f"{view.id}: serves the build {copy.build}")
        return sorted(found, key=lambda each: (each.copy.rebuilt, each.node))

    def _brought(self, offered: _Offered) -> Build:
        """Take a copy from a node to a fresh path.

        Raises:
            Failed: ``checksum_mismatch``.
        """
        lost, copy = self.segment.build, offered.copy
        with tempfile.TemporaryDirectory(prefix="anew-repair-") as folder:
            path = Path(folder) / "copy.parquet"
            with path.open("wb") as file:
                for part in self.nodes.segment_bytes(offered.url, self.rebuild.table, self.segment.name, copy):
                    file.write(part)
            with path.open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
            if not copy.rebuilt and checksum != lost.sha256:
                raise Failed(
                    "checksum_mismatch", f"the copy of {offered.node} differs", found=checksum, expected=lost.sha256
                )
            target = self._put(path, checksum, offered.node)
            size = path.stat().st_size
        if not copy.rebuilt:
            return lost.model_copy(update={"path": target})
        return Build(
            id=f"{self.rebuild.id}-e{self.rebuild.epoch}-{self.segment.name}",
            path=target,
            bytes=size,
            sha256=checksum,
            config_hash=copy.config_hash,
            contents=copy.contents,
            rebuild=self.rebuild.id,
            built_at_ms=self.run.clock(),
        )

    def _put(self, path: Path, checksum: str, node: str) -> str:
        store = open_deep_store(self.deep_store)
        directory = builds_path(self.rebuild.table_uid, self.rebuild.id, self.rebuild.epoch)
        target = build_path(directory, self.segment.name, f"of-{node}")
        with path.open("rb") as content, store.write(target) as sink:
            while block := content.read(_BLOCK_BYTES):
                sink.write(block)
        stored = store.checksum(target)
        if stored != checksum:
            raise Failed("checksum_mismatch", f"{target} is not what was written", found=stored, expected=checksum)
        return target
