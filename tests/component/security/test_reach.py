"""Who reaches controller and nodes: from where, with which token, over which connection."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
import trustme

from anew.api.gate import Tokens
from anew.api.http import ControllerClient
from anew.api.node_http import Address, NodeClient
from anew.api.security import Credentials, ServerSecurity
from anew.api.stores.node_wire import KeyState
from anew.core.errors import InvalidRequest, NotFound, Refused, Unreachable
from anew.core.grants import Grant, Right, format_grants, token_hash
from anew.node.loader import Loader
from anew.node.stores.verifying import Verifications
from tests.component.node.harness import key_of
from tests.component.security.servers import LOOPBACK, Listening, controller, node

pytestmark = pytest.mark.processes

Server = Callable[[Path, ServerSecurity], AbstractContextManager[Listening]]
WORDS = Address("words", "u1", 1)


@dataclass(frozen=True, slots=True)
class Files:
    """Tokens, and certificates of two authorities for this machine."""

    tokens: Path
    authority: Path
    stranger: Path
    certificate: Path
    key: Path

    @property
    def security(self) -> ServerSecurity:
        """A server that asks for tokens and speaks TLS."""
        return ServerSecurity(Tokens(self.tokens, "own"), self.certificate, self.key)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Made once: keys take their time."""
    folder = tmp_path_factory.mktemp("files")
    found = Files(*(folder / name for name in ("tokens.toml", "ca.pem", "stranger.pem", "cert.pem", "key.pem")))
    reader = Grant("reader", Right.READ, token_hash("r"), frozenset({"words"}))
    others = Grant("others", Right.READ, token_hash("o"), frozenset({"others"}))
    found.tokens.write_text(format_grants((reader, others)), encoding="utf-8")
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(found.authority)
    stranger.cert_pem.write_to_path(found.stranger)
    issued = authority.issue_cert(LOOPBACK, "localhost")
    for blob in issued.cert_chain_pems:
        blob.write_to_path(found.certificate, append=True)
    issued.private_key_pem.write_to_path(found.key)
    for path in (found.tokens, found.key):
        path.chmod(0o600)
    return found


