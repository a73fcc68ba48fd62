"""The compression dictionary of a version: a file beside its base that the manifest names."""

from __future__ import annotations

from anew.codec.compression import Compressor, compressor
from anew.core.errors import Failed
from anew.deepstore.interface import DeepStore
from anew.segments.manifest import Manifest

ZSTD_DICT = "zstd_dict"


def read_dictionary(store: DeepStore, manifest: Manifest) -> bytes | None:
    """The version's compression dictionary; None for codecs without one (case E5).

    Raises:
        Failed: ``missing_dictionary``, naming it.
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
    return store.get(manifest.dictionary)


def codec_of(store: DeepStore, manifest: Manifest) -> Compressor:
    """The compressor of a version's values.

    Raises:
        Failed: ``missing_dictionary``.
    """
    return compressor(manifest.config.compression, read_dictionary(store, manifest))
