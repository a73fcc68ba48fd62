"""Who may do what: rights, the tokens that carry them, and the text in which their hashes are kept.

A token is a random text that only its holder has; what is kept of it is its SHA-256. That is enough, and a slow hash
would gain nothing: 256 random bits cannot be guessed, and each read is checked. `anew.api.rights` says which right a
route needs.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from anew.core.errors import InvalidRequest, NotFound, Refused
from anew.core.suggest import did_you_mean

MAX_TOKENS = 1_000
"""How many tokens a file may hold: each request with an unknown one is compared with all."""

CLUSTER_NAME = "cluster"
"""The name under which the cluster's own processes act."""

_HASH_DIGITS = 64
_FIELDS = frozenset({"right", "sha256", "stores", "expires_at_ms"})
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@.+-_")
_NAME_LENGTH = 100


class Right(StrEnum):
    """What a token allows; each right holds those before it. Code that is submitted has the cluster's rights."""

    READ = "read"
    WRITE = "write"
    OPERATE = "operate"
    SUBMIT = "submit"

    def covers(self, needed: Right) -> bool:
        """Whether this right is enough where another is needed."""
        return _RANKS[self] >= _RANKS[needed]


_RANKS = {right: rank for rank, right in enumerate(Right)}


class Unauthorized(Refused):
    """Nobody knows who asks: no token, an unknown one, or one whose time is over."""

    http_status = 401


class NotAllowed(Refused):
    """Who asks is known, and may not do this."""

    http_status = 403


