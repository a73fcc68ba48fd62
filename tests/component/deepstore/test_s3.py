"""The deep store in a bucket of a real S3 server keeps the contract, and says what is wrong with its configuration."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anew.cli.main import run_command
from anew.core.errors import InvalidRequest, Unreachable
from anew.deepstore import s3
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.deepstore.s3client import s3_client
from anew.testing.deepstore_contract import DeepStoreContract, paths
from tests.component.deepstore.conftest import Lead
from tests.minio import MinioServer
from tests.ports import port_of

_DIE_WHILE_WRITING = """
import os, sys
from anew.deepstore.open import open_deep_store
store = open_deep_store(sys.argv[1])
with store.write("v1/a") as stream:
    stream.write(bytes(30_000_000))
    os.kill(os.getpid(), 9)
"""
_RACE = """
import sys
from anew.core.errors import Refused
from anew.deepstore.open import open_deep_store
store, won = open_deep_store(sys.argv[1]), []
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    try:
        store.put(f"race/{number}", sys.argv[2].encode())
        won.append(str(number))
    except Refused:
        pass
print(" ".join(won))
"""

_Unusable = tuple[str, str | None, str]
"""Root, endpoint, and the error that is expected."""


class TestS3DeepStore(DeepStoreContract):
    """`DeepStoreContract` below a prefix of a bucket."""

    bucket: str

    @pytest.fixture(autouse=True)
    def here(self, lead: Lead, bucket: str) -> None:
        """Lead this process's client to the server."""
        lead(None)
        self.bucket = bucket

    def open_store(self, directory: Path) -> DeepStore:
        """The store below a prefix."""
        return open_deep_store(f"s3://{self.bucket}/{directory.name}/deep")


@pytest.fixture
def root(lead: Lead, bucket: str, tmp_path: Path) -> str:
    """An empty prefix of the bucket."""
    lead(None)
    return f"s3://{bucket}/{tmp_path.name}"


def test_a_killed_writer_leaves_nothing_to_see(root: str, minio: MinioServer) -> None:
    """The file of a process that was killed while writing is not there, and its path is free."""
    run = subprocess.run([sys.executable, "-c", _DIE_WHILE_WRITING, root], check=False)
    assert run.returncode == -signal.SIGKILL
    store = open_deep_store(root)
    assert (store.stat("v1/a"), paths(store)) == (None, [])
    store.put("v1/a", b"whole")
    assert store.delete_tree("v1") == 1
    assert paths(store) == []


