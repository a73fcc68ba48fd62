"""By which source each row of a rebuild is accounted for: the base, a partition of a feed, or a push (rule R19).

The stamp of a nearline write has incarnation and feed partition. The stamp of a job's row has a batch in the place of
the partition (rule R20): its partition follows from its key, which admission has checked against it (rule R8).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.core.feed import Feed, FeedKind
from anew.core.partition import XxHash64Partitioner
from anew.spark.stores.frames import Kind

_BASE, _BATCH = "base", "batch"
_BASE_CODE = -1

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sources:
    """The feeds that a rebuild reads, of one fabric, whose incarnations therefore differ.

    Attributes:
        names: Incarnation → feed id.
        jobs: Incarnation → number of partitions, of feeds of jobs' generations.
    """

    names: dict[int, str]
    jobs: dict[int, int]

    @classmethod
    def of(cls, feeds: Iterable[Feed]) -> Sources:
        """The sources that these feeds are."""
        known = list(feeds)
        jobs = {feed.incarnation: feed.partitions for feed in known if feed.kind is FeedKind.GENERATION}
        return cls({feed.incarnation: feed.id for feed in known}, jobs)

    def codes(self, rows: pa.RecordBatch) -> Codes:
        """A number for each row's source, shape (n,): see `name`. ``rows`` has the columns ``SCANNED``."""
        incarnations = rows.column("incarnation").to_numpy().astype(np.int64)
        partitions = rows.column("feed_partition").to_numpy()
        for incarnation, count in self.jobs.items():
            own = incarnations == incarnation
            if own.any():
                keys: Any = rows.column("key")
                partitions = np.where(own, XxHash64Partitioner(count).of_all(keys), partitions)
        is_base = rows.column("kind").to_numpy() == int(Kind.BASE)
        return np.where(is_base, _BASE_CODE, incarnations << 32 | partitions)

    def name(self, code: int) -> str:
        """``base``, ``FEED/PARTITION``, or ``batch``."""
        if code == _BASE_CODE:
            return _BASE
        feed = self.names.get(code >> 32)
        return _BATCH if feed is None else f"{feed}/{code & 0xFFFFFFFF}"
