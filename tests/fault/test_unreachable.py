"""An endpoint that is not reached is reported as what it is; only what may pass is asked again."""

import contextlib
import datetime
import http.server
import ipaddress
import socket
import ssl
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import tokenloom as tl


@contextlib.contextmanager
def nobody():
    """A port where nobody listens, and nobody else may."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def silence():
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate that nobody but itself has signed, with its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "toy")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("certificate") / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@contextlib.contextmanager
def web_server(certificate=None):
    """A web server with nothing, with TLS or without; its port, and the requests that it got."""
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            got.append(self.path)
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_HEAD(self):
            self.do_GET()

        def log_message(self, *_):
            pass  # tests are quiet

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_):
            pass  # a client that does not trust it leaves

    with Server(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, got
        server.shutdown()
        thread.join()


@pytest.fixture
def deadline(monkeypatch):
    """Seconds that everything may take."""
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "1.5")
    monkeypatch.setenv("NO_PROXY", "*")


def told(url: str) -> str:
    with pytest.raises(tl.StoreError) as caught:
        tl.open(url)
    assert caught.value.__context__ is None
    assert "Error performing" not in str(caught.value)  # no word of the library
    return str(caught.value)


def test_a_port_where_nobody_listens_is_asked_again_and_told_as_refused(deadline):
    with nobody() as port:
        found = told(f"http://127.0.0.1:{port}/store")
    assert "refused" in found
    assert "asked 1 times" not in found


def test_a_server_that_never_answers_is_told_as_late(deadline):
    """The control of the tests beside it: here the words are true."""
    with silence() as port:
        found = told(f"http://127.0.0.1:{port}/store")
    assert "refused" not in found


@pytest.mark.parametrize("scheme", ["https", "s3"])
def test_a_host_that_does_not_exist_is_told_as_such(deadline, monkeypatch, scheme):
    host = "https://bucket.tokenloom.invalid"  # reserved: no name ends so
    for name, value in {"ENDPOINT_URL": host, "ACCESS_KEY_ID": "a", "REGION": "x"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    found = told(f"{host}/store" if scheme == "https" else "s3://bucket/store")
    assert "tokenloom.invalid" in found or "s3://bucket" in found
    assert "refused" not in found


def test_a_certificate_that_nobody_signed_is_told_at_once(deadline, certificate, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "60")
    started = time.monotonic()
    with web_server(certificate) as (port, got):
        found = told(f"https://127.0.0.1:{port}/store")
    assert "SSL_CERT_FILE" in found
    assert "asked" not in found  # more than once
    assert time.monotonic() - started < 30
    assert got == []


def test_a_certificate_that_the_environment_trusts_is_no_failure(
    deadline, certificate, monkeypatch
):
    """The control of the test above, and the way out that it names."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with web_server(certificate) as (port, got), pytest.raises(tl.StoreError, match="/x"):
        tl.open(f"https://127.0.0.1:{port}/x")
    assert got


def test_a_server_without_tls_is_told_at_once(deadline):
    with web_server() as (port, _):
        found = told(f"https://127.0.0.1:{port}/store")
    assert "TLS" in found
