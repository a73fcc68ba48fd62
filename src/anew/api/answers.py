"""What became of an HTTP exchange, as this project's errors: answered, not sent, or sent and the answer lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from anew.api.connecting import tls_error
from anew.core.errors import AnewError, Failed, OutcomeUnknown, Unreachable, error_from_json

_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
)
_START_IT = "is the controller running? anew up"


@contextmanager
def translated(url: str, look_up: str | None) -> Iterator[None]:
    """Raise what goes wrong between here and the controller as this project's errors.

    Args:
        url: The controller's, for the message.
        look_up: The command that tells what became of the request; None for a request that changes nothing.

    Raises:
        Unreachable: ``controller_unreachable``, ``tls_untrusted``, ``tls_failed``: nothing was changed.
        OutcomeUnknown: ``answer_lost``: the request was sent and may have been carried out.
    """
    try:
        yield
    except httpx.HTTPError as error:
        found = f"{url}: {type(error).__name__}: {error}"
        untrusted = tls_error(error, found) if isinstance(error, _NOT_SENT) else None
        if untrusted is not None:
            raise untrusted from error
        if look_up is None or isinstance(error, _NOT_SENT):
            raise _unreachable(found) from error
        raise _lost(found, look_up) from error
    except httpx.InvalidURL as error:
        raise _unreachable(f"{url}: {error}") from error


def check(answer: httpx.Response, look_up: str | None) -> None:
    """Raise unless the controller carried the request out.

    Raises:
        AnewError: What the controller says, as the same class here.
        OutcomeUnknown: ``answer_lost``: something between here and the controller answered in its place.
        Unreachable: ``controller_unreachable``: the same, for a request that changes nothing.
        Failed: ``unexpected_answer``: not the answer of a controller.
    """
    if answer.is_success:
        return
    said = _error_in(answer)
    if said is not None:
        raise said
    found = f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:200]}"
    if not answer.is_server_error:
        raise unexpected(found)
    raise _unreachable(found) if look_up is None else _lost(found, look_up)


def unexpected(found: str) -> Failed:
    """The error for an answer that this release cannot read."""
    return Failed(
        "unexpected_answer",
        "this is not the answer of a controller",
        found=found,
        expected="an answer of the same release",
        hint="does the address name the controller?",
    )


def _error_in(answer: httpx.Response) -> AnewError | None:
    try:
        body = answer.json()
    except ValueError:
        return None
    error = body.get("error") if isinstance(body, dict) else None
    return error_from_json(answer.status_code, error) if isinstance(error, dict) else None


def _unreachable(found: str) -> Unreachable:
    return Unreachable(
        "controller_unreachable",
        "the controller does not answer",
        found=found,
        expected="an answer within the timeout",
        hint=_START_IT,
    )


def _lost(found: str, look_up: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        "answer_lost",
        "the request was sent, but its answer was lost: it may or may not have been carried out",
        found=found,
        hint=look_up,
    )
