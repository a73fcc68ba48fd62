"""A cluster that asks for tokens and speaks TLS, through the command line: who may do what, and what it leaves."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import psutil
import pytest
import trustme

from tests.cluster.commands import Anew, wait_until
from tests.ports import port_of

_PORT = port_of("security")


def _files(folder: Path) -> dict[str, str]:
    """Settings that name a tokens file, certificates, and an authority to trust."""
    folder.mkdir()
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    paths = {name: folder / name for name in ("ca.pem", "certificate.pem", "key.pem")}
    authority.cert_pem.write_to_path(paths["ca.pem"])
    for blob in issued.cert_chain_pems:
        blob.write_to_path(paths["certificate.pem"], append=True)
    issued.private_key_pem.write_to_path(paths["key.pem"])
    paths["key.pem"].chmod(0o600)
    return {
        "ANEW_PORT": str(_PORT),
        "ANEW_TOKENS_FILE": str(folder / "tokens.toml"),
        "ANEW_TLS_CERTIFICATE": str(paths["certificate.pem"]),
        "ANEW_TLS_KEY": str(paths["key.pem"]),
        "ANEW_TLS_CA": str(paths["ca.pem"]),
    }


def _not_private(home: Path) -> dict[str, str]:
    """What others could look into, with its mode."""
    modes = {path: path.lstat().st_mode for path in (home, *home.rglob("*"))}
    assert len(modes) > 30, "there is something to look at"
    wrong = {
        path: mode
        for path, mode in modes.items()
        if stat.S_IMODE(mode) not in ({0o700} if stat.S_ISDIR(mode) else {0o600, 0o400})
    }
    return {str(path.relative_to(home)): f"{mode:o}" for path, mode in wrong.items()}


def _holding(home: Path, secrets: list[str]) -> set[str]:
    """The files of a home, and its processes, that hold one of the secrets."""
    files = {
        path.name
        for path in home.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets)
    }
    pids = json.loads((home / "cluster.json").read_text(encoding="utf-8"))
    found = set()
    for pid in (pids["supervisor"], *pids["pids"].values()):
        process = psutil.Process(pid)
        said = [*process.cmdline(), *process.environ().values()]
        found |= {f"process {pid}" for secret in secrets if any(secret in text for text in said)}
    return files | found


@pytest.mark.timeout(500)
def test_a_cluster_with_tokens_and_tls(tmp_path: Path, people: Path) -> None:
    """Push, write, read, repair of rights: each with the token it takes, refused without; nothing leaks."""
    settings = _files(tmp_path / "etc")
    plain = Anew(tmp_path / "home", settings)
    tokens = {
        name: plain.done("token", "make", name, "--right", right)["token"]
        for name, right in (("chief", "operate"), ("writer", "write"), ("reader", "read"))
    }
    chief, writer, reader = (Anew(plain.home, settings | {"ANEW_TOKEN": token}) for token in tokens.values())
    try:
        assert chief.done("up", "--detach", "--nodes", "1")["url"].startswith("https://")
        for nobody, code in ((plain, "token_missing"), (Anew(plain.home, settings | {"ANEW_TOKEN": "x"}), None)):
            answer = nobody.run("store", "list")
            assert (answer.code, answer.error["code"]) == (3, code if code else "token_unknown")
        chief.create("people", "hybrid=true", "replicas=1")
        assert reader.run("push", "people", str(people), "--key", "id", "--value", "name,age").code == 3
        began = writer.done("push", "people", str(people), "--key", "id", "--value", "name,age", "--detach")
        wait_until(lambda: reader.done("rebuild", "show", began["id"])["status"] != "running", "the push", 120)
        assert reader.done("rebuild", "show", began["id"])["status"] == "succeeded"
        writer.write("people", {"key": "p1", "value": {"name": "new", "age": 1}})
        assert reader.value("people", "p1") == {"name": "new", "age": 1}
        assert len(reader.scan("people")) == 20
        assert plain.run("get", "people", "p1").code == 3
        assert writer.run("store", "delete", "people", "--yes").error["code"] == "not_allowed"
        assert chief.done("store", "verify", "people")["equal"] is True
        actors = {line["actor"] for line in reader.done("history", "--store", "people")}
        assert {"chief", "writer"} <= actors
        chief.done("token", "remove", "reader")
        wait_until(lambda: reader.run("store", "show", "people").code == 3, "the end of a token")
        own = (plain.home / "cluster.token").read_text(encoding="utf-8").strip()
        assert _holding(plain.home, list(tokens.values())) == set()
        assert _holding(plain.home, [own]) == {"cluster.token"}
    finally:
        chief.run("down")
    assert _not_private(plain.home) == {}


def test_an_open_address_is_refused(tmp_path: Path) -> None:
    """``anew up --bind 0.0.0.0`` without tokens starts nothing and exits with 3."""
    anew = Anew(tmp_path / "home", {"ANEW_PORT": str(_PORT)})
    answer = anew.run("up", "--detach", "--bind", "0.0.0.0")
    assert (answer.code, answer.error["code"]) == (3, "open_bind")
    assert anew.run("status").code == 4
