"""Which keys differ between a replica and what is expected of it: two sorted lists side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from anew.api.node_http import Address, NodeClient, Wanted
from anew.client.verdict import Difference, Kind
from anew.codec.avro import decode_datum, parse_schema
from anew.codec.plain import to_plain
from anew.core.arrow import bytes_list
from anew.core.errors import AnewError

MOST_NAMED = 20

Place = tuple[int, int]
Entry = tuple[bytes, int]
"""A key and its row's hash."""


@dataclass(slots=True)
class Differences:
    """The differences of all replicas: the first `MOST_NAMED` of them by name, and how many there are.

    Attributes:
        key_schema: The store's, as text: keys are named in plain JSON.
    """

    key_schema: str
    named: list[Difference] = field(default_factory=list)
    count: int = 0

    def add(self, node: str, place: Place, expected: Iterator[pa.RecordBatch], held: Iterator[Entry]) -> None:
        """Compare what is expected (columns ``key`` and ``hash``) with what a replica holds, both in key order."""
        for key, kind in differing(_entries(expected), held):
            self.count += 1
            if len(self.named) < MOST_NAMED:
                self.named.append(
                    Difference(partition=place[0], sub_partition=place[1], node=node, key=self._plain(key), kind=kind)
                )

    def _plain(self, key: bytes) -> Any:
        schema = parse_schema(self.key_schema)
        try:
            return to_plain(schema, decode_datum(schema, key))
        except AnewError:
            return key.hex()


def differing(expected: Iterator[Entry], held: Iterator[Entry]) -> Iterator[tuple[bytes, Kind]]:
    """The keys that are only on one side, or have another hash there; both sides ascend strictly by key."""
    wanted, found = next(expected, None), next(held, None)
    while wanted is not None and found is not None:
        if wanted[0] < found[0]:
            yield wanted[0], "missing"
            wanted = next(expected, None)
        elif found[0] < wanted[0]:
            yield found[0], "left over"
            found = next(held, None)
        else:
            if wanted[1] != found[1]:
                yield wanted[0], "different"
            wanted, found = next(expected, None), next(held, None)
    while wanted is not None:
        yield wanted[0], "missing"
        wanted = next(expected, None)
    while found is not None:
        yield found[0], "left over"
        found = next(held, None)


@dataclass(frozen=True, slots=True)
class Scan:
    """A replica that a node has scanned: the node, the job there, and the (partition, sub-partition)."""

    nodes: NodeClient
    url: str
    address: Address
    job: str
    place: Place

    def entries(self, buckets: frozenset[int]) -> Iterator[Entry]:
        """The keys and row hashes of some buckets, in key order."""
        after: str | None = None
        while True:
            page = self.nodes.verify_entries(self.url, self.address, self.job, self.place, Wanted(buckets, after))
            yield from zip(map(bytes.fromhex, page.keys), page.hashes, strict=True)
            if page.next_after is None:
                return
            after = page.next_after


def _entries(batches: Iterator[pa.RecordBatch]) -> Iterator[Entry]:
    for rows in batches:
        hashes = rows.column("hash").to_numpy().view(np.uint64)
        yield from zip(bytes_list(rows.column("key")), hashes.tolist(), strict=True)
