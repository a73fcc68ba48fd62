"""What the deep stores still say of a lost catalog: records of stores, and manifests of versions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from anew.controller.engine.context import Fabric
from anew.core.errors import Failed, NotFound
from anew.core.stores.store import ManifestRef, Store
from anew.deepstore.interface import DeepStore
from anew.log.interface import Log
from anew.segments.layout import RECORDS, records_path
from anew.segments.manifest import BaseRange, Manifest
from anew.segments.record import parse_record

_STORES = "stores"
_VERSION = re.compile(rf"{_STORES}/(?P<uid>[^/]+)/v(?P<number>[0-9]+)/.+")
_MANIFEST = re.compile(rf"{_STORES}/(?P<uid>[^/]+)/v(?P<number>[0-9]+)/[^/]+-e(?P<epoch>[0-9]+)/manifest\.json")
_RECORD = re.compile(rf"{RECORDS}/(?P<uid>[^/]+)/(?P<revision>[0-9]+)\.json")


@dataclass(frozen=True, slots=True)
class FoundManifest:
    """A manifest, the catalog's reference to it, and the fabrics that have it."""

    manifest: Manifest
    ref: ManifestRef
    fabrics: tuple[str, ...]


@dataclass(slots=True)
class Found:
    """What was found of one store.

    Attributes:
        record: The newest record that can be read, in any fabric.
        manifests: Path → the manifest there.
        greatest: The greatest version number that any file belongs to.
        notes: What could not be read.
    """

    uid: str
    record: Store | None = None
    manifests: dict[str, FoundManifest] = field(default_factory=dict)
    greatest: int = 0
    notes: list[str] = field(default_factory=list)


def look(fabrics: Iterable[Fabric]) -> list[Found]:
    """Everything that the deep stores hold of stores, by uid.

    Raises:
        Unreachable: A deep store does not answer: half of the truth is none.
    """
    found: dict[str, Found] = {}
    for fabric in fabrics:
        _records(fabric, found)
        sizes = {stored.path: stored.size_bytes for stored in fabric.deep_store.list(_STORES)}
        for path in sizes:
            matched = _VERSION.fullmatch(path)
            if matched is not None:
                of = found.setdefault(matched["uid"], Found(matched["uid"]))
                of.greatest = max(of.greatest, int(matched["number"]))
                if _MANIFEST.fullmatch(path):
                    _read_manifest(fabric, path, sizes, of)
    return [found[uid] for uid in sorted(found)]


def _records(fabric: Fabric, found: dict[str, Found]) -> None:
    paths: dict[str, list[str]] = {}
    for stored in fabric.deep_store.list(RECORDS):
        matched = _RECORD.fullmatch(stored.path)
        if matched is not None:
            paths.setdefault(matched["uid"], []).append(stored.path)
    for uid, of_store in paths.items():
        of = found.setdefault(uid, Found(uid))
        record = _newest_record(fabric.deep_store, sorted(of_store, reverse=True), of)
        if record is not None and (of.record is None or record.revision > of.record.revision):
            of.record = record


def _newest_record(deep_store: DeepStore, newest_first: list[str], of: Found) -> Store | None:
    for path in newest_first:
        try:
            store = parse_record(deep_store.get(path), path).store
        except Failed as error:
            of.notes.append(str(error.message))
            continue
        if path.startswith(f"{records_path(store.uid)}/"):
            return store
        of.notes.append(f"the record {path} belongs to another store")
    return None


def _read_manifest(fabric: Fabric, path: str, sizes: Mapping[str, int], of: Found) -> None:
    content = fabric.deep_store.get(path)
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError:
        of.notes.append(f"the manifest {path} cannot be read")
        return
    wanted: dict[str, int | None] = dict.fromkeys(manifest.owned) | {file.path: file.bytes for file in manifest.files}
    missing = sorted(file for file, size in wanted.items() if file not in sizes or size not in (None, sizes[file]))
    if missing:
        of.notes.append(f"version {manifest.version} lacks {len(missing)} of its files in {fabric.name}: {missing[0]}")
        return
    lost = [part.path for part in manifest.ranges if not _holds(fabric.log, part)]
    if lost:
        of.notes.append(f"version {manifest.version} lacks {len(lost)} of its ranges in {fabric.name}'s log: {lost[0]}")
        return
    ref = manifest.ref(path).model_copy(update={"checksum": hashlib.sha256(content).hexdigest()})
    before = of.manifests.get(path)
    fabrics = (fabric.name,) if before is None else (*before.fabrics, fabric.name)
    of.manifests[path] = FoundManifest(manifest, ref, fabrics)


def _holds(log: Log, part: BaseRange) -> bool:
    """Whether a log still has a sealed range.

    Raises:
        Unreachable: It does not answer.
    """
    try:
        present = log.offsets(part.at)
    except (Failed, NotFound):
        return False
    return present.begin <= part.pieces[0][0] and part.pieces[-1][1] <= present.end
