"""The addresses of a schema registry as people write them."""

from __future__ import annotations

from urllib.parse import urlsplit

from anew.core.errors import InvalidRequest


def registry_urls(text: str) -> tuple[str, ...]:
    """The URLs of one registry, several separated by commas.

    Raises:
        InvalidRequest: ``bad_registry``.
    """
    urls = tuple(url.strip().rstrip("/") for url in text.split(","))
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise InvalidRequest(
                "bad_registry",
                "this names no schema registry",
                found=f"{parts.scheme}://***" if parts.username else url,
                expected="http(s)://HOST:PORT/PATH, without a password; several separated by commas",
                hint="a user and a password belong into the file that schema_registry_user_file names",
            )
    return urls
