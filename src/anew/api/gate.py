"""The door of a server: who asks, by the token in the request, and whether that is enough.

The tokens file is looked at again when it has changed, so that a token acts, and ceases to act, without a restart.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from anew.api.rights import Concerns, Need
from anew.core.errors import AnewError, Refused, Unreachable
from anew.core.grants import CLUSTER_NAME, Grant, Right, Unauthorized, find_grant, parse_grants, token_hash

_LOOK_SECONDS = 0.25
"""How long a token that was removed may still act; a look is a system call, and reads are many."""
_MAX_FILE_BYTES = 1 << 20
_SCHEME = "bearer "
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

_Seen = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Where a server finds the tokens that it accepts.

    Attributes:
        file: The tokens file (`anew.core.grants.parse_grants`).
        cluster: The token of the cluster's own processes.
    """

    file: Path
    cluster: str | None = field(default=None, repr=False)


class Gate:
    """Judges requests; safe to use from several threads. Without tokens everybody may do everything."""

    def __init__(
        self,
        tokens: Tokens | None,
        clock: Callable[[], int],
        clock_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is read yet.

        Args:
            tokens: Which tokens there are; None: none are asked for.
            clock: The time in ms since the epoch.
            clock_seconds: A monotonic clock.
        """
        self._tokens = tokens
        self._clock, self._clock_seconds = clock, clock_seconds
        self._grants: tuple[Grant, ...] = ()
        self._known: dict[bytes, Grant] = {}
        self._unreadable: AnewError | None = None
        self._seen: _Seen | None = None
        self._look_again = -1.0

    @property
    def is_closed(self) -> bool:
        """Whether requests need tokens."""
        return self._tokens is not None

    def grant(self, authorization: str | None) -> Grant:
        """What the token of an ``Authorization`` header allows.

        Raises:
            Unauthorized: ``token_missing``, ``token_unknown``, ``token_expired``.
            Unreachable: ``tokens_unreadable``: then nobody is let in, for anyone may have been struck from the file.
        """
        self._look()
        if self._unreadable is not None:
            raise self._unreadable
        if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
            raise _unauthorized("token_missing", "this needs a token", "set ANEW_TOKEN, or ANEW_TOKEN_FILE")
        sha256 = token_hash(authorization[len(_SCHEME) :].strip())
        grant = self._known.get(sha256)
        if grant is None:
            grant = find_grant(self._grants, sha256)
            if grant is None:
                raise _unauthorized("token_unknown", "nobody knows this token", "it may have been removed: ask for one")
            self._known[sha256] = grant
        if grant.has_expired(self._clock()):
            raise _unauthorized("token_expired", f"the token {grant.name} has expired", "ask for another one")
        return grant

    def admit(self, authorization: str | None, need: Need, store: str | None) -> Grant | None:
        """Let a request in; the grant that it comes in by, None where none is needed.

        Raises:
            Unauthorized, Unreachable: As `grant`.
            NotAllowed: ``not_allowed``.
        """
        if self._tokens is None or need.right is None:
            return None
        grant = self.grant(authorization)
        grant.check_right(need.right)
        if need.concerns is not Concerns.NO_STORE:
            grant.check_store(store)
        return grant

    def _look(self) -> None:
        """Read the file when it is another one than was read last."""
        now = self._clock_seconds()
        if now < self._look_again or self._tokens is None:
            return
        self._look_again = now + _LOOK_SECONDS
        try:
            status = self._tokens.file.stat()
            seen = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            if seen == self._seen:
                return
            grants = read_tokens(self._tokens.file)
        except (AnewError, OSError) as error:
            self._seen, self._grants, self._known = None, (), {}
            self._unreadable = Unreachable(
                "tokens_unreadable",
                "the server cannot read its tokens, and lets nobody in",
                found=str(error),
                expected="a file that anew token list can read",
                hint="anew token list",
            )
            return
        own = self._tokens.cluster
        if own is not None:
            grants = (*grants, Grant(CLUSTER_NAME, Right.SUBMIT, token_hash(own)))
        # Only tokens of the file get in here, so that it cannot grow beyond it.
        self._seen, self._grants, self._known, self._unreadable = seen, grants, {}, None


def read_tokens(path: Path) -> tuple[Grant, ...]:
    """The tokens of a file.

    Raises:
        InvalidRequest: ``bad_tokens_file``.
        Refused: ``file_not_private``.
        OSError: It cannot be read.
    """
    return parse_grants(read_private(path, "the tokens file"))


def read_private(path: Path, what: str) -> str:
    """The text of a file that nobody but its owner may read.

    Raises:
        Refused: ``file_not_private``.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        check_private(path, file.fileno(), what)
        return file.read(_MAX_FILE_BYTES).decode("utf-8", errors="replace")


def check_private(path: Path, descriptor: int | None, what: str) -> None:
    """Raise when others than its owner may read or write a file.

    Args:
        path: The file.
        descriptor: Of the file that is open, so that it is this one that is judged; None: by its path.
        what: What it is, for the message.

    Raises:
        Refused: ``file_not_private``.
        OSError: It is not there.
    """
    mode = stat.S_IMODE((path.stat() if descriptor is None else os.fstat(descriptor)).st_mode)
    if mode & _OTHERS:
        raise Refused(
            "file_not_private",
            f"others may read {what}",
            found=f"{path}: {mode:04o}",
            expected="0600",
            hint=f"chmod 600 {path}",
        )


def _unauthorized(code: str, message: str, hint: str) -> Unauthorized:
    return Unauthorized(code, message, expected="Authorization: Bearer TOKEN", hint=hint)
