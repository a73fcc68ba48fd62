"""Finding and mending damage to the base of a version that serves (`anew store repair`).

A damaged file comes back as it was where a replica still has all of its rows: the same rows through the same writer are
the same bytes, and the manifest's checksum says whether they are. Where writes have taken the place of rows of the base
these are gone for good; what the replica holds instead becomes the source of a rebuild (`Plan.source.from_replicas`).

Putting a file back: (1) a replica's rows are written beside it, and have its checksum; (2) the damaged file goes; (3)
the copy is published under its path; (4) it is read back; (5) the copy goes. A crash after (2) leaves no file, which is
damage like any other: the next repair begins anew.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from anew.api.stores.verifying import ExportedReplica
from anew.codec.compression import Compressor, compressor
from anew.core.errors import AnewError, Failed, Unreachable
from anew.core.stores.store import Version
from anew.deepstore.failures import check_sum
from anew.deepstore.interface import DeepStore
from anew.segments.base import BaseReader
from anew.segments.dictionary import read_dictionary
from anew.segments.layout import repair_path
from anew.segments.manifest import BaseFile, BasePart, Manifest, parse_manifest

Place = tuple[int, int]
"""A (partition, sub-partition)."""

_CHUNK_BYTES = 4 << 20
_HINT = "no replica can mend a manifest: make the version anew from its input, or put the file back"


class ReplicaExports(Protocol):
    """Replicas of a version that stood at one position, and can be written as base files."""

    def export(self, place: Place, directory: str, *, base_only: bool) -> ExportedReplica:
        """Let a node that holds the place write its replica to a fresh path below a directory of the store's.

        Raises:
            Unreachable: ``no_replica``: no node holds a whole one.
        """


@dataclass(frozen=True, slots=True)
class DamagedPart:
    """A part of a base that is not what its manifest says."""

    partition: int
    sub_partition: int
    part: BasePart
    error: AnewError

    @property
    def place(self) -> Place:
        """Where its rows belong."""
        return self.partition, self.sub_partition

    def to_json(self) -> dict[str, Any]:
        """For ``anew store repair --json``."""
        place = {"partition": self.partition, "sub_partition": self.sub_partition}
        return {**place, "path": self.part.path, "error": self.error.to_json()}


@dataclass(frozen=True, slots=True)
class BaseDamage:
    """What is wrong with the base of a version.

    Attributes:
        manifest: The version's.
        dictionary: Why its compression dictionary cannot be used; None: it is whole, or there is none.
        parts: The damaged parts.
    """

    manifest: Manifest
    dictionary: AnewError | None
    parts: tuple[DamagedPart, ...]

    @property
    def found(self) -> bool:
        """Whether there is any."""
        return self.dictionary is not None or bool(self.parts)


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back as it was, and what cannot be: its rows are in no replica any more."""

    paths: tuple[str, ...]
    left: tuple[DamagedPart, ...]


def find_damage(version: Version, base: BaseReader) -> BaseDamage:
    """Read all that the base of a sealed version is made of, and hash each row from its content.

    Raises:
        Failed: ``manifest_damaged``.
        Unreachable: Deep store or log does not answer.
    """
    ref, store = version.manifest, base.deep_store
    if ref is None:
        raise AssertionError("a version that serves is sealed")
    try:
        manifest = parse_manifest(store.get(ref.path), ref)
    except Failed as error:
        raise Failed(
            "manifest_damaged", error.message, found=error.found, expected=error.expected, hint=_HINT
        ) from error
    codec, wrong = _codec(store, manifest)
    looked = ((sub, part, _wrong_with(base, part, codec)) for sub in manifest.sub_partitions for part in sub.parts)
    parts = [DamagedPart(sub.partition, sub.sub_partition, part, why) for sub, part, why in looked if why is not None]
    return BaseDamage(manifest, wrong, tuple(parts))


