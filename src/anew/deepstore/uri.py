"""Where a deep store lies: a directory or a prefix of an S3 bucket, and never a secret."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from anew.core.errors import InvalidRequest

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_EXPECTED = "/DIRECTORY or s3://BUCKET/PREFIX"
_KEYS = "keys and endpoint are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL"


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a deep store.

    Attributes:
        bucket: The bucket; empty for a directory.
        path: The absolute directory, or the prefix in the bucket without slashes at its ends.
        uri: As `parse_root` takes it.
    """

    bucket: str
    path: str
    uri: str


def parse_root(text: str) -> Root:
    """The root that a path or a URI names.

    Raises:
        InvalidRequest: ``bad_deep_store``: not a place that is known here, a file system's or bucket's own root, or a
            URI with keys in it, which is not repeated.
    """
    if "://" not in text:
        return _directory(str(Path(text).expanduser().absolute()), text)
    scheme, _, rest = text.partition("://")
    if scheme not in ("file", "s3"):
        raise _bad("a deep store lies in a directory or in S3", _shown_scheme(text))
    if "@" in rest or "?" in rest or "#" in rest:
        raise _bad("the URI of a deep store takes no keys and no options", f"{scheme}://…", _KEYS)
    if scheme == "file":
        return _directory(unquote(urlsplit(text).path).rstrip("/") or "/", text.rstrip("/"))
    bucket, _, prefix = rest.rstrip("/").partition("/")
    if _BUCKET.fullmatch(bucket) is None:
        raise _bad("the URI names no bucket", f"s3://{bucket}" if ":" not in bucket else "s3://…", _KEYS)
    if not prefix or not {"", ".", ".."}.isdisjoint(prefix.split("/")):
        raise _bad("a deep store needs a prefix of its own", f"s3://{bucket}/{prefix}")
    return Root(bucket, prefix, f"s3://{bucket}/{prefix}")


def check_root(text: str) -> None:
    """Raise unless a deep store can lie there.

    Raises:
        InvalidRequest: ``bad_deep_store``.
    """
    parse_root(text)


def shown_root(text: str) -> str:
    """The root as it may be shown: of what cannot be read, only the scheme."""
    try:
        return parse_root(text).uri
    except InvalidRequest:
        return _shown_scheme(text)


def _directory(path: str, given: str) -> Root:
    if path == "/":
        raise _bad("a deep store needs a directory of its own", given)
    return Root("", path, given if "://" in given else path)


def _shown_scheme(text: str) -> str:
    matched = re.match(r"[a-z0-9+]{1,30}://", text)
    return f"{matched[0]}…" if matched else "not a URI"


def _bad(message: str, found: str, hint: str | None = None) -> InvalidRequest:
    return InvalidRequest("bad_deep_store", message, found=found, expected=_EXPECTED, hint=hint)
