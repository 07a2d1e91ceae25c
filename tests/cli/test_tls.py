"""The API over TLS, and a certificate that is replaced while it serves."""

import datetime
import signal
import socket
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from roost import config
from roost.cli.tls import Tls
from roost.errors import Unavailable
from tests.cli.test_processes import free_port, running


def write_certificate(folder: Path, serial: int) -> None:
    """A certificate for this machine that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), serial)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(*form))


def served_serial(port: int) -> int | None:
    """The number of the certificate that the port shows; None if nothing answers."""
    lenient = ssl.create_default_context()
    lenient.check_hostname, lenient.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as plain, lenient.wrap_socket(plain) as secure:
            shown = secure.getpeercert(binary_form=True)
    except OSError:
        return None
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def wait_for_serial(port: int, serial: int) -> None:
    until = time.monotonic() + 120
    while served_serial(port) != serial:
        assert time.monotonic() < until
        time.sleep(0.1)


def ask(port: int, path: str, authority: Path) -> bytes:
    """What is answered to a client that trusts nothing but this certificate."""
    trusting = ssl.create_default_context(cafile=str(authority))
    head = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode()
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.sendall(head)
        return b"".join(iter(lambda: secure.recv(65536), b""))


def test_a_certificate_is_replaced_while_the_api_serves(database_url: str, tmp_path: Path) -> None:
    write_certificate(tmp_path, 1)
    file = tmp_path / "roost.conf"
    file.write_text(f"[api]\ntls_cert = {tmp_path}/cert.pem\ntls_key = {tmp_path}/key.pem\n")
    port = free_port()
    with running("api", database_url, "--config", str(file), "--listen", f"127.0.0.1:{port}") as process:
        wait_for_serial(port, 1)
        answer = ask(port, "/identity/v3", tmp_path / "cert.pem")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert f"https://localhost:{port}/identity/v3".encode() in answer
        with socket.create_connection(("127.0.0.1", port), 5) as plain:
            plain.sendall(b"GET /healthcheck HTTP/1.1\r\nHost: a\r\n\r\n")
            assert not plain.recv(65536).startswith(b"HTTP/1.1 200")

        good = (tmp_path / "key.pem").read_bytes()
        (tmp_path / "key.pem").write_text("no key")
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert served_serial(port) == 1

        (tmp_path / "key.pem").write_bytes(good)
        write_certificate(tmp_path, 2)
        process.send_signal(signal.SIGHUP)
        wait_for_serial(port, 2)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("tls_cert = {folder}/cert.pem", r"set both \[api\] tls_cert and \[api\] tls_key"),
        ("tls_key = {folder}/key.pem", r"set both \[api\] tls_cert and \[api\] tls_key"),
        ("tls_cert = {folder}/none.pem\ntls_key = {folder}/key.pem", "none.pem .*No such file"),
        ("tls_cert = {folder}/cert.pem\ntls_key = {folder}/other.pem", "other.pem"),
    ],
)
def test_what_cannot_be_used_is_refused_at_start(tmp_path: Path, given: str, sentence: str) -> None:
    write_certificate(tmp_path, 1)
    (tmp_path / "key.pem").rename(tmp_path / "other.pem")
    write_certificate(tmp_path, 2)
    file = tmp_path / "roost.conf"
    file.write_text("[api]\n" + given.format(folder=tmp_path))
    with pytest.raises(Unavailable, match=sentence):
        Tls.of(config.load(file))
