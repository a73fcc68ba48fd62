"""Opening a deep store by its root's URI."""

from __future__ import annotations

from anew.deepstore.arrow import ArrowDeepStore
from anew.deepstore.interface import DeepStore
from anew.deepstore.uri import parse_root

PATIENCE_SECONDS = 60.0
"""How long an operation goes on without progress where nobody says otherwise."""


def open_deep_store(root_uri: str, patience_seconds: float = PATIENCE_SECONDS) -> DeepStore:
    """The deep store below a root: ``/dir``, ``file:///dir`` or ``s3://bucket/prefix``; nothing is asked of it yet.

    S3's keys, region, endpoint and certificates are those of this process's own environment (``AWS_…``), and of
    whatever else the AWS tools look at; they are no part of the URI, so that it may be handed on and shown.

    Args:
        root_uri: The root.
        patience_seconds: How long an operation goes on trying without progress (S3).

    Raises:
        InvalidRequest: ``bad_deep_store``: not a place that is known here, a file system's or bucket's own root, or a
            URI with keys in it.
    """
    root = parse_root(root_uri)
    if not root.bucket:
        return ArrowDeepStore(root.path, root.uri)
    # What speaks to S3 is imported only where there is one.
    from anew.deepstore.s3 import S3DeepStore
    from anew.deepstore.s3client import s3_client

    return S3DeepStore(root, s3_client(patience_seconds))
