"""Where a catalog lies: a URL that may hold a password, which is never shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from anew.core.errors import InvalidRequest

if TYPE_CHECKING:
    import sqlalchemy as sa

_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_SECRETS = ("password", "sslpassword")
_EXPECTED = "sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
_MASK = "***"


def parse_catalog_url(text: str) -> sa.URL:
    """The URL of a catalog, with the driver that is used here.

    Raises:
        InvalidRequest: ``bad_catalog``; the URL is shown without its password.
    """
    # Half a second to import, for whoever only reads the settings.
    import sqlalchemy as sa

    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError) as error:
        # The parser's own words may repeat the URL, so that they are not passed on.
        raise _bad(text, "the catalog's URL cannot be read") from error
    if url.drivername not in _DRIVERS:
        raise _bad(text, "a catalog is kept in SQLite or PostgreSQL")
    if url.host is not None and "@" in url.host:
        raise _bad(text, "the user or the password holds a character that has a meaning in URLs")
    if not url.database:
        raise _bad(text, "the catalog's URL names no database")
    return url.set(drivername=_DRIVERS[url.drivername])


def check_catalog_url(text: str) -> None:
    """Raise unless this is the URL of a catalog.

    Raises:
        InvalidRequest: ``bad_catalog``.
    """
    parse_catalog_url(text)


def shown_catalog_url(text: str) -> str:
    """The URL as it may be shown: without password; of what cannot be read only the scheme."""
    try:
        url = parse_catalog_url(text)
    except InvalidRequest:
        return _scheme_of(text)
    shown = url.set(drivername=url.get_backend_name())
    hidden = {name: _MASK for name in _SECRETS if name in shown.query}
    return shown.update_query_dict(hidden).render_as_string(hide_password=True)


def secrets_of(url: sa.URL) -> tuple[str, ...]:
    """Texts that must not appear in any message."""
    given = [None if url.password is None else str(url.password), *(url.query.get(name) for name in _SECRETS)]
    return tuple(secret for secret in given if isinstance(secret, str) and secret)


def _scheme_of(text: str) -> str:
    matched = re.match(r"[a-z0-9+]{1,30}://", text)
    return f"{matched[0]}…" if matched else "not a URL"


def _bad(text: str, message: str) -> InvalidRequest:
    hint = "write special characters of the user and the password as %XX: @ is %40, / is %2F"
    return InvalidRequest("bad_catalog", message, found=_scheme_of(text), expected=_EXPECTED, hint=hint)
