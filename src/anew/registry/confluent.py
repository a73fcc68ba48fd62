"""A registry with the REST face of Confluent's Schema Registry, which several others have too.

Source of the contract: Confluent's "Schema Registry API Reference", subjects and schemas. The client that comes with
confluent-kafka is not used: its retries know no common deadline, and it brings OAuth and cryptography that a process
which asks three questions over httpx does not need.
"""

from __future__ import annotations

import ssl
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from anew.core.backoff import backoff_seconds
from anew.core.errors import AnewError, Failed, InvalidRequest, Refused, Unreachable
from anew.registry.interface import Registered

_CONTENT = "application/vnd.schemaregistry.v1+json"
_PAUSE_SECONDS = (0.05, 1.0)
_UNKNOWN_SUBJECT, _UNKNOWN_VERSION = 40401, 40402
_INCOMPATIBLE, _INVALID = 409, 422
_LOOK_SECONDS = 2.0
_SILENT_SECONDS = 5.0
"""Versions are looked up while a node waits for the answer to its report: one that is silent is not asked each time."""
_MAY_PASS = frozenset({429, 500, 502, 503, 504})


class ConfluentRegistry:
    """`anew.registry.interface.SchemaRegistry` over HTTP."""

    def __init__(
        self,
        urls: tuple[str, ...],
        *,
        user: tuple[str, str] | None = None,
        authorities: Path | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Keep how to reach it; it is asked when something is wanted of it.

        Args:
            urls: Of its instances; one that does not answer is passed over.
            user: Name and password.
            authorities: Whose certificates are trusted, PEM; None: those that the system trusts.
            timeout_seconds: How long an operation may take, whatever is tried again meanwhile.
        """
        self._urls, self._timeout_seconds = urls, timeout_seconds
        self._turn = 0
        self._silent_until = 0.0
        self._client = httpx.Client(
            auth=user,
            verify=True if authorities is None else _trusting(authorities),
            headers={"Content-Type": _CONTENT, "Accept": f"{_CONTENT}, application/json"},
        )

    def register(self, subject: str, schema: str) -> int:
        """See `SchemaRegistry.register`."""
        path, deadline = f"/subjects/{quote(subject, safe='')}/versions", time.monotonic() + self._timeout_seconds
        answer = self._ask("POST", path, subject, deadline, {"schema": schema})
        found = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(found, int) or found <= 0:
            raise _failed(f"the schema registry gave no id for a schema of {subject}", answer, "a positive id")
        return found

    def versions(self, subject: str) -> list[Registered]:
        """See `SchemaRegistry.versions`."""
        if time.monotonic() < self._silent_until:
            raise self._silent(self._urls[0], "it did not answer a moment ago")
        try:
            return self._versions(subject)
        except Unreachable:
            self._silent_until = time.monotonic() + _SILENT_SECONDS
            raise

    def close(self) -> None:
        """See `SchemaRegistry.close`."""
        self._client.close()

    def _versions(self, subject: str) -> list[Registered]:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        deadline = time.monotonic() + min(_LOOK_SECONDS, self._timeout_seconds)
        numbers = self._ask("GET", path, subject, deadline)
        if numbers is None:
            return []
        if not isinstance(numbers, list):
            raise _failed(f"the schema registry does not list the versions of {subject}", numbers, "a list")
        found = [self._ask("GET", f"{path}/{number}", subject, deadline) for number in sorted(numbers)]
        return [Registered(one["id"], one["schema"]) for one in found if one is not None and _is_plain_avro(one)]

    def _ask(self, method: str, path: str, subject: str, deadline: float, body: dict[str, Any] | None = None) -> Any:
        """The answer's content; None where there is no such subject or version."""
        failures = 0
        while True:
            url = self._urls[self._turn % len(self._urls)]
            left = deadline - time.monotonic()
            try:
                answer = self._client.request(method, url + path, json=body, timeout=max(0.1, left))
                if answer.status_code not in _MAY_PASS:
                    return _content(answer, subject)
                found = f"status {answer.status_code}"
            except httpx.TransportError as error:
                found = f"{type(error).__name__}: {error}"
            self._turn += 1
            failures += 1
            pause = backoff_seconds(failures, *_PAUSE_SECONDS)
            if time.monotonic() + pause > deadline:
                raise self._silent(url, found)
            threading.Event().wait(pause)

    def _silent(self, url: str, found: str) -> Unreachable:
        return Unreachable(
            "registry_unreachable",
            "the schema registry does not answer",
            found=f"{url}: {found}",
            expected=f"an answer within {self._timeout_seconds:g} s",
            hint="look at the registry, and at ANEW_SCHEMA_REGISTRY",
        )


def _content(answer: httpx.Response, subject: str) -> Any:
    """What an answer says.

    Raises:
        Refused: ``registry_not_allowed``, ``incompatible_schema``.
        Failed: ``registry_failed``.
    """
    try:
        content = answer.json()
    except ValueError:
        content = answer.text[:200]
    if answer.is_success:
        return content
    said = content if isinstance(content, dict) else {"message": content}
    if said.get("error_code") in (_UNKNOWN_SUBJECT, _UNKNOWN_VERSION):
        return None
    raise _refusal(answer.status_code, str(said.get("message")), subject)


def _refusal(status: int, message: str, subject: str) -> AnewError:
    if status in (401, 403):
        return Refused(
            "registry_not_allowed",
            f"the schema registry does not let us use the subject {subject}",
            found=f"status {status}: {message}",
            expected="the right to read and to register",
            hint="look at schema_registry_user_file and at the registry's own rules",
        )
    if status in (_INCOMPATIBLE, _INVALID):
        return Refused(
            "incompatible_schema",
            f"the schema registry does not take this schema under {subject}",
            found=message,
            expected="a schema that the subject's rules allow",
            hint="change the schema, or the subject's compatibility",
        )
    return _failed("the schema registry answers with something unexpected", f"status {status}: {message}", "200")


def _failed(message: str, found: object, expected: str) -> Failed:
    return Failed(
        "registry_failed", message, found=str(found)[:200], expected=expected, hint="is the URL that of a registry?"
    )


def _is_plain_avro(one: dict[str, Any]) -> bool:
    is_avro = one.get("schemaType") in (None, "AVRO")
    return is_avro and not one.get("references") and isinstance(one.get("id"), int) and "schema" in one


def _trusting(authorities: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(authorities))
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            "bad_registry_ca", f"{authorities} holds no authorities", found=str(error), expected="PEM certificates"
        ) from None
