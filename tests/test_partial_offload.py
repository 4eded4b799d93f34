"""Some layers on another device (ggml's RPC server on this machine): duo's CPU kernels take the CPU's layers only."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from conftest import HANG_S, run_python
from ports import free_port
from sizes import size

from duo import _core
from duo.models.demo import demo_pair
from duo.placement import kernels

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not _core.supports_rpc() or not kernels.available(), reason="needs RPC and duo's kernels"),
]

# The libraries that duo has loaded; the wheel's other names of them are copies.
LIBRARIES = """
import ctypes, json, sys
from pathlib import Path
import duo, llama_cpp

def library(name):
    return ctypes.CDLL(str(next((Path(llama_cpp.__file__).parent / "lib").glob(f"lib{name}.*.0"))))
"""

SERVER = (
    LIBRARIES
    + """
ggml, rpc = library("ggml"), library("ggml-rpc")
ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
devices = (ctypes.c_void_p * 1)(ggml.ggml_backend_dev_get(0))
rpc.ggml_backend_rpc_start_server.argtypes = [
    ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
rpc.ggml_backend_rpc_start_server(sys.argv[1].encode(), None, 1, 1, devices)
"""
)

CLIENT = (
    LIBRARIES
    + """
import numpy as np
from duo import _core
from duo.benchmark.doctor import context_of, options

ggml, rpc = library("ggml"), library("ggml-rpc")
rpc.ggml_backend_rpc_add_server.restype = ctypes.c_void_p
rpc.ggml_backend_rpc_add_server.argtypes = [ctypes.c_char_p]
ggml.ggml_backend_register.argtypes = [ctypes.c_void_p]
ggml.ggml_backend_register(rpc.ggml_backend_rpc_add_server(sys.argv[1].encode()))
found = []
for n_gpu_layers in (0, 1, 2, 5):
    logits = []
    for types in ([], _core.kernel_types()):
        o = options(sys.argv[2], 1, types, 256)
        o.devices, o.n_gpu_layers = ["RPC0"], n_gpu_layers
        p = _core.Probe(o)
        p.decode(context_of(p, 40), 0)
        logits.append(p.logits())
        n = p.n_duo_products, p.n_cpu_products, p.same_bits
        del p
    error = float(np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max())
    found.append([n_gpu_layers, *n, error, _core.cpu_types(sys.argv[2], n_gpu_layers)])
print(json.dumps(found))
"""
)

PLANNED = (
    CLIENT.split("found = []")[0]
    + """
from duo.placement import place
from duo import Duo, DuoError

real = place.devices
found = []
for mb in (100, 34, 1):
    small = lambda: [d._replace(free=mb * 10**6, total=mb * 10**6) if d.type == "rpc" else d for d in real()]
    place.devices = small
    # With stock kernels: duo's attention, on the CPU, rounds otherwise than the device's.
    where = {"device": "RPC0", "device_draft": "RPC0", "n_gpu_layers": "auto", "n_gpu_layers_draft": "auto"}
    with Duo(n_ctx=512, cpu_kernels="stock", **where) as d:
        text = d.generate("Once upon a time", max_tokens=8, temperature=0).text
        found.append([d.placement.draft.n_gpu_layers, d.placement.target.n_gpu_layers, d.target.n_cpu_products, text])
try:
    Duo(n_ctx=512, device="RPC0", n_gpu_layers="all", device_draft="none")
except DuoError as e:
    found.append(str(e))
print(json.dumps(found))
"""
)

SHARED = (
    CLIENT.split("found = []")[0]
    + """
from duo import Duo

texts = []
shared = {"device": "RPC0", "device_draft": "RPC0", "n_gpu_layers_draft": 3, "cpu_kernels": "stock"}
for n in (1, 2, 5) * int(sys.argv[2]):
    with Duo(n_ctx=512, n_gpu_layers=n, **shared) as d:
        for i in range(8):
            texts.append(d.generate("Once upon a time " * (1 + 7 * i), max_tokens=12, temperature=0, mode="async").text)
print(json.dumps(texts))
"""
)

KEPT = (
    CLIENT.split("found = []")[0]
    + """
from duo import Duo

found = []
for n in ("all", 99, "auto", 2):
    for kept in ({"n_cpu_ffn": 99}, {"override_tensor": "ffn=CPU"}, {"n_cpu_ffn": 2}):
        with Duo(n_ctx=512, device="RPC0", n_gpu_layers=n, n_gpu_layers_draft=0, cpu_kernels="duo", **kept) as d:
            n_tokens = len(d.generate("Once upon a time", max_tokens=8, temperature=0, ignore_eos=True).tokens)
            found.append([n, d.target.n_duo_products, d.target.n_cpu_products, n_tokens])
print(json.dumps(found))
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement.place import place
from duo.models.demo import demo_pair

for more in ({}, {"override_tensor": "ffn=CPU"}, {"override_tensor_draft": "ffn=CPU"}):
    o = engine_options({"device": "RPC0", "device_draft": "RPC0", "n_ctx": 512, **more})
    target, draft = demo_pair()
    placed, _ = place(ModelOptions.of(o, "target", str(target)), ModelOptions.of(o, "draft", str(draft)))
    print(json.dumps([placed.shared, bool(placed.target.cpu_types), bool(placed.draft.cpu_types)]))
"""
)


@pytest.fixture
def endpoint() -> Iterator[str]:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, f"127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + HANG_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < end, "the server did not start"
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait(HANG_S)


@pytest.mark.daily
def test_only_the_cpus_layers_go_to_duos_kernels(endpoint: str) -> None:
    child = run_python(CLIENT, endpoint, demo_pair()[0])
    assert child.returncode == 0, child.stderr
    none, output, last, every = json.loads(child.stdout.splitlines()[-1])
    # Four layers of seven products, and the output matrix, which leaves the CPU first.
    assert none[:4] == [0, 29, 29, True]
    assert output[:4] == [1, 28, 28, False]
    assert last[:4] == [2, 21, 21, False]
    assert every[:4] == [5, 0, 0, False]
    assert [x[5] for x in (none, output, last, every)] == [["q8_0"]] * 3 + [[]]
    for x in (none, output, last):
        assert 0 < x[4] < 0.02
    assert every[4] == 0


@pytest.mark.daily
def test_weights_that_stay_on_the_cpu_have_duos_kernels_whatever_layers_are_on_a_device(endpoint: str) -> None:
    child = run_python(KEPT, endpoint)
    assert child.returncode == 0, child.stderr
    found, *placed = map(json.loads, child.stdout.splitlines()[-4:])
    # Four layers, each with three such products of its seven. With -ngl 2, three layers are the CPU's anyway.
    for i, n in enumerate(("all", 99, "auto")):
        assert [x[:3] for x in found[3 * i : 3 * i + 3]] == [[n, 12, 12], [n, 12, 12], [n, 6, 6]]
    assert [x[:3] for x in found[9:]] == [[2, 24, 24], [2, 24, 24], [2, 21, 21]]
    assert {x[3] for x in found} == {8}
    # [the models share the CPU or the device, types for duo's kernels of the target, of the draft]
    assert placed == [[True, False, False], [False, True, False], [True, False, True]]


@pytest.mark.daily  # test_pair_check has placements, test_rpc_pair a device
def test_auto_places_what_fits_the_device(endpoint: str) -> None:
    child = run_python(PLANNED, endpoint)
    assert child.returncode == 0, child.stderr
    *placed, refused = json.loads(child.stdout.splitlines()[-1])
    assert [x[:2] for x in placed] == [[3, 5], [3, placed[1][1]], [0, 0]]
    assert 0 < placed[1][1] < 5
    # What the engine has done: seven products a layer and the output matrix are not the CPU's.
    assert [x[2] for x in placed] == [0, 29 - 1 - 7 * (placed[1][1] - 1), 29]
    assert len({x[3] for x in placed}) == 1
    assert refused.startswith("the target needs 11 MB on RPC0, but only 1 MB are free; give at most -ngl 0 (of 5")


@pytest.mark.daily
@pytest.mark.random
def test_both_models_use_one_server_at_once(endpoint: str) -> None:
    """ggml-rpc confuses the graphs of two contexts; duo has each graph sent anew."""
    n = size(2, 10)
    child = run_python(SHARED, endpoint, str(n))
    assert child.returncode == 0, child.stderr
    texts = json.loads(child.stdout.splitlines()[-1])
    assert len(texts) == 24 * n
    assert texts == texts[:24] * n