def test_of_several_processes_one_makes_each_file(root: str) -> None:
    """Where processes put other bytes under the same paths at once, each path has one winner, whose bytes it holds."""
    pipe = subprocess.PIPE
    racers = [
        subprocess.Popen([sys.executable, "-c", _RACE, root, f"racer {n}"], stdin=pipe, stdout=pipe, text=True)
        for n in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = {n: racer.communicate(timeout=60)[0].split() for n, racer in enumerate(racers)}
    winner_of = {number: n for n, numbers in won.items() for number in numbers}
    assert sum(len(numbers) for numbers in won.values()) == len(winner_of) == 25
    store = open_deep_store(root)
    assert {number: store.get(f"race/{number}").decode() for number in winner_of} == {
        number: f"racer {n}" for number, n in winner_of.items()
    }


def test_more_files_than_one_page_holds(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree of more files than are listed or deleted at once is listed in order and removed whole."""
    monkeypatch.setattr(s3, "_AT_ONCE", 10)
    store = open_deep_store(root)
    expected = sorted(f"v1/{number}" for number in range(35))
    for path in (*expected, "v10/kept"):
        store.put(path, b"")
    assert paths(store, "v1") == expected
    assert store.delete_tree("v1") == len(expected)
    assert paths(store) == ["v10/kept"]


def test_a_check_of_a_store_in_order_says_nothing(root: str) -> None:
    """A bucket that may be used is one, also while nothing lies below the prefix."""
    open_deep_store(root).check()


def test_a_bucket_that_is_missing(lead: Lead) -> None:
    """No bucket is not the same as no file: every question says which bucket is missing, and what to do."""
    lead(None)
    store = open_deep_store("s3://nowhere-at-all/prefix")
    for ask in (store.check, lambda: store.stat("a"), lambda: store.put("a", b""), lambda: store.list("")):
        with pytest.raises(Unreachable) as caught:
            ask()
        assert caught.value.code == "deep_store_no_bucket"
        assert "nowhere-at-all" in str(caught.value.found)
        assert "ANEW_DEEP_STORE" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("AWS_SECRET_ACCESS_KEY", "wr0ng-s3cret"), ("AWS_ACCESS_KEY_ID", "n0b0dy"), ("AWS_ACCESS_KEY_ID", None)],
)
def test_keys_that_do_not_fit(
    root: str, monkeypatch: pytest.MonkeyPatch, minio: MinioServer, variable: str, value: str | None
) -> None:
    """Wrong or missing keys are named as such at once, and no key is in any message."""
    if value is None:
        monkeypatch.delenv(variable)
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    else:
        monkeypatch.setenv(variable, value)
    s3_client.cache_clear()
    store = open_deep_store(root)
    for ask in (store.check, lambda: store.stat("a"), lambda: store.put("a", b""), lambda: store.delete_tree("a")):
        with pytest.raises(Unreachable) as caught:
            ask()
        said = f"{caught.value} {caught.value.to_json()}"
        assert caught.value.code == "deep_store_denied"
        assert "AWS_SECRET_ACCESS_KEY" in said
        for hidden in ("wr0ng-s3cret", "n0b0dy", minio.secret_key, minio.access_key):
            assert hidden not in said


@pytest.mark.parametrize(
    "case",
    [
        ("s3://bucket/prefix", "http://127.0.0.1:1", "deep_store_unreachable"),
        ("s3://nowhere/p", None, "deep_store_no_bucket"),
    ],
)
def test_a_cluster_does_not_start_without_its_deep_store(
    lead: Lead, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, case: _Unusable
) -> None:
    """``anew up`` says that the deep store cannot be used, with exit code 4, and starts nothing."""
    root, url, code = case
    lead(url)
    given = {"HOME": tmp_path / "home", "PORT": port_of("never started"), "TIMEOUT_SECONDS": 1, "DEEP_STORE": root}
    for name, value in given.items():
        monkeypatch.setenv(f"ANEW_{name}", str(value))
    assert run_command(["up", "--detach", "--json"]) == 4
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == code
    assert error["found"]
    assert error["expected"]
    assert error["hint"]
    assert not (tmp_path / "home" / "cluster.json").exists()


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIAKEY:s3cret@bucket/prefix",
        "s3://bucket/prefix?secret_key=s3cret",
        "s3://bucket:s3cret/prefix",
        "s3://user:s3cret@host:9000/bucket/prefix",
    ],
)
def test_a_uri_with_keys_is_refused_and_not_repeated(uri: str) -> None:
    """Keys are no part of the URI: it is refused, says where they belong, and the secret is nowhere in the error."""
    with pytest.raises(InvalidRequest) as caught:
        open_deep_store(uri)
    assert caught.value.code == "bad_deep_store"
    assert "AWS_SECRET_ACCESS_KEY" in str(caught.value)
    assert "s3cret" not in f"{caught.value} {caught.value.to_json()}"


def test_an_endpoint_with_keys_is_not_repeated(lead: Lead) -> None:
    """What an endpoint's URL holds beside host and port is in no message."""
    lead("http://user:s3cret@127.0.0.1:1")
    with pytest.raises(Unreachable) as caught:
        open_deep_store("s3://bucket/prefix", 0.5).check()
    assert "s3cret" not in f"{caught.value} {caught.value.to_json()}"