@pytest.fixture(scope="module")
def safe_controller(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a controller that asks for tokens and speaks TLS."""
    with controller(tmp_path_factory.mktemp("controller"), files.security) as server:
        yield f"https://{LOOPBACK}:{server.port}"


@pytest.fixture(scope="module")
def safe_node(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of such a node."""
    with node(tmp_path_factory.mktemp("node"), files.security) as server:
        yield f"https://{LOOPBACK}:{server.port}"


@pytest.mark.parametrize("start", [controller, node], ids=["controller", "node"])
def test_servers_listen_on_the_loopback_alone(start: Server, tmp_path: Path) -> None:
    """No socket of this process listens on the server's port at another address."""
    with start(tmp_path, ServerSecurity()) as server:
        addresses = {
            connection.laddr.ip
            for connection in psutil.Process().net_connections("inet")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == server.port
        }
    assert addresses == {LOOPBACK}


def test_a_client_with_token_and_authority_is_served(files: Files, safe_controller: str, safe_node: str) -> None:
    """Requests to the controller and reads from the node come through TLS."""
    with ControllerClient(safe_controller, credentials=Credentials("own", files.authority)) as client:
        assert [view.id for view in client.nodes()] == ["node-1", "node-2"]
    nodes = NodeClient(credentials=Credentials("r", files.authority))
    answer, seen = nodes.batch(safe_node, WORDS, [key_of("k01"), key_of("nothing")])
    assert [result.state for result in answer.results] == [KeyState.FOUND, KeyState.ABSENT]
    assert (answer.results[0].value, seen.current) == (key_of("v01"), 1)
    nodes.close()


@pytest.mark.parametrize("named", [True, False], ids=["another-authority", "the-usual-authorities"])
def test_a_server_that_an_unknown_authority_vouches_for_is_not_talked_to(
    files: Files, safe_controller: str, safe_node: str, *, named: bool
) -> None:
    """The client says that it does not trust it, and how to; nothing was sent."""
    stranger = Credentials("own", files.stranger if named else None)
    with (
        ControllerClient(safe_controller, credentials=stranger) as client,
        pytest.raises(Unreachable) as caught,
    ):
        client.delete_store("flights")
    nodes = NodeClient(credentials=stranger)
    with pytest.raises(Unreachable) as from_node:
        nodes.page(safe_node, WORDS, (0, 0), None)
    nodes.close()
    for error in (caught.value, from_node.value):
        assert (error.code, error.exit_code) == ("tls_untrusted", 4)
        assert "ANEW_TLS_CA" in str(error.hint)
        assert "own" not in str(error)


def test_a_certificate_for_another_name_is_not_trusted(files: Files, tmp_path: Path) -> None:
    """The right authority does not help where the name is not the one that was called."""
    with controller(tmp_path, files.security, "127.0.0.2") as server:
        client = ControllerClient(f"https://127.0.0.2:{server.port}", credentials=Credentials("own", files.authority))
        with client, pytest.raises(Unreachable) as caught:
            client.nodes()
    assert caught.value.code == "tls_untrusted"


def test_a_client_that_speaks_plainly_is_refused(safe_controller: str, safe_node: str) -> None:
    """Plain HTTP to a server that speaks TLS gets no answer of it."""
    for url in (safe_controller, safe_node):
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http") + "/healthz", trust_env=False)


def test_tls_to_a_plain_server_says_so(tmp_path: Path, files: Files) -> None:
    """The client says that the other side speaks no TLS."""
    with controller(tmp_path) as server:
        client = ControllerClient(f"https://{LOOPBACK}:{server.port}", credentials=Credentials(None, files.authority))
        with client, pytest.raises(Unreachable) as caught:
            client.nodes()
    assert caught.value.code == "tls_failed"


def test_old_tls_is_refused(files: Files, safe_controller: str, safe_node: str) -> None:
    """Nothing older than TLS 1.2 is spoken."""
    context = ssl.create_default_context(cafile=files.authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.deprecated_call():
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    for url in (safe_controller, safe_node):
        with pytest.raises(ssl.SSLError), Listening(int(url.rsplit(":", 1)[1]), "").connect(context):
            pass


def test_a_node_lets_in_by_token(files: Files, safe_node: str) -> None:
    """No token, an unknown one, one for another store, and one that may not verify: each is refused, and as Refused."""
    with httpx.Client(base_url=safe_node, verify=ssl.create_default_context(cafile=files.authority)) as client:
        scan = "/v1/stores/words/versions/1/partitions/0/scan"
        asked = [(scan, None, 401), (scan, "x", 401), (scan, "o", 403), (scan, "r", 200), ("/metrics", "r", 403)]
        asked += [("/metrics", "own", 200), ("/metrics", None, 401), ("/healthz", None, 200), ("/readyz", None, 200)]
        asked += [("/v1/stores/words/versions/1/verify/j", "r", 403), ("/v1/stores/words/versions/1/other", "own", 404)]
        for path, token, status in asked:
            answer = client.get(path, headers={} if token is None else {"authorization": f"Bearer {token}"})
            assert answer.status_code == status, (path, token, answer.text)
            assert ("www-authenticate" in answer.headers) == (status == 401)
    for token, code in ((None, "token_missing"), ("x", "token_unknown"), ("o", "not_allowed")):
        nodes = NodeClient(credentials=Credentials(token, files.authority))
        with pytest.raises(Refused) as caught:
            nodes.page(safe_node, WORDS, (0, 0), None)
        nodes.close()
        assert (caught.value.code, caught.value.exit_code) == (code, 3)


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Path, files: Files) -> None:
    """A file that is not there, or holds none, is named before anything is sent."""
    for path in (tmp_path / "none.pem", files.tokens):
        with pytest.raises(InvalidRequest) as caught:
            ControllerClient("https://nowhere", credentials=Credentials(None, path))
        assert (caught.value.code, str(path) in str(caught.value.found)) == ("bad_tls_ca", True)


def test_a_verification_is_reached_through_its_own_store_alone(files: Files, safe_node: str) -> None:
    """A store's name in the path, for which a token may be good, opens no other store's verification."""
    nodes = NodeClient(credentials=Credentials("own", files.authority))
    job = nodes.begin_verify(safe_node, WORDS).job
    assert nodes.verify_view(safe_node, WORDS, job).job == job
    for other in (Address("others", "u1", 1), Address("words2", "u2", 1)):
        with pytest.raises(Refused):
            nodes.verify_view(safe_node, other, job)
    nodes.end_verify(safe_node, WORDS, job)
    nodes.close()


def test_a_verification_of_another_store_is_unknown(tmp_path: Path) -> None:
    """Two stores on one node: neither sees the other's verification; one that is not there is left to others."""
    loader = Loader()
    verifications = Verifications(tmp_path / "verifying", loader, "n1", 1, lambda: None)
    job = verifications.begin("u1", 1).job
    verifications.check_store(job, "u1")
    verifications.check_store("none", "u2")
    with pytest.raises(NotFound) as caught:
        verifications.check_store(job, "u2")
    loader.close()
    assert caught.value.code == "unknown_verification"