@dataclass(frozen=True, slots=True)
class Grant:
    """What one token allows.

    Attributes:
        name: Whose it is; operations in the history bear it.
        sha256: The token's hash.
        stores: The stores that it is for; None: all, and whatever concerns the whole cluster.
        expires_at_ms: From when on it is worth nothing, ms since the epoch; None: never.
    """

    name: str
    right: Right
    sha256: bytes
    stores: frozenset[str] | None = None
    expires_at_ms: int | None = None

    def has_expired(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return self.expires_at_ms is not None and now_ms >= self.expires_at_ms

    def check_right(self, needed: Right) -> None:
        """Raise unless the right is enough.

        Raises:
            NotAllowed: ``not_allowed``.
        """
        if not self.right.covers(needed):
            raise NotAllowed(
                "not_allowed",
                f"the token {self.name} does not allow this",
                found=self.right.value,
                expected=needed.value,
                hint=f"use a token with the right {needed.value}: anew token make NAME --right {needed.value}",
            )

    def check_store(self, store: str | None) -> None:
        """Raise unless it is for a store; None stands for what concerns the whole cluster.

        Raises:
            NotAllowed: ``not_allowed``.
        """
        if self.stores is None or store in self.stores:
            return
        what = "what concerns the whole cluster" if store is None else f"the store {store}"
        raise NotAllowed(
            "not_allowed",
            f"the token {self.name} is not for {what}",
            found=", ".join(sorted(self.stores)),
            expected="all stores" if store is None else store,
            hint="use a token without --store" if store is None else f"use a token for {store}",
        )


def token_hash(token: str) -> bytes:
    """What is kept of a token: its SHA-256, 32 bytes."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def find_grant(grants: Iterable[Grant], sha256: bytes) -> Grant | None:
    """The grant of a token's hash, None when there is none; how long it takes says nothing about any of them."""
    found: Grant | None = None
    for grant in grants:
        # Every one is compared, to the end: neither the place nor the first differing byte shows in the time.
        if hmac.compare_digest(grant.sha256, sha256):
            found = grant
    return found


def parse_grants(text: str) -> tuple[Grant, ...]:
    """The grants in a file's text: TOML, one table ``[tokens.NAME]`` each.

    Raises:
        InvalidRequest: ``bad_tokens_file``: names the entry.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _bad("the file", str(error), "TOML") from None
    tables = document.get("tokens", {})
    if not isinstance(tables, dict) or set(document) - {"tokens"}:
        raise _bad("the file", ", ".join(document), "tables [tokens.NAME] and nothing else")
    if len(tables) > MAX_TOKENS:
        raise _bad("the file", f"{len(tables)} tokens", f"at most {MAX_TOKENS}")
    grants = tuple(_grant(name, table) for name, table in tables.items())
    hashes = [grant.sha256 for grant in grants]
    if len(set(hashes)) < len(hashes):
        raise _bad("the file", "two names with one hash", "a token of its own for each name")
    return grants


def format_grants(grants: Iterable[Grant]) -> str:
    """The inverse of `parse_grants`."""
    return "\n".join(_table(grant) for grant in grants)


def with_grant(grants: tuple[Grant, ...], grant: Grant) -> tuple[Grant, ...]:
    """The grants and one more.

    Raises:
        InvalidRequest: ``bad_token``: a name or a store that does not fit, or no room for one more.
        Refused: ``token_exists``.
    """
    if any(other.name == grant.name for other in grants):
        raise Refused(
            "token_exists",
            f"there is a token {grant.name} already",
            found=grant.name,
            expected="a name that is not taken",
            hint=f"anew token remove {grant.name}",
        )
    if len(grants) >= MAX_TOKENS:
        raise InvalidRequest("bad_token", "there is no room for one more token", found=len(grants), expected=MAX_TOKENS)
    check_token_name(grant.name)
    return (*grants, grant)


def without_grant(grants: tuple[Grant, ...], name: str) -> tuple[Grant, ...]:
    """The grants without the one of that name.

    Raises:
        NotFound: ``unknown_token``.
    """
    names = [grant.name for grant in grants]
    if name not in names:
        raise NotFound(
            "unknown_token",
            f"there is no token {name}",
            found=name,
            expected=", ".join(names) if names else "none is there yet",
            hint=did_you_mean(name, names),
        )
    return tuple(grant for grant in grants if grant.name != name)


def check_token(token: str) -> None:
    """Raise unless a text can be a token: what does not go into a header is none.

    Raises:
        InvalidRequest: ``bad_token``, without the token.
    """
    if not (token.isascii() and token.isprintable()) or token.strip() != token or " " in token:
        raise InvalidRequest(
            "bad_token", "this is no token", found="a text with blanks or odd signs", expected="as anew token make does"
        )


def check_token_name(name: str) -> None:
    """Raise unless a token may be called so: it goes into the history, and into a header.

    Raises:
        InvalidRequest: ``bad_token``.
    """
    if not name or name == CLUSTER_NAME or len(name) > _NAME_LENGTH or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidRequest(
            "bad_token",
            "this is no name for a token",
            found=name[: _NAME_LENGTH + 1],
            expected=f"1 to {_NAME_LENGTH} of the letters a-z and A-Z, digits, and @ . + - _; not {CLUSTER_NAME}",
        )


def _grant(name: str, table: Any) -> Grant:
    if not isinstance(table, dict) or set(table) - _FIELDS:
        raise _bad(name, str(table), f"a table of {', '.join(sorted(_FIELDS))}")
    right, sha256 = table.get("right"), table.get("sha256")
    stores, expires = table.get("stores"), table.get("expires_at_ms")
    if right not in tuple(Right):
        raise _bad(name, f"right = {right}", " | ".join(Right))
    if not isinstance(sha256, str) or len(sha256) != _HASH_DIGITS or set(sha256) - set("0123456789abcdef"):
        raise _bad(name, "its sha256", f"{_HASH_DIGITS} hex digits")
    if stores is not None and not (isinstance(stores, list) and all(isinstance(store, str) for store in stores)):
        raise _bad(name, f"stores = {stores}", "an array of store names")
    if expires is not None and (not isinstance(expires, int) or isinstance(expires, bool)):
        raise _bad(name, f"expires_at_ms = {expires}", "ms since the epoch")
    return Grant(name, Right(right), bytes.fromhex(sha256), None if stores is None else frozenset(stores), expires)


def _table(grant: Grant) -> str:
    # A JSON text of these characters is a TOML text too.
    lines = [f"[tokens.{json.dumps(grant.name)}]", f'right = "{grant.right}"', f'sha256 = "{grant.sha256.hex()}"']
    if grant.stores is not None:
        lines.append(f"stores = {json.dumps(sorted(grant.stores))}")
    if grant.expires_at_ms is not None:
        lines.append(f"expires_at_ms = {grant.expires_at_ms}")
    return "\n".join(lines) + "\n"


def _bad(what: str, found: str, expected: str) -> InvalidRequest:
    return InvalidRequest(
        "bad_tokens_file",
        f"the tokens file is not right: {what}",
        found=found,
        expected=expected,
        hint="anew token make writes it",
    )
