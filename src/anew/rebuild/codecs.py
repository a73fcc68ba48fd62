"""How the values of a rebuild were compressed and are to be; the dictionary of zstd_dict is trained or carried over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog

from anew.codec.compression import Compressor, compressor, train_dictionary
from anew.core.errors import Failed
from anew.core.feed import Feed
from anew.core.stores.plan import LogSplit
from anew.deepstore.interface import DeepStore
from anew.log.interface import topic_partition
from anew.segments.base import BaseReader
from anew.segments.dictionary import ZSTD_DICT, read_dictionary
from anew.segments.manifest import Manifest

DICTIONARY_BYTES = 112_640
SAMPLE_BYTES = 100 * DICTIONARY_BYTES
"""A sample of a hundred times the dictionary is what zstd's own documentation asks for."""
SAMPLE_VALUES = 100_000
_SAMPLED_PARTS = 64
_LOG_RECORDS = 10_000

_LOG = structlog.get_logger("anew.rebuild")


def trained(samples: Iterable[bytes]) -> bytes:
    """A dictionary for values like these; empty where there is too little to train on (case E4)."""
    chosen = list(_within_budget(samples))
    dictionary = train_dictionary(chosen, DICTIONARY_BYTES)
    if not dictionary:
        _LOG.warning(
            "dictionary_not_trained",
            found=f"{len(chosen)} values",
            instead="plain zstd frames with an empty dictionary",
        )
    return dictionary


def carried_over(store: DeepStore, manifest: Manifest) -> bytes | None:
    """The source version's dictionary, byte for byte; None when it has none to carry over (case E3)."""
    return read_dictionary(store, manifest) if manifest.config.compression == ZSTD_DICT else None


def sample_version(
    base: BaseReader, manifest: Manifest, codec: Compressor, feeds: Iterable[Feed], ranges: Iterable[LogSplit]
) -> Iterator[bytes]:
    """Values of a version, uncompressed: some of each of its base's parts, then the first of its feed records.

    The same plan gives the same sample: parts in the manifest's order, rows from their beginning.
    """
    parts = manifest.parts
    chosen = parts[:: max(1, len(parts) // _SAMPLED_PARTS)]
    share_bytes = SAMPLE_BYTES // max(1, len(chosen))
    for part in chosen:
        rows = base.first_rows(part, SAMPLE_VALUES // len(chosen) + 1)
        plain = codec.decompress_array(rows.column("value"))
        yield from _within(share_bytes, (value for value in plain.to_pylist() if value is not None))
    by_id = {feed.id: feed for feed in feeds}
    for split in ranges:
        feed = by_id[split.feed]
        at = topic_partition(feed, split.partition)
        read = base.log.read(at, split.begin, min(_LOG_RECORDS, split.end - split.begin), split.end)
        yield from (value for value in read.records.column("value").to_pylist() if value is not None)


def target_codec(compression: str, dictionary: bytes | None) -> Compressor:
    """The compressor of the new version."""
    if (compression == ZSTD_DICT) != (dictionary is not None):
        raise Failed("missing_dictionary", "a dictionary goes with zstd_dict alone", found=compression)
    return compressor(compression, dictionary)


def _within_budget(samples: Iterable[bytes]) -> Iterator[bytes]:
    for number, value in enumerate(_within(SAMPLE_BYTES, samples)):
        if number >= SAMPLE_VALUES:
            return
        yield value


def _within(budget_bytes: int, values: Iterable[bytes]) -> Iterator[bytes]:
    for value in values:
        budget_bytes -= len(value)
        if budget_bytes < 0:
            return
        yield value
