"""Which records of a topic count, where jobs write into it: the controller is asked for the records of batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anew.api.jobs.requests import OfBatches
from anew.api.jobs.views import CountedBatches
from anew.core.errors import Refused
from anew.core.identity import split_identities
from anew.core.jobs.committed import Committed
from anew.core.stamp import Origin

AskBatches = Callable[[OfBatches], CountedBatches]
"""What a topic's batches of a generation are, from one on: see `anew.api.jobs.http.JobCalls.counted_batches`."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """The first record of which nothing is decided yet.

    Attributes:
        row: Its place in what was asked about.
        batch: The batch that is not recorded yet.
        writer: The generation that writes it, ``delay_class@1``.
    """

    row: int
    batch: int
    writer: str


@dataclass(slots=True)
class Deciding:
    """Decides for the records of one topic; what it has learned of batches it keeps."""

    ask: AskBatches
    _known: dict[bytes, Committed] = field(default_factory=dict)

    def decide(self, origins: pa.BinaryArray) -> tuple[npt.NDArray[np.bool_], Undecided | None]:
        """Which records count, shape (n,); and from where on nothing is decided yet, None where all is.

        Args:
            origins: What records carry as origins, in the order of the log, shape (n,). Those that no job wrote count.

        Raises:
            Refused: ``batch_forgotten``: whether a record counts is not known any more.
        """
        found = split_identities(origins)
        counts = found.batch < 0
        by_jobs = np.flatnonzero(~counts)
        if not by_jobs.size:
            return counts, None
        writers: Any = found.origin
        encoded = writers.dictionary_encode()
        codes = np.asarray(encoded.indices)
        first: Undecided | None = None
        for code in np.unique(codes[by_jobs]).tolist():
            rows = by_jobs[codes[by_jobs] == code]
            origin = Origin.decode(encoded.dictionary[code].as_py())
            committed = self._asked(origin, found.batch[rows])
            mask, decided = committed.mask(origins.take(pa.array(rows)))
            counts[rows] = mask
            if decided < rows.size and (first is None or rows[decided] < first.row):
                row = int(rows[decided])
                first = Undecided(row, int(found.batch[row]), f"{origin.name}@{origin.generation}")
        if first is not None:
            counts[first.row :] = False
        return counts, first

    def _asked(self, origin: Origin, batches: npt.NDArray[np.int32]) -> Committed:
        """What is known of a generation's batches, after the controller was asked for those that were not."""
        committed = self._known.setdefault(origin.encoded, Committed())
        missing = committed.unknown(batches)
        begin = missing.start
        while begin < missing.stop:
            asked = OfBatches(job=origin.name, generation=origin.generation, first=begin)
            answer = self.ask(asked)
            if answer.kept_from is not None and missing.start < answer.kept_from:
                raise _forgotten(origin, missing.start, answer.kept_from)
            committed.add(answer.batches)
            if answer.final and not answer.more:
                committed.end()
            if not answer.more:
                break
            begin = answer.batches[-1].batch + 1
        return committed


def _forgotten(origin: Origin, batch: int, kept_from: int) -> Refused:
    return Refused(
        "batch_forgotten",
        f"which records of batch {batch} of {origin.name}@{origin.generation} count is not known any more",
        found=f"batch {batch}",
        expected=f"batch {kept_from} or a later one",
        hint="read from a later offset, or without --committed: then records of attempts that died are given too",
    )
