"""The compression dictionary of a version: a file beside its base that the manifest names."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from anew.codec.compression import Compressor, compressor
from anew.core.errors import Failed
from anew.deepstore.failures import check_sum
from anew.deepstore.interface import DeepStore
from anew.segments.layout import dictionary_path
from anew.segments.manifest import Manifest

ZSTD_DICT = "zstd_dict"


def read_dictionary(store: DeepStore, manifest: Manifest) -> bytes | None:
    """The version's compression dictionary; None for codecs without one (case E5).

    Raises:
        Failed: ``missing_dictionary``, naming it; ``checksum_mismatch``: it is not the one that was written.
    """
    if manifest.config.compression != ZSTD_DICT:
        return None
    name = f"{manifest.store}_v{manifest.version}"
    if manifest.dictionary is None or store.stat(manifest.dictionary) is None:
        raise Failed(
            "missing_dictionary",
            f"the dictionary that the values of {name} were compressed with is missing",
            found="no dictionary" if manifest.dictionary is None else f"no file {manifest.dictionary}",
            expected="the dictionary that the manifest names",
            hint="put the file back, or make the version again",
        )
    dictionary = store.get(manifest.dictionary)
    if manifest.dictionary_checksum is not None:
        check_sum(manifest.dictionary, sha256(dictionary).hexdigest(), manifest.dictionary_checksum)
    return dictionary


@dataclass(frozen=True, slots=True)
class StoredDictionary:
    """The dictionary of a version that is being made: its path, and the SHA-256 of its bytes, hex."""

    path: str
    checksum: str


def store_dictionary(store: DeepStore, directory: str, dictionary: bytes) -> StoredDictionary:
    """Put a dictionary beside a version's base."""
    path = dictionary_path(directory)
    store.put(path, dictionary)
    return StoredDictionary(path, sha256(dictionary).hexdigest())


def codec_of(store: DeepStore, manifest: Manifest) -> Compressor:
    """The compressor of a version's values.

    Raises:
        Failed: ``missing_dictionary``, ``checksum_mismatch``.
    """
    return compressor(manifest.config.compression, read_dictionary(store, manifest))
