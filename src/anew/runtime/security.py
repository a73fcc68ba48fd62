"""What the settings say about safety, checked and read: whom servers let in, and who this process is to them."""

from __future__ import annotations

import ipaddress
import os
import secrets
from pathlib import Path

from anew.api.gate import Tokens, check_private, read_private, read_tokens
from anew.api.reach import host_names, name_in
from anew.api.security import Credentials, RequestLimits, ServerSecurity
from anew.core.errors import InvalidRequest, Refused
from anew.core.grants import Grant
from anew.runtime.home import Home
from anew.runtime.settings import ProcessSettings

_PRIVATE = 0o077
_TOKEN_BYTES = 32
_PREFIX = "anew_"
"""So that a token that was pasted somewhere is recognised for what it is."""


def keep_files_private() -> None:
    """From here on only this process's user may read what it makes, and what its children make: 0600 and 0700."""
    os.umask(_PRIVATE)


def new_token() -> str:
    """A fresh token: 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def credentials_of(settings: ProcessSettings) -> Credentials:
    """Who this process is to controller and nodes.

    Raises:
        InvalidRequest: ``bad_token_file``.
        Refused: ``file_not_private``.
    """
    token, file = settings.optional("token"), settings.optional("token_file")
    if not token and file:
        token = _token_in(Path(file).expanduser())
    ca = settings.optional("tls_ca")
    return Credentials(token if token else None, Path(ca).expanduser() if ca else None)


def cluster_credentials(settings: ProcessSettings, home: Home) -> Credentials:
    """Who the cluster's own processes are to one another.

    Raises:
        InvalidRequest, Refused: As `credentials_of`.
    """
    ca = settings.optional("tls_ca")
    return Credentials(_cluster_token(settings, home), Path(ca).expanduser() if ca else None)


def server_security(settings: ProcessSettings, home: Home) -> ServerSecurity:
    """Whom this process lets in, and how.

    Raises:
        InvalidRequest: ``tls_incomplete``, ``bad_token_file``.
        Refused: ``file_not_private``.
    """
    file = tokens_file(settings)
    certificate, key = settings.optional("tls_certificate"), settings.optional("tls_key")
    cluster, url = home.read_cluster(), settings.optional("url")
    advertised = None if cluster is None else cluster.advertise
    known = (advertised, settings.optional("advertise"), name_in(url) if url else None)
    return ServerSecurity(
        None if file is None else Tokens(file, _cluster_token(settings, home)),
        Path(certificate).expanduser() if certificate else None,
        Path(key).expanduser() if key else None,
        RequestLimits(settings.number("max_request_bytes"), settings.number("max_connections")),
        frozenset({*host_names(settings.optional("allowed_hosts") or ""), *filter(None, known)}),
    )


def tokens_file(settings: ProcessSettings) -> Path | None:
    """The file of the tokens that servers ask for; None: they ask for none."""
    file = settings.optional("tokens_file")
    return Path(file).expanduser().absolute() if file else None


def write_cluster_token(settings: ProcessSettings, home: Home) -> None:
    """Make the token of this run of the cluster, where its processes ask for tokens; only its user may read it."""
    home.cluster_token.unlink(missing_ok=True)
    if tokens_file(settings) is not None:
        write_private(home.cluster_token, new_token() + "\n")


def write_private(path: Path, text: str) -> None:
    """Replace a file, whole or not at all; nobody but its owner may read it at any moment."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def check_server(settings: ProcessSettings, bind: str) -> None:
    """Raise when a cluster with these settings could not be reached, or could be by anyone.

    Raises:
        Refused: ``open_bind``, ``file_not_private``.
        InvalidRequest: ``tls_incomplete``, ``no_tokens_file``, ``bad_tokens_file``, ``no_tls_file``.
    """
    tokens_that_are(settings)
    certificate, key = settings.optional("tls_certificate"), settings.optional("tls_key")
    if bool(certificate) != bool(key):
        raise InvalidRequest(
            "tls_incomplete",
            "TLS takes a certificate and its key",
            found="tls_certificate alone" if certificate else "tls_key alone",
            expected="both tls_certificate and tls_key, or neither",
        )
    try:
        if certificate and key:
            Path(certificate).expanduser().stat()
            check_private(Path(key).expanduser(), None, "the key of the TLS certificate")
    except OSError as error:
        raise InvalidRequest("no_tls_file", "a file for TLS cannot be read", found=str(error)) from error
    if is_loopback(bind) or tokens_file(settings) is not None or settings.flag("allow_open_bind"):
        return
    raise Refused(
        "open_bind",
        "whoever reaches this address could read and delete everything: no tokens are asked for",
        found=f"bind = {bind}",
        expected="bind = 127.0.0.1, or tokens",
        hint="set tokens_file (ANEW_TOKENS_FILE) and make tokens: anew token make NAME --right operate; "
        "or, where the network itself keeps others out, set allow_open_bind=true",
    )


def tokens_that_are(settings: ProcessSettings) -> tuple[Grant, ...]:
    """The tokens that servers know; none where they ask for none.

    Raises:
        InvalidRequest: ``no_tokens_file``, ``bad_tokens_file``.
        Refused: ``file_not_private``.
    """
    file = tokens_file(settings)
    try:
        return () if file is None else read_tokens(file)
    except OSError as error:
        raise InvalidRequest(
            "no_tokens_file",
            "the tokens file cannot be read",
            found=str(error),
            expected="a file that only its owner may read",
            hint="anew token make NAME --right operate makes it",
        ) from error


def kafka_properties(settings: ProcessSettings) -> str | None:
    """Where this process finds the settings of its Kafka clients, absolute; None where there are none.

    Raises:
        InvalidRequest: ``no_kafka_properties``.
        Refused: ``file_not_private``.
    """
    named = settings.optional("kafka_properties_file")
    if not named:
        return None
    path = Path(named).expanduser().absolute()
    try:
        check_private(path, None, "the settings of Kafka clients")
    except OSError as error:
        raise InvalidRequest(
            "no_kafka_properties",
            "the settings of Kafka clients cannot be read",
            found=str(error),
            expected="a file that only its owner may read",
            hint="docs/operations.md shows one",
        ) from error
    return str(path)


def registry_user(settings: ProcessSettings) -> tuple[str, str] | None:
    """Name and password for the schema registry; None where there are none.

    Raises:
        InvalidRequest: ``bad_registry_user``.
        Refused: ``file_not_private``.
    """
    named = settings.optional("schema_registry_user_file")
    if not named:
        return None
    path = Path(named).expanduser()
    try:
        name, colon, password = read_private(path, "the user of the schema registry").strip().partition(":")
        found = "no colon"
    except OSError as error:
        name, colon, password, found = "", "", "", str(error)
    if not name or not colon:
        raise InvalidRequest(
            "bad_registry_user", f"{path} names no user", found=found, expected="NAME:PASSWORD in a file"
        )
    return name, password


def is_loopback(bind: str) -> bool:
    """Whether only processes of this machine reach an address."""
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"


def _cluster_token(settings: ProcessSettings, home: Home) -> str | None:
    return None if tokens_file(settings) is None else _token_in(home.cluster_token)


def _token_in(path: Path) -> str:
    try:
        token = read_private(path, "the file of a token").strip()
    except OSError as error:
        token, found = "", str(error)
    else:
        found = f"{path}: {len(token.split())} words"
    if len(token.split()) != 1 or not token.isascii():
        raise InvalidRequest(
            "bad_token_file", "the file holds no token", found=found, expected="one token, as anew token make prints it"
        )
    return token
