"""Reading the base of a version, wherever its manifest says that it is: in the deep store, or in a version topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

import pyarrow as pa

from anew.codec.compression import Compressor
from anew.core.arrow import bytes_list, concat
from anew.core.errors import Failed
from anew.core.hashing import total
from anew.core.ledger import MODULUS
from anew.core.rows import ROWS
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.log.interface import Log
from anew.log.open import TIMEOUT_SECONDS, Location, no_clock, open_log
from anew.segments.baserange import read_range
from anew.segments.content import check_content
from anew.segments.manifest import BaseFile, BasePart, Manifest
from anew.segments.provenfile import read_proven

REPAIR = "the base is damaged, replicas may be whole: anew store repair NAME"
_SAMPLED_PARTS, _SAMPLED_KEYS = 16, 500


@dataclass(slots=True)
class BaseReader:
    """Reads parts of bases; a context manager.

    Attributes:
        deep_store: Where files are.
        open_log: Opens the log, once and only where a part lies there.
    """

    deep_store: DeepStore
    open_log: Callable[[], Log]
    _log: Log | None = field(init=False, default=None)

    def __enter__(self) -> BaseReader:
        """Nothing is opened yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the log."""
        log, self._log = self._log, None
        if log is not None:
            log.close()

    @property
    def log(self) -> Log:
        """The log, opened now if it was not before."""
        if self._log is None:
            self._log = self.open_log()
        return self._log

    def rows(self, part: BasePart, slice_: int = 0, slices: int = 1) -> Iterator[pa.RecordBatch]:
        """The rows of a part in key order, batch by batch, columns ``ROWS``.

        With ``slices``: of about so many equal parts only one, in order, so that all together are the whole.

        Raises:
            Failed: What `anew.segments.provenfile.read_proven` and `anew.segments.baserange.read_range` raise.
            Unreachable: Deep store or log does not answer.
        """
        if isinstance(part, BaseFile):
            yield from read_proven(self.deep_store, part, slice_, slices)
        else:
            yield from read_range(self.log, part, None, slice_, slices)

    def proved_rows(self, part: BasePart, codec: Compressor | None) -> Iterator[pa.RecordBatch]:
        """The rows of a part, each hashed again from its content; at the end they are what the manifest says.

        Without a codec, as where a dictionary is lost, the part's bytes and its account are proved, not its values.

        Raises:
            Failed: As `rows`; ``rows_altered``, ``corrupt_value``; ``fingerprint_mismatch``.
            Unreachable: Deep store or log does not answer.
        """
        count = fingerprint = 0
        for rows in self.rows(part):
            if codec is not None:
                check_content(rows, codec, part.path)
            count += rows.num_rows
            fingerprint = (fingerprint + total(rows.column("hash").to_numpy())) % MODULUS
            yield rows
        if (count, fingerprint) != (part.rows + part.tombstones, part.fingerprint):
            raise Failed(
                "fingerprint_mismatch",
                f"{part.path} does not hold what its manifest says",
                found=f"{count} rows, fingerprint {fingerprint:016x}",
                expected=f"{part.rows + part.tombstones} rows, fingerprint {part.fingerprint:016x}",
                hint=REPAIR,
            )

    def first_rows(self, part: BasePart, most: int) -> pa.RecordBatch:
        """The first rows of a part, at most so many; none of an empty one."""
        found: list[pa.RecordBatch] = []
        for rows in self.rows(part):
            found.append(rows.slice(0, most - sum(batch.num_rows for batch in found)))
            if sum(batch.num_rows for batch in found) >= most:
                break
        return concat(found) if found else pa.RecordBatch.from_pylist([], schema=ROWS)

    def sample_keys(self, manifest: Manifest) -> pa.BinaryArray:
        """Some keys of a version: the first of some of its parts."""
        parts = manifest.parts
        found: list[bytes] = []
        for part in parts[:: max(1, len(parts) // _SAMPLED_PARTS)]:
            found += bytes_list(self.first_rows(part, _SAMPLED_KEYS).column("key"))
        return pa.array(found, pa.binary())


def open_base(deep_store: str, log: Location, timeout_seconds: float = TIMEOUT_SECONDS) -> BaseReader:
    """A reader of the bases that lie in a deep store, or in the log beside it, where a read may take so long."""
    opened = open_deep_store(deep_store)
    return BaseReader(opened, lambda: open_log(log, clock=no_clock, timeout_seconds=timeout_seconds))
