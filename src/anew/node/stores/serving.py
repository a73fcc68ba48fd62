"""What a node can answer from at one moment: an immutable picture that readers share and the engine replaces."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from anew.api.stores.replicas import DesiredStore, DesiredVersion
from anew.codec.avro import AvroSchema, parse_schema
from anew.core.errors import NotFound, Refused
from anew.core.partition import Partitioner, sub_partition_of
from anew.core.partitioning import partitioner_of
from anew.node.stores.holding import Holding
from anew.storage.replica import Replica


class NotHere(Refused):
    """This node does not hold what was asked for; the routing says who does."""

    http_status = 421


class Gone(Refused):
    """What was asked for is no longer served by anyone."""

    http_status = 410


class Forbidden(Refused):
    """The store does not take reads now."""

    http_status = 403


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """A version with the replicas that can be read here: (partition, sub-partition) → replica.

    ``fresh`` are those that cannot yet: they lack what was written since their base.
    """

    number: int
    partitioner: Partitioner
    desired: DesiredVersion
    replicas: Mapping[tuple[int, int], Replica]
    fresh: frozenset[tuple[int, int]] = frozenset()

    def place_of(self, key: bytes) -> tuple[int, int]:
        """The partition and sub-partition of a key."""
        return self.partitioner.of(key), sub_partition_of(key, self.desired.config.amplification_factor)

    def replica_of(self, place: tuple[int, int]) -> Replica:
        """The replica of a partition and sub-partition.

        Raises:
            NotHere: ``not_here``.
        """
        replica = self.replicas.get(place)
        if replica is None and place in self.fresh:
            raise NotHere(
                "not_here",
                f"partition {place[0]} of version {self.number} was just loaded here, and lacks writes since its base",
                found="a replica that comes up to the ends of the feeds",
                expected="one that has been there",
                hint="ask again; how far it is behind: anew status",
            )
        if replica is None:
            raise NotHere(
                "not_here",
                f"this node does not hold partition {place[0]} of version {self.number}",
                found=sorted({partition for partition, _ in self.replicas}),
                expected=place[0],
                hint="ask the controller for the store's routing again",
            )
        return replica


@dataclass(frozen=True, slots=True)
class ServedStore:
    """A store as this node serves it; ``gone`` are versions that it held and was told to drop."""

    desired: DesiredStore
    versions: Mapping[int, ServedVersion]
    gone: frozenset[int]
    headers: list[tuple[str, str]]

    def version(self, wanted: str) -> ServedVersion:
        """The version of ``current`` or a number.

        Raises:
            Forbidden: ``reads_disabled``.
            Gone: ``version_gone``.
            NotHere: ``not_here``.
            NotFound: ``unknown_version``, ``no_current_version``.
        """
        store = self.desired
        if not store.reads:
            raise Forbidden(
                "reads_disabled",
                f"{store.name} takes no reads",
                hint=f"anew store update {store.name} --set reads=true",
            )
        if wanted != "current" and not (wanted.isascii() and wanted.isdigit()):
            raise NotFound("unknown_version", "this is no version", found=wanted, expected="a number, or current")
        number = store.current if wanted == "current" else int(wanted)
        if number == 0:
            raise Gone("no_current_version", f"{store.name} has no current version yet", hint="push to the store first")
        version = self.versions.get(number)
        if version is not None:
            return version
        if number in self.gone:
            raise Gone(
                "version_gone",
                f"version {number} of {store.name} is retired",
                found=number,
                expected=f"the current version, {store.current}",
            )
        raise NotHere(
            "not_here",
            f"this node holds nothing of version {number} of {store.name}",
            found=sorted(self.versions),
            expected=number,
            hint="ask the controller for the store's routing again",
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """All stores by name, and how the node stands."""

    stores: Mapping[str, ServedStore] = field(default_factory=dict)
    revision: int = -1

    def store(self, name: str, uid: str | None) -> ServedStore:
        """The store of that name, and of that uid where one is given (rule R16).

        Raises:
            NotHere: ``not_here``.
            Refused: ``other_store``.
        """
        store = self.stores.get(name)
        if store is None:
            raise NotHere(
                "not_here",
                f"this node holds nothing of {name}",
                found=sorted(self.stores),
                expected=name,
                hint="ask the controller for the store's routing again",
            )
        if uid is not None and uid != store.desired.uid:
            raise Refused(
                "other_store",
                f"{name} is another store by now",
                found=store.desired.uid,
                expected=uid,
                hint="ask the controller for the store's routing again",
            )
        return store


@functools.lru_cache(maxsize=1024)
def parsed_schema(text: str) -> AvroSchema:
    """A schema parsed once."""
    return parse_schema(text)


def picture_of(
    stores: list[DesiredStore], holdings: list[Holding], gone: set[tuple[str, int]], revision: int
) -> Picture:
    """The picture of what is open now."""
    served: dict[str, ServedStore] = {}
    for store in stores:
        versions = {}
        for version in store.versions:
            here = [h for h in holdings if (h.key.store_uid, h.key.version) == (store.uid, version.number)]
            open_here = {h.place: h.replica for h in here if h.replica is not None and h.answers}
            fresh = frozenset(h.place for h in here if h.replica is not None and h.replica.is_fresh)
            try:
                partitioner = _partitioner(version)
            except Exception:  # noqa: BLE001, S112 - of this version alone: its replicas say why they are not opened
                continue
            versions[version.number] = ServedVersion(version.number, partitioner, version, open_here, fresh)
        numbers = frozenset(number for uid, number in gone if uid == store.uid)
        headers = [("anew-current-version", str(store.current)), ("anew-store-revision", str(store.revision))]
        served[store.name] = ServedStore(store, versions, numbers, headers)
    return Picture(served, revision)


def _partitioner(version: DesiredVersion) -> Partitioner:
    return partitioner_of(version.config)
