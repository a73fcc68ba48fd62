"""S3 that turns away, cuts and loses: what was asked for is done once, or is said not to be done."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anew.core.errors import OutcomeUnknown, Refused, Unreachable
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.testing.deepstore_contract import paths
from tests.component.deepstore.conftest import Lead
from tests.component.deepstore.faults import Fault, FaultyProxy
from tests.minio import MinioServer, running_minio

LARGE = os.urandom(20_000_000)
_CUTS = (Fault.TURNED_AWAY, Fault.CUT_REQUEST, Fault.CUT_HEAD, Fault.LOST_ANSWER)


@pytest.fixture
def store(proxy: FaultyProxy, bucket: str, tmp_path: Path) -> DeepStore:
    """An empty store behind the proxy."""
    return open_deep_store(f"s3://{bucket}/{tmp_path.name}")


def _write(store: DeepStore, path: str, content: bytes) -> None:
    with store.write(path) as stream:
        stream.write(content)


@pytest.mark.parametrize("act", ["put", "write", "get", "stat", "list", "delete", "checksum"])
def test_throttling_is_waited_for(store: DeepStore, proxy: FaultyProxy, act: str) -> None:
    """Whatever is asked for, three answers of 503 SlowDown in a row are followed by the answer."""
    if act not in ("put", "write"):
        store.put("a", b"content")
    proxy.expect(Fault.TURNED_AWAY, times=3)
    acts: dict[str, Callable[[], object]] = {
        "put": lambda: store.put("a", b"content"),
        "write": lambda: _write(store, "a", b"content"),
        "get": lambda: store.get("a"),
        "stat": lambda: store.stat("a"),
        "list": lambda: store.list(""),
        "delete": lambda: store.delete("a"),
        "checksum": lambda: store.checksum("a"),
    }
    acts[act]()
    assert proxy.waiting == 0
    assert paths(store) == ([] if act == "delete" else ["a"])


@pytest.mark.parametrize("fault", _CUTS)
def test_a_small_file_is_written_once(store: DeepStore, proxy: FaultyProxy, fault: Fault) -> None:
    """A PUT that is turned away, cut, or carried out without an answer ends as one success, with these bytes."""
    content = os.urandom(3_000_000)
    for path, act in (("one", store.put), ("two", lambda path, content: _write(store, path, content))):
        proxy.expect(fault, "PUT ", f"/{path}")
        act(path, content)
        assert proxy.waiting == 0
        assert store.get(path) == content
        assert proxy.count("PUT ", f"/{path}") == 2


@pytest.mark.parametrize(
    ("fault", "texts"),
    [
        (fault, texts)
        for texts in (("POST ", "uploads"), ("PUT ", "partNumber=2"), ("POST ", "uploadId="))
        for fault in _CUTS
        if (fault, texts[1]) != (Fault.CUT_REQUEST, "uploads")  # that one has no body
    ],
)
def test_a_large_file_is_written_once(
    store: DeepStore, proxy: FaultyProxy, fault: Fault, texts: tuple[str, ...]
) -> None:
    """The same where the first request, a part, or the completion of an upload in parts is struck."""
    proxy.expect(fault, *texts)
    _write(store, "large", LARGE)
    assert proxy.waiting == 0
    assert store.checksum("large") == hashlib.sha256(LARGE).hexdigest()
    assert paths(store) == ["large"]


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
def test_a_lost_answer_does_not_hide_another_writer(store: DeepStore, proxy: FaultyProxy, content: bytes) -> None:
    """When the answer is lost and somebody else's file lies there, the write is refused; theirs stays."""
    store.put("kept", b"first")

    def write() -> None:
        with store.write("a") as stream:
            stream.write(content)
            store.put("a", b"theirs")
            proxy.expect(Fault.LOST_ANSWER, "PUT " if content == b"small" else "POST ", "/a")

    with pytest.raises(Refused) as caught:
        write()
    assert caught.value.code == "path_taken"
    assert store.get("a") == b"theirs"
    assert proxy.waiting == 0


