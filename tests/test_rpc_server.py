"""`duo rpc-server` and `duo devices --rpc`: real processes on 127.0.0.1."""

import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import HANG_S, run_python
from ports import free_port
from rpc_servers import Server, needs_rpc, not_a_server, run_duo, serving
from sizes import mostly_daily

from duo import DuoError, _core
from duo.errors import PeerLostError
from duo.models.demo import demo_pair
from duo.options.validate import engine_options
from duo.remote.rpc import server as rpc

pytestmark = needs_rpc


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as s:
        yield s


def test_a_server_says_where_it_listens_and_what_it_serves(server: Server) -> None:
    assert f"127.0.0.1:{server.port}".encode() in server.said
    assert b"MiB free" in server.said


def test_the_devices_of_two_servers_are_listed_in_the_order_that_names_them(server: Server) -> None:
    with serving() as other:
        done = run_duo("devices", "--rpc", f"{server.endpoint},{other.endpoint}")
    first, second = done.stdout.decode().splitlines()
    assert first.startswith(f"RPC0: {server.endpoint} (") and "MiB free" in first
    assert second.startswith(f"RPC1: {other.endpoint} (")
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_missing_one_of_two_servers_is_named(server: Server) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    done = run_duo("devices", "--rpc", f"{nobody},{server.endpoint}")
    assert done.stdout.startswith(f"RPC0: {server.endpoint}".encode())
    assert done.stderr.count(b"\n") == 1 and f"{nobody} cannot be reached (connection refused)".encode() in done.stderr
    assert done.returncode == 1


STRANGE = [b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10, b"\0", b"\xff" * 4096]


def test_a_peer_that_says_nothing_is_given_up_in_time() -> None:
    with not_a_server(None) as endpoint, pytest.raises(DuoError, match="did not answer in 1 s"):
        rpc.devices_of(endpoint, timeout_s=1)


@pytest.mark.parametrize("answer", mostly_daily(STRANGE, STRANGE[2:]))
def test_a_peer_that_is_not_an_rpc_server_is_an_error_not_a_crash(answer: bytes) -> None:
    with (
        not_a_server(answer) as endpoint,
        pytest.raises(DuoError, match=r"is not compatible with this llama\.cpp|did not answer"),
    ):
        rpc.devices_of(endpoint, timeout_s=2)


def test_another_version_of_the_protocol_is_named() -> None:
    hello = struct.pack("<Q", 28) + bytes([6, 1, 0, 0]) + bytes(24)
    with (
        not_a_server(hello) as endpoint,
        pytest.raises(DuoError, match=r"compatible with this llama\.cpp \(RPC server version mismatch: 6\.1\.0\)"),
    ):
        rpc.devices_of(endpoint, timeout_s=5)


def test_a_busy_server_is_distinguished_from_a_missing_one(server: Server) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", server.port)), pytest.raises(DuoError, match="it is busy"):
        rpc.devices_of(server.endpoint, timeout_s=1)
    assert [d.name for d in rpc.devices_of(server.endpoint)] == ["RPC0"]


def test_an_unknown_host_name_is_reported_in_one_sentence() -> None:
    with pytest.raises(DuoError, match=r"host of the RPC server nosuch\.invalid:50052 is unknown"):
        rpc.devices_of("nosuch.invalid:50052")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("localhost", "is not host:port"),
        ("a:1,", "is not host:port"),
        ("[::1]:50052", "is not host:port"),
        ("a:70000", "not between 1 and 65535"),
        ("a:1,a:1", "given twice"),
        ([], "host:port"),
    ],
)
def test_a_malformed_server_address_is_refused(value: object, why: str) -> None:
    with pytest.raises(DuoError, match=rf"^rpc \(--rpc\) is .*{why}"):
        engine_options({"rpc": value})


INVALID: list[tuple[tuple[str, ...], bytes]] = [
    (("-d", "CUDA77"), b"unknown device CUDA77; choose from "),
    (("-H", "nosuch.invalid"), b"'nosuch.invalid' (-H) has no IPv4 address"),
    (("-H", "192.0.2.1", "--insecure"), b"cannot listen on 192.0.2.1:0"),
    (("-H", "0.0.0.0"), b"no authentication, and other machines can reach 0.0.0.0 (-H); listen on 127.0.0.1"),
    (("-t", "0"), b"-t"),
    (("-p", "70000"), b"-p"),
]


