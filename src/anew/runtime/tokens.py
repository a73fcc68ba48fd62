"""The tokens file as ``anew token`` changes it: whole or not at all, one change at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anew.api.gate import read_tokens
from anew.core.errors import InvalidRequest
from anew.core.grants import Grant, Right, format_grants, token_hash, with_grant, without_grant
from anew.runtime.security import new_token, tokens_file, write_private
from anew.runtime.settings import ProcessSettings


def make_token(
    settings: ProcessSettings,
    name: str,
    right: Right,
    *,
    stores: tuple[str, ...] = (),
    expires_at_ms: int | None = None,
) -> tuple[str, Grant]:
    """Add a token to the tokens file; the token, which is nowhere else, and what it allows.

    Args:
        settings: They name the file; it is made where there is none.
        name: Whose it is.
        right: What it allows.
        stores: For which stores alone; none: for all.
        expires_at_ms: From when on it is worth nothing; None: never.

    Raises:
        InvalidRequest: ``no_tokens_file``: the setting is unset; ``bad_token``, ``bad_tokens_file``.
        Refused: ``token_exists``, ``file_not_private``.
    """
    token = new_token()
    grant = Grant(name, right, token_hash(token), frozenset(stores) if stores else None, expires_at_ms)
    with _changing(settings) as path:
        write_private(path, format_grants(with_grant(_present(path), grant)))
    return token, grant


def list_tokens(settings: ProcessSettings) -> tuple[Grant, ...]:
    """What the tokens file holds.

    Raises:
        InvalidRequest: ``no_tokens_file``, ``bad_tokens_file``.
        Refused: ``file_not_private``.
    """
    return _present(_file(settings))


def remove_token(settings: ProcessSettings, name: str) -> None:
    """Take a token out of the tokens file; servers turn it away within a second.

    Raises:
        NotFound: ``unknown_token``.
        InvalidRequest: ``no_tokens_file``, ``bad_tokens_file``.
        Refused: ``file_not_private``.
    """
    with _changing(settings) as path:
        write_private(path, format_grants(without_grant(_present(path), name)))


def _file(settings: ProcessSettings) -> Path:
    path = tokens_file(settings)
    if path is None:
        raise InvalidRequest(
            "no_tokens_file",
            "no tokens are asked for: the setting tokens_file is unset",
            expected="the path of a file, for the servers as for this command",
            hint="set ANEW_TOKENS_FILE, or tokens_file in settings.toml",
        )
    return path


def _present(path: Path) -> tuple[Grant, ...]:
    return read_tokens(path) if path.exists() else ()


@contextmanager
def _changing(settings: ProcessSettings) -> Iterator[Path]:
    path = _file(settings)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = path.with_name(f"{path.name}.lock")
    with os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT, 0o600), "r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield path
