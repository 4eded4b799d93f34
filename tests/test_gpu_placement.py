"""What duo says of a model on a GPU: where it is, what memory it takes, who computes prompts."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S, run_python
from gpu_device import NAME, NAMES, SHORT, SOFTWARE, buffers, child, needs_flash, needs_gpu, same_but_for_ties
from rpc_servers import needs_rpc, serving

from duo import Duo
from duo.errors import DoesNotFitError
from duo.models.demo import demo_pair
from duo.placement.devices import devices

pytestmark = needs_gpu
Run = Callable[..., tuple[int, str, str]]
TARGET = demo_pair()[0]
LONG = "Once upon a time there was a tin soldier who had one leg. " * 45


def first_line(*options: str) -> str:
    command = child(*options, "-n", "1", "-p", "Hello", "-ngld", "99")
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=True)
    return done.stderr.splitlines()[0]


def test_the_first_line_says_where_the_weights_are() -> None:
    helped = "" if SOFTWARE else f"; long prompts on {NAME}"
    cpu = rf"CPU \(1 thread, (duo|stock) kernels{helped}\)"
    for options, where in (
        (["-ngl", "0"], f" on {cpu} "),
        (["-ngl", "0", "--no-op-offload"], r" on CPU \(1 thread, (duo|stock) kernels\) "),
        (["-ngl", "2"], rf" on {NAME} \+ CPU \(1 thread, .*kernels\) "),
        (["-ngl", "0", "-ot", rf"blk\.3\.ffn={NAME}"], rf" on {NAME} \+ CPU \(1 thread"),
        (["-ngl", "99"], rf" on {NAME} \+ draft"),
    ):
        line = first_line(*options)
        assert re.search(where, line), (options, line)
        assert line.rstrip().split(" + draft ")[1].split(";")[0].endswith(f" on {NAME}")


def test_the_devices_are_listed(run: Run) -> None:
    code, out, _ = run("devices")
    assert code == 0
    for d in devices():
        assert d.type == "accel" or f"{d.name}: " in out


@pytest.mark.parametrize(
    "options",
    [
        {"n_gpu_layers": 0, "flash_attn": "off"},  # prompts are computed there
        {"n_gpu_layers": 2},
        {"n_gpu_layers": 2, "op_offload": False},
        {"n_gpu_layers": 2, "n_ctx": 4096},
        {"n_gpu_layers": 3, "flash_attn": "off"},
        {"n_gpu_layers": "all"},
        {"n_gpu_layers": "auto", "n_ctx": 2048},
        {"n_gpu_layers": "all", "n_parallel": 3},
        pytest.param({"n_gpu_layers": "all", "type_k": "q8_0"}, marks=needs_flash),
    ],
    ids=str,
)
def test_the_estimate_is_what_is_taken(options: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Duo(TARGET, **{"n_ctx": 512, "log_file": log} | options) as d:
        assert d.placement is not None
        expected = sum(d.placement.target.bytes.devices) / 2**20
    taken = sum(mib for (memory, _), mib in buffers(log).items() if memory in NAMES)
    assert taken > 2
    assert abs(expected / taken - 1) < 0.1, (expected, taken)


SPLITS = """
import sys
from duo import Duo
with Duo(sys.argv[1], n_ctx=1024, n_gpu_layers=int(sys.argv[3]), op_offload=sys.argv[4] == "1", flash_attn="off",
         cpu_kernels=sys.argv[5], log_file=sys.argv[2]) as d:
    d.generate(sys.argv[6], max_tokens=1, temperature=0)
"""


@pytest.mark.parametrize("kernels", ["duo", "stock"])
@pytest.mark.parametrize("layers", [0, 2])
def test_long_prompts_are_computed_on_the_device(
    kernels: str, layers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with weights in duo's order, which are unpacked on the way."""
    monkeypatch.setenv("GGML_SCHED_DEBUG", "2")
    copied = f"{NAME}#blk.0.attn_q"
    for offload in ("1", "0"):
        log = tmp_path / f"log{offload}"
        done = run_python(SPLITS, TARGET, log, str(layers), offload, kernels, LONG)
        assert done.returncode == 0, done.stderr
        assert (copied in log.read_text()) == (offload == "1")


@pytest.mark.parametrize("kernels", ["duo", "stock"])
def test_a_long_prompt_gives_the_same_text(kernels: str) -> None:
    where: dict[str, Any] = {"n_ctx": 1024, "n_gpu_layers": 2, "cpu_kernels": kernels}
    with Duo(TARGET, **where, op_offload=False) as d:
        want = d.generate(LONG, **SHORT)
        assert want.prompt_tokens > 512
        with Duo(TARGET, **where) as other:
            assert same_but_for_ties(d, LONG, other.generate(LONG, **SHORT), want)


@needs_flash
def test_flash_attention_stays_on_where_prompts_are_computed_elsewhere(tmp_path: Path) -> None:
    """libllama tries it with a row for each branch. With 32 rows and more a device takes them from the CPU's layers."""
    with Duo(TARGET, n_ctx=512, n_gpu_layers=2, log_file=tmp_path / "log", flash_attn="auto") as d:
        assert len(d.generate("Hello", max_tokens=2).tokens) == 2
    assert "Flash Attention not supported" not in (tmp_path / "log").read_text()


def test_what_cannot_fit_is_refused_before_it_is_loaded() -> None:
    n_ctx = 1 << 30
    with pytest.raises(
        DoesNotFitError, match=rf"the target needs .* on {NAME}, but only .* are free; give at most -ngl \d"
    ):
        Duo(TARGET, n_ctx=n_ctx, n_gpu_layers="all")


@needs_rpc
def test_a_target_over_two_servers_of_one_device() -> None:
    with serving("-d", NAME) as a, serving("-d", NAME) as b:
        done = subprocess.run(
            child("--rpc", f"{a.endpoint},{b.endpoint}", "-dev", "RPC0,RPC1", "-sm", "layer", "-ts", "1,1",
                  "-ngl", "99", "-devd", "none", "-n", "12", "--temp", "0", "-p", "Once upon a time", "-fa", "off"),
            capture_output=True, text=True, timeout=2 * HANG_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f" on the RPC servers {a.endpoint} and {b.endpoint} + draft" in done.stderr
    assert len(done.stdout.split()) > 6


def test_doctor_measures_passes_on_the_device(run: Run) -> None:
    code, out, _ = run("doctor", "-ngl", "2", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["n_gpu_layers"], found["n_all"], found["devices"]) == (2, 5, list(NAMES))
    assert found["differ_again"] == []
    assert found["divergence"] < 1e-2
    assert all(ms > 0 for ms in found["ms"].values())
    code, _, err = run("doctor", "-ngl", "2", "-dev", "nonsense")
    assert code == 1 and "unknown device nonsense" in err
