"""Hosts as processes, for tests of models on other machines; each is ended by whoever started it."""

import datetime
import ipaddress
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import EXACT, HANG_S, start_duo
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from ports import free_port
from waits import first_line

from duo import Duo, Result
from duo.gguf_tools.switched_duo import SwitchedDuo

PROMPT = "Once upon a time there was"
# A verify host's, so that its texts are those that EXACT writes here.
KERNELS = ["--cpu-kernels", EXACT["cpu_kernels"], *(["--strict"] if EXACT.get("strict") else [])]

LONG: dict[str, Any] = {"max_tokens": 400, "ignore_eos": True}
GREEDY = {**LONG, "temperature": 0}
# Filters and penalties have no state, so a text that is begun again on another host goes on as it was.
SEEDED = {**LONG, "temperature": 0.9, "seed": 11, "xtc_probability": 0.3, "dry_multiplier": 0.8}


class HostProcess:
    """`duo draft-host` or `duo verify-host`; `address` is where it listens, also when it is started again."""

    def __init__(self, role: str, *args: str | Path, listen: str = "") -> None:
        self.role, self.args = role, args
        self.start(listen or f"127.0.0.1:{free_port()}")

    def start(self, listen: str = "") -> None:
        """Again: on the same address."""
        where = listen or self.address
        self.process = self.launch(f"{self.role}-host", "--listen", where, *self.args)
        line = first_line(self.process)
        if not line:
            _, err = self.process.communicate(timeout=HANG_S)
            raise AssertionError(err.decode())
        self.address = line.split(" on ")[1].split(" ")[0]

    def launch(self, *args: str | Path) -> "subprocess.Popen[bytes]":
        return start_duo(*args)

    def send(self, what: signal.Signals) -> None:
        self.process.send_signal(what)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=HANG_S)

    def stop(self) -> int:
        """As a service manager does. Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            self.process.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode


@contextmanager
def host(role: str, *args: str | Path, listen: str = "") -> Iterator[HostProcess]:
    h = HostProcess(role, *args, listen=listen)
    try:
        yield h
    finally:
        h.stop()


def remote(role: str, end: Any, **options: Any) -> Duo:
    """A Duo with the demo pair, of which the model of this role is at `end.address`."""
    options = {"n_ctx": 1024, "always": True} | (EXACT if role == "draft" else {}) | options
    return SwitchedDuo(**{f"{role}_host": end.address}, **options)


def write(d: Duo, options: dict[str, Any], at: dict[int, Callable[[], None]]) -> Result:
    """Generates, and does something when so many tokens have come."""
    with d.stream(PROMPT, **options) as s:
        for i, _ in enumerate(s):
            if i in at:
                at[i]()
        return s.result


@contextmanager
def deaf() -> Iterator[str]:
    """An address where connections are taken and nothing is ever said."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(8)
        yield f"127.0.0.1:{s.getsockname()[1]}"


def until_it_helps(d: Duo, least: int = 1, **options: Any) -> Result:
    """The first text with so many right guesses. By turns: whether a guess comes in time is no matter of luck."""
    until, pause = time.monotonic() + HANG_S / 2, 0.02
    while True:
        r = d.generate(PROMPT, **{"temperature": 0, "max_tokens": 40, "mode": "sync"} | options)
        if r.timings["draft_n_accepted"] >= least and not r.warning:
            return r
        assert time.monotonic() < until, f"the draft is of no use: {r.warning}"
        time.sleep(pause)
        pause = min(2 * pause, 0.2)  # a host starts in a second, which others could use


def write_token(path: Path, token: str = "correct-horse-battery-staple") -> Path:
    path.write_text(token + "\n")
    return path


def make_certificate(folder: Path, name: str, issuer: "tuple[Path, Path] | None" = None) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key, as PEM files; signed by `issuer` or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signing, issued_by = key, subject
    if issuer is not None:
        signing = serialization.load_pem_private_key(issuer[1].read_bytes(), None)  # type: ignore[assignment]
        issued_by = x509.load_pem_x509_certificate(issuer[0].read_bytes()).subject
    now = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issued_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(signing, hashes.SHA256())
    )
    cert_path, key_path = folder / f"{name}.pem", folder / f"{name}.key"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_path, key_path


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