@pytest.mark.parametrize("fault", [Fault.TURNED_AWAY, Fault.CUT_ANSWER, Fault.LOST_ANSWER])
def test_a_read_goes_on_where_it_was_cut(store: DeepStore, proxy: FaultyProxy, tmp_path: Path, fault: Fault) -> None:
    """A GET that is cut in the middle is taken up again; what comes out is what was written."""
    _write(store, "large", LARGE)
    checksum = hashlib.sha256(LARGE).hexdigest()
    proxy.expect(fault, "GET ", "large", times=3)
    store.download("large", tmp_path / "copy", checksum)
    assert (tmp_path / "copy").read_bytes() == LARGE
    proxy.expect(fault, "GET ", "large", times=2)
    assert store.checksum("large") == checksum
    proxy.expect(fault, "GET ", "large", times=3)
    with store.open("large") as file:
        assert file.read(10_000_000) + file.read() == LARGE
    assert proxy.waiting == 0


@pytest.mark.parametrize("act", ["list", "stat", "delete", "put"])
def test_half_an_answer_is_none(store: DeepStore, proxy: FaultyProxy, act: str) -> None:
    """An answer whose head or body is cut is asked for again: half a listing is never taken for the whole."""
    for number in range(3):
        store.put(f"v1/{number}", b"12")
    words = {"list": "list-type", "stat": "HEAD ", "delete": "delete", "put": "PUT "}[act]
    proxy.expect(Fault.CUT_HEAD, words)
    proxy.expect(Fault.CUT_ANSWER if act in ("list", "delete") else Fault.CUT_HEAD, words)
    expected = [f"v1/{number}" for number in range(3)]
    if act == "list":
        assert paths(store, "v1") == expected
    elif act == "stat":
        found = store.stat("v1/0")
        assert found is not None
        assert found.size_bytes == 2
    elif act == "delete":
        assert store.delete_tree("v1") == 3
        assert paths(store) == []
    else:
        store.put("v1/3", b"1")
        assert paths(store) == [*expected, "v1/3"]
    assert proxy.waiting == 0


def test_a_delete_without_an_answer_is_asked_again(store: DeepStore, proxy: FaultyProxy) -> None:
    """A tree whose delete lost its answer is gone, and what was there is counted once."""
    for number in range(3):
        store.put(f"v1/{number}", b"")
    proxy.expect(Fault.LOST_ANSWER, "POST ", "delete")
    assert store.delete_tree("v1") == 3
    assert paths(store) == []
    assert proxy.waiting == 0


def test_a_server_that_takes_and_never_answers(proxy: FaultyProxy, bucket: str, tmp_path: Path) -> None:
    """Silence counts as a failure after a while; the next attempt is answered."""
    store = open_deep_store(f"s3://{bucket}/{tmp_path.name}", 2.0)
    proxy.expect(Fault.SILENCE, "PUT ")
    store.put("a", b"1")
    assert store.get("a") == b"1"
    assert proxy.waiting == 0


def test_nobody_knows_whether_it_was_written(proxy: FaultyProxy, bucket: str, tmp_path: Path) -> None:
    """When the answer to a PUT is lost and nothing is answered any more, the outcome is unknown, and says so."""
    store = open_deep_store(f"s3://{bucket}/{tmp_path.name}", 1.0)
    proxy.expect(Fault.LOST_ANSWER, "PUT ")
    proxy.expect(Fault.TURNED_AWAY, times=200)
    with pytest.raises(OutcomeUnknown) as caught:
        store.put("a", b"1")
    assert caught.value.code == "deep_store_outcome_unknown"


@pytest.fixture
def stopped(lead: Lead) -> Iterator[MinioServer]:
    """A server of the test's own, which was stopped."""
    with running_minio() as server:
        lead(server.url)
        server.stop()
        yield server


def test_a_server_that_is_gone(stopped: MinioServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything says within its patience that the deep store does not answer, where it was looked for, and goes on
    when it is back."""
    for name, value in stopped.environment().items():
        monkeypatch.setenv(name, value)
    store = open_deep_store("s3://bucket/prefix", 1.0)
    acts = (store.check, lambda: store.put("a", b""), lambda: store.get("a"), lambda: store.list(""))
    for act in acts:
        began = time.monotonic()
        with pytest.raises(Unreachable) as caught:
            act()
        assert time.monotonic() - began < 10
        assert caught.value.code == "deep_store_unreachable"
        assert str(stopped.port) in str(caught.value)
        assert stopped.secret_key not in str(caught.value)
    stopped.start()
    stopped.client().create_bucket(Bucket="bucket")
    store.put("a", b"1")
    assert store.get("a") == b"1"
