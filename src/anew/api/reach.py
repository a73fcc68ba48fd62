"""By which names a server is reached: what a browser was told to ask from elsewhere is refused before anything else.

A web page may make its visitor's browser send requests to any address, also to servers that listen on the loopback
alone (forged requests), and may point its own name there (DNS rebinding). Browsers say both: ``Origin`` is the page
that asks, ``Host`` the name that it asked for. Programs send no ``Origin``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from anew.core.errors import InvalidRequest
from anew.core.grants import NotAllowed

_LOOPBACK_NAME = "localhost"
_MOST_KNOWN = 64
_MOST_PORTS = 65_535
_NOT_IN_NAMES = frozenset("/?#@*\\ ")
_HINT = "where this is a name of the server, as behind a proxy, add it to allowed_hosts (ANEW_ALLOWED_HOSTS)"


class Reach:
    """Judges ``Host`` and ``Origin``; safe to use from several threads."""

    def __init__(self, bind: str, names: Iterable[str] = ()) -> None:
        """Take what the server is reached by.

        Args:
            bind: The address on which it listens. Of one that stands for all (``0.0.0.0``, ``::``) the server cannot
                tell by which address it is reached: then each address is its own, and names are not.
            names: ``NAME`` or ``NAME:PORT`` of others by which it is reached.
        """
        known = {_split(name.lower()) for name in names}
        self._names = frozenset(name for name, port in known if port is None) | {
            _LOOPBACK_NAME,
            *([bind.lower()] if bind else []),
        }
        self._with_ports = frozenset((name, port) for name, port in known if port is not None)
        self._any_address = _is_unspecified(bind)
        self._known: dict[str, None] = {}

    def check(self, host: str | None, origin: str | None) -> None:
        """Raise unless a request is for this server, and from none of another site's pages.

        Args:
            host: The header ``Host``.
            origin: The header ``Origin``.

        Raises:
            NotAllowed: ``foreign_host``, ``foreign_origin``.
        """
        if host is None or host not in self._known:
            if host is None or not self._is_own(host):
                raise NotAllowed(
                    "foreign_host",
                    "the request is for another server",
                    found="no Host" if host is None else f"Host: {host[:200]}",
                    expected="an address or a name that this server is reached by",
                    hint=_HINT,
                )
            if len(self._known) < _MOST_KNOWN:
                self._known[host] = None
        if origin is not None and not self._is_own_page(origin, host):
            raise NotAllowed(
                "foreign_origin",
                "the request comes from a page of another site",
                found=f"Origin: {origin[:200]}",
                expected=f"no Origin, or that of {host}",
                hint=_HINT,
            )

    def _is_own(self, authority: str) -> bool:
        name, port = _split(authority.lower())
        if name in self._names or (name, port) in self._with_ports:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # No name can be pointed at what is an address already.
        return address.is_loopback or (self._any_address and not address.is_unspecified)

    def _is_own_page(self, origin: str, host: str) -> bool:
        scheme, _, authority = origin.lower().partition("://")
        if scheme not in ("http", "https") or not authority:
            return False
        if authority == host.lower():
            return True
        # A proxy may have asked by another name than its pages have.
        name, port = _split(authority)
        return (name, port) in self._with_ports or (port is None and name in self._names - {_LOOPBACK_NAME})


def host_names(text: str) -> tuple[str, ...]:
    """The names in a setting: ``NAME`` or ``NAME:PORT``, separated by commas.

    Raises:
        InvalidRequest: ``bad_host_name``.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for given in names:
        name, port = _split(given)
        has_port = port is None or (port.isascii() and port.isdigit() and 0 < int(port) <= _MOST_PORTS)
        if not name or set(name) & _NOT_IN_NAMES or not has_port:
            raise InvalidRequest(
                "bad_host_name",
                "this is not a name by which a server is reached",
                found=given[:200],
                expected="NAME or NAME:PORT, without http:// and without a path",
            )
    return names


def check_url(text: str) -> None:
    """Raise for what is no URL of a controller.

    Raises:
        InvalidRequest: ``bad_url``.
    """
    try:
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return
    except ValueError:
        pass
    # What stands before an @ may be a password.
    found = text.rpartition("@")[2][:200]
    raise InvalidRequest(
        "bad_url",
        "this is no URL of a controller",
        found=found,
        expected="http://HOST:PORT, or https://HOST:PORT",
        hint=None if "://" in text else f"set url (ANEW_URL) to http://{found}",
    )


def name_in(url: str) -> str | None:
    """The host in a URL; None where there is none."""
    return urlsplit(url).hostname


def _split(authority: str) -> tuple[str, str | None]:
    """Name and port; addresses of IPv6 are in brackets where a port follows."""
    if authority.startswith("["):
        name, _, rest = authority[1:].partition("]")
        return name, rest.removeprefix(":") or None
    if authority.count(":") > 1:
        return authority, None
    name, _, port = authority.partition(":")
    return name.removesuffix("."), port or None


def _is_unspecified(bind: str) -> bool:
    if not bind:
        return True
    try:
        return ipaddress.ip_address(bind).is_unspecified
    except ValueError:
        return False