def restore(damage: BaseDamage, store: DeepStore, exports: ReplicaExports, attempt: str) -> Restored:
    """Put back what replicas still hold to the last byte.

    Args:
        damage: What `find_damage` found.
        store: The deep store that it was found in.
        exports: The version's replicas.
        attempt: A fresh id: nobody else writes below its directory.

    Raises:
        Unreachable: Deep store or nodes do not answer; ``no_replica``.
        Failed: ``dictionary_lost``: no replica holds a dictionary with its checksum.
    """
    folder = repair_path(damage.manifest.store_uid, attempt)
    restored, left, alone = list[str](), list[DamagedPart](), list[Unreachable]()
    try:
        if damage.dictionary is not None:
            restored.append(_restore_dictionary(damage.manifest, store, exports, folder))
        for damaged in damage.parts:
            try:
                is_back = _restore_part(damaged, store, exports, folder)
            except Unreachable as error:
                if error.code != "no_replica":
                    raise
                alone.append(error)
            else:
                if is_back:
                    restored.append(damaged.part.path)
                else:
                    left.append(damaged)
    finally:
        store.delete_tree(folder)
    if alone:
        raise alone[0]  # the others are back all the same
    return Restored(tuple(restored), tuple(left))


def with_replicas(manifest: Manifest, exports: ReplicaExports, places: Sequence[Place], directory: str) -> Manifest:
    """The manifest with replicas in the place of some of its parts; they are written below a directory.

    What a replica holds is base ⊕ feeds up to some position. Merging it again with feed records that it holds already
    changes nothing (rule R6), so that it stands for the base alone, whatever its position.

    Raises:
        Unreachable: ``no_replica``.
    """
    files = {place: exports.export(place, directory, base_only=False).file for place in places}
    return _with_files(manifest, files)


def without_places(manifest: Manifest, places: Sequence[Place]) -> Manifest:
    """The manifest with no files in some of its places: what is left of a base whose damage is known."""
    return _with_files(manifest, dict.fromkeys(places))


def _with_files(manifest: Manifest, files: Mapping[Place, BaseFile | None]) -> Manifest:
    """The manifest with one file, or none, as the base of each of these places."""
    subs = []
    for sub in manifest.sub_partitions:
        place = sub.partition, sub.sub_partition
        if place in files:
            file = files[place]
            sub = sub.model_copy(update={"runs": () if file is None else ((file,),)})
        subs.append(sub)
    return manifest.model_copy(update={"sub_partitions": tuple(subs)})


def _codec(store: DeepStore, manifest: Manifest) -> tuple[Compressor | None, AnewError | None]:
    try:
        return compressor(manifest.config.compression, read_dictionary(store, manifest)), None
    except Failed as error:
        return None, error


def _wrong_with(base: BaseReader, part: BasePart, codec: Compressor | None) -> AnewError | None:
    """Why a part is not what its manifest says; without a codec its bytes are proved, not its values."""
    try:
        for _ in base.proved_rows(part, codec):
            pass
    except Failed as error:
        return error
    return None


def _restore_part(damaged: DamagedPart, store: DeepStore, exports: ReplicaExports, folder: str) -> bool:
    """Whether a replica has the part's rows to the last byte; then it is back."""
    part = damaged.part
    if not isinstance(part, BaseFile):
        return False
    copy = exports.export(damaged.place, folder, base_only=True).file
    if copy is None or copy.checksum != part.checksum:
        return False
    store.delete(part.path)
    with store.open(copy.path) as source, store.write(part.path) as target:
        shutil.copyfileobj(source, target, _CHUNK_BYTES)
    check_sum(part.path, store.checksum(part.path), part.checksum)
    return True


def _restore_dictionary(manifest: Manifest, store: DeepStore, exports: ReplicaExports, folder: str) -> str:
    """Put the dictionary back; returns its path."""
    path, expected = manifest.dictionary, manifest.dictionary_checksum
    if path is None:
        raise Failed("dictionary_lost", "the manifest names no dictionary", found=None, expected="its path", hint=_HINT)
    for sub in manifest.sub_partitions:
        told = exports.export((sub.partition, sub.sub_partition), folder, base_only=True).dictionary
        content = None if told is None else base64.b64decode(told)
        if content is not None and expected in (None, sha256(content).hexdigest()):
            store.delete(path)
            store.put(path, content)
            return path
    raise Failed(
        "dictionary_lost",
        f"no replica holds the dictionary {path} as it was written",
        found="replicas with another one, or none",
        expected=expected,
        hint="put the file back, or make the version anew from its input",
    )
