"""How a schema registry is asked: what it refuses, what passes, and what is no registry at all."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from anew.core.errors import AnewError, Failed, InvalidRequest, Refused, Unreachable
from anew.registry.confluent import ConfluentRegistry
from anew.registry.urls import registry_urls

_SUBJECT = "people_rt-value"


@dataclass
class _Server:
    """Answers as it is told to, one answer after the other, the last one again and again."""

    answers: list[tuple[int, str]]
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""


@contextmanager
def _serving(*answers: tuple[int, str]) -> Iterator[_Server]:
    told = _Server(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            told.seen.append((f"{self.command} {self.path}", self.headers.get("Authorization")))
            status, text = told.answers[0] if len(told.answers) == 1 else told.answers.pop(0)
            body = text.encode()
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer  # noqa: N815 - the names that http.server looks for

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        told.url = f"http://127.0.0.1:{server.server_address[1]}/api"
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _error(registry: ConfluentRegistry, kind: type[AnewError]) -> AnewError:
    with pytest.raises(kind) as caught:
        registry.register(_SUBJECT, '"string"')
    return caught.value


def test_a_user_is_shown_and_never_said() -> None:
    """By HTTP's basic authentication; errors name neither name nor password."""
    with _serving((401, '{"error_code": 401, "message": "who are you"}')) as server:
        error = _error(ConfluentRegistry((server.url,), user=("us", "s3cret")), Refused)
        assert error.code == "registry_not_allowed"
        assert "s3cret" not in str(error.to_json())
        ((path, shown),) = server.seen
    assert path == f"POST /api/subjects/{_SUBJECT}/versions"
    assert shown == f"Basic {base64.b64encode(b'us:s3cret').decode()}"


def test_subjects_are_quoted() -> None:
    """A name is a name, whatever is in it."""
    with _serving((200, '{"id": 3}')) as server:
        assert ConfluentRegistry((server.url,)).register("a/b?c", '"string"') == 3
        assert server.seen[0][0] == "POST /api/subjects/a%2Fb%3Fc/versions"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_passes_is_ridden_out(status: int) -> None:
    """An instance that has no leader yet, or that is busy, is asked again."""
    with _serving((status, "busy"), (status, "busy"), (200, '{"id": 3}')) as server:
        assert ConfluentRegistry((server.url,)).register(_SUBJECT, '"string"') == 3
        assert len(server.seen) == 3


@pytest.mark.parametrize("status", [409, 422])
def test_a_schema_that_it_does_not_take(status: int) -> None:
    """With its own words."""
    with _serving((status, json.dumps({"error_code": 42201, "message": "no such type"}))) as server:
        error = _error(ConfluentRegistry((server.url,)), Refused)
        assert (error.code, error.found) == ("incompatible_schema", "no such type")


@pytest.mark.parametrize(
    "answer", [(200, "<html>"), (200, "[]"), (200, '{"id": "x"}'), (200, '{"id": 0}'), (404, "<html>"), (302, "")]
)
def test_what_is_no_registry_is_said_to_be_none(answer: tuple[int, str]) -> None:
    """A page, another program, a proxy."""
    with _serving(answer) as server:
        assert _error(ConfluentRegistry((server.url,)), Failed).code == "registry_failed"


def test_its_words_for_an_unknown_subject_are_understood() -> None:
    """Not every page that is not found says that a subject is not there."""
    with _serving((404, '{"error_code": 40401, "message": "Subject not found"}')) as server:
        assert ConfluentRegistry((server.url,)).versions(_SUBJECT) == []
    with _serving((404, "not here")) as server, pytest.raises(Failed):
        ConfluentRegistry((server.url,)).versions(_SUBJECT)


def test_nobody_there_is_said_in_time() -> None:
    """Within the deadline, however many instances there are; and who looks up versions is not kept waiting again."""
    registry = ConfluentRegistry(("http://127.0.0.1:9", "http://127.0.0.1:9"), timeout_seconds=0.5)
    began = time.monotonic()
    assert _error(registry, Unreachable).code == "registry_unreachable"
    with pytest.raises(Unreachable):
        registry.versions(_SUBJECT)
    assert time.monotonic() - began < 10
    began = time.monotonic()
    with pytest.raises(Unreachable, match="a moment ago"):
        registry.versions(_SUBJECT)
    assert time.monotonic() - began < 0.25


@pytest.mark.parametrize(
    "text",
    ["registry:8081", "ftp://registry", "http://", "http://us:s3cret@registry:8081", "http://a:1,", "http://a/?b=c"],
)
def test_what_names_no_registry_is_refused(text: str) -> None:
    """A password in a URL would be shown where URLs are."""
    with pytest.raises(InvalidRequest) as caught:
        registry_urls(text)
    assert caught.value.code == "bad_registry"
    assert "s3cret" not in str(caught.value.to_json())


def test_several_instances_are_separated_by_commas() -> None:
    """Slashes at the end do not matter."""
    assert registry_urls("http://a:8081/, https://b/api") == ("http://a:8081", "https://b/api")