@pytest.mark.parametrize(("options", "why"), mostly_daily(INVALID, [INVALID[0], INVALID[3]]))
def test_invalid_options_are_one_line_and_exit_code_1(options: tuple[str, ...], why: bytes) -> None:
    done = run_duo("rpc-server", "-p", "0", *options)
    assert done.returncode == 1
    assert why in done.stderr and done.stderr.count(b"\n") == 1 and done.stdout == b""


def test_a_port_in_use_is_one_line_and_exit_code_1(server: Server) -> None:
    done = run_duo("rpc-server", "-p", str(server.port))
    assert done.returncode == 1
    assert b"cannot listen on" in done.stderr and done.stderr.count(b"\n") == 1


SIGNALS = [(signal.SIGTERM, 0), (signal.SIGINT, 130)]


@pytest.mark.parametrize(("number", "code"), mostly_daily(SIGNALS, SIGNALS[:1]))
def test_a_server_ends_by_a_signal(number: int, code: int) -> None:
    with serving() as s:
        s.signal(number)
        assert s.process.wait(HANG_S) == code


@pytest.mark.daily  # test_rpc_pair starts one again on its port
def test_a_port_can_be_served_again_at_once_after_its_server_was_killed() -> None:
    with serving(port=free_port()) as s:
        devices_soon(s.endpoint)
        s.kill()
        with serving(port=s.port) as again:
            assert devices_soon(again.endpoint)


def devices_soon(endpoint: str) -> object:
    """libggml begins to listen a moment after the program has said that it serves."""
    until = time.monotonic() + HANG_S
    while True:
        try:
            return rpc.devices_of(endpoint)
        except PeerLostError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def test_listening_beyond_loopback_is_warned_of_and_weights_can_be_cached(tmp_path: Path) -> None:
    import os

    with serving("-H", "0.0.0.0", "--insecure", "-c", env={**os.environ, "LLAMA_CACHE": str(tmp_path)}) as s:
        assert str(tmp_path / "rpc").encode() in s.said and (tmp_path / "rpc").is_dir()
        s.signal(signal.SIGTERM)
        assert s.process.stderr is not None
        s.process.wait(HANG_S)
        assert b"no authentication and no encryption" in s.process.stderr.read()


CONNECTION = """
import sys
from duo import _core
from duo.remote.rpc import server as rpc
(name,) = rpc.connect([sys.argv[1]])
m = _core.ModelOptions()
m.path, m.devices, m.n_ctx, m.n_gpu_layers = sys.argv[2], [name], 256, -1
p = _core.Probe(m)
p.decode(p.tokenize("Once upon a time"), 0)
print(name, p.logits()[-1].argmax(), rpc.guard_connections([int(sys.argv[1].split(":")[1])]))
m.devices = ["none"]
p = _core.Probe(m)
p.decode(p.tokenize("Once upon a time"), 0)
print(p.logits()[-1].argmax())
"""


def test_a_model_lives_on_an_rpc_device_and_only_if_it_is_named(server: Server) -> None:
    done = run_python(CONNECTION, server.endpoint, demo_pair()[1])
    assert done.returncode == 0, done.stderr
    name, remote, n_guarded, local = done.stdout.split()
    assert (name, n_guarded) == ("RPC0", "1")
    assert remote == local


def test_looking_for_connections_keeps_no_descriptor_and_no_pipe_open() -> None:
    reading, writing = os.pipe()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        open(reading, "rb") as reader,
        open(writing, "wb") as writer,
    ):
        before = sorted(os.listdir("/dev/fd"))
        assert rpc.guard_connections([listener.getsockname()[1]], listening=True) == 1
        assert sorted(os.listdir("/dev/fd")) == before
        writer.close()
        assert reader.read() == b""


def test_a_stopped_server_cannot_be_reached() -> None:
    with serving() as s:
        endpoint = s.endpoint
    with pytest.raises(DuoError, match="cannot be reached"):
        rpc.devices_of(endpoint)


def test_without_libggml_rpc_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "supports_rpc", lambda: False)
    with pytest.raises(DuoError, match=r"built without RPC; to get it: .*GGML_RPC=on"):
        rpc.devices_of("127.0.0.1:50052")
