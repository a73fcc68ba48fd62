"""Opening a deep store by its root's URI."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from anew.core.errors import InvalidRequest, Unreachable
from anew.deepstore.arrow import ArrowDeepStore
from anew.deepstore.interface import DeepStore


def open_deep_store(root_uri: str) -> DeepStore:
    """The deep store below a root: ``/dir``, or a URI of a file system that Arrow knows (``s3://bucket/prefix``).

    Raises:
        InvalidRequest: ``bad_deep_store``: not a URI that is known here, or a file system's own root.
        Unreachable: ``deep_store_unreachable``.
    """
    if "://" not in root_uri:
        root = str(Path(root_uri).absolute())
        return _checked(fs.LocalFileSystem(), root, root)
    try:
        file_system, root = fs.FileSystem.from_uri(root_uri)
    except pa.ArrowInvalid as error:
        raise InvalidRequest("bad_deep_store", "this is not a deep store", found=f"{root_uri}: {error}") from error
    except OSError as error:
        raise Unreachable("deep_store_unreachable", "the deep store does not answer", found=str(error)) from error
    return _checked(file_system, root.rstrip("/"), root_uri.rstrip("/"))


def _checked(file_system: fs.FileSystem, root: str, root_uri: str) -> DeepStore:
    if root in {"", "/"}:
        raise InvalidRequest(
            "bad_deep_store", "a deep store needs a directory of its own", found=root_uri, expected="/dir or s3://b/dir"
        )
    return ArrowDeepStore(file_system, root, root_uri)
