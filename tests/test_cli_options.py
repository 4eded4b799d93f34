"""Every option of the command line: its spellings are one, its nonsense is refused, its effect is real."""

import os
import sys
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest
from conftest import HANG_S, start_duo
from sizes import LARGE, mostly_daily
from waits import first_bytes

import duo
from duo.cli.commands.run import command
from duo.cli.llama_cpp_options import WORK_OF_OTHERS
from duo.cli.llama_cpp_values import in_range
from duo.cli.main import main
from duo.cli.options import given_options
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS

OPTIONS = [p for p in command.params if isinstance(p, click.Option) and p.expose_value]
CACHE_TYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
VALUED = [p for p in OPTIONS if not p.is_flag]
# What a model may be called, say, or be told to write, has no nonsense; files are checked below.
FREE_TEXT = {
    "model", "model_draft", "prompt", "stop", "dry_sequence_breakers", "file", "trace", "log_file", "hf_token",
    "prompt_cache", "reasoning_budget_message", "in_prefix", "in_suffix", "images", "lookup_cache_dynamic",
    "docker_repo",
}  # fmt: skip
# Only the loader knows which devices and CPUs there are.
KNOWN_TO_THE_ENGINE = {"device", "device_draft", "mmproj_device"}


def parse(*args: str) -> dict[str, Any]:
    with command.make_context("duo", list(args)) as ctx:
        return ctx.params


def value_of(p: click.Option) -> str:
    return {"logit_bias": "5+1", "color": "off", "prio": "3"}.get(p.name or "", "7")


@pytest.fixture(autouse=True)
def _priority_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "setpriority", lambda *_: None)


def line_of(which: int, joined: bool = False) -> dict[str, Any]:
    """What comes of a command line with all options, each in its so manieth spelling."""
    args: list[str] = []
    for p in OPTIONS:
        spelling, v = p.opts[which % len(p.opts)], value_of(p)
        if p.is_flag:
            args += [spelling]
        elif joined and spelling.startswith("--"):
            args += [f"{spelling}={v}", *[v] * (p.nargs - 1)]
        else:
            args += [spelling, *[v] * p.nargs]
    return parse(*args)


def test_all_spellings_are_one_option() -> None:
    n = max(len(p.opts) for p in OPTIONS)
    lines = [line_of(which, joined=joined) for which in range(n) for joined in (False, True)]
    off = parse(*[s for p in OPTIONS for s in p.secondary_opts])
    for p in OPTIONS:
        values = [line[p.name] for line in lines]
        assert all(v == values[0] for v in values) and values[0] not in (None, (), False), p.name
        assert not p.secondary_opts or off[p.name] is False, p.name


def test_environment_variables_are_options(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {p: [p.envvar] if isinstance(p.envvar, str) else list(p.envvar or []) for p in OPTIONS}
    others = [x for p in OPTIONS if names[p] and not p.is_flag for x in (p.opts[0], "8")]
    typed, other = line_of(0), parse(*others)
    for which in range(max(map(len, names.values()))):
        there = {p: x[which % len(x)] for p, x in names.items() if x}
        with monkeypatch.context() as m:
            for p, name in there.items():
                assert name.startswith("LLAMA_ARG_") or name == "MTMD_BACKEND_DEVICE"
                m.setenv(name, "1" if p.is_flag else value_of(p))
            found, both = parse(), parse(*others)
        for p, name in there.items():
            assert found[p.name] == (not typed[p.name] if "_NO_" in name else typed[p.name]), name
            if not p.is_flag:  # typed wins over the environment
                assert both[p.name] == other[p.name] and (other[p.name] != typed[p.name] or p.multiple), name


def test_llama_duos_command_line_as_typed() -> None:
    params = parse(
        *[
            "-m",
            "70B.gguf",
            "-md",
            "8B.gguf",
            "--draft",
            "4",
            "-ngl",
            "11",
            "-ngld",
            "99",
            "-n",
            "512",
            "-fa",
            "-co",
            "-t",
            "8",
            "-s",
            "3",
            "-p",
            "x",
        ]
    )
    assert (params["model"], params["model_draft"], params["prompt"]) == ("70B.gguf", "8B.gguf", "x")
    assert (params["flash_attn"], params["color"]) == ("on", "on")
    engine, text = given_options(params, ENGINE_OPTIONS), given_options(params, GENERATE_OPTIONS)
    assert engine == {"n_gpu_layers": "11", "n_gpu_layers_draft": "99", "n_threads": "8", "flash_attn": "on"}
    assert text == {"max_tokens": "512", "seed": "3", "n_draft": "4"}
    assert parse("-fa", "off", "-co", "auto", "-p", "-n")["prompt"] == "-n"  # a value, whatever it looks like
    assert parse("-l", "5+1", "-l", "6-inf", "-p", "x")["logit_bias"] == ("5+1", "6-inf")


def test_unsupported_llama_cpp_options_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name, what in WORK_OF_OTHERS.items():
        for args in ([name], [name, "1"], [f"{name}=1"] if name.startswith("--") else [name]):
            assert main(["-p", "x", *args]) == 1
            assert capsys.readouterr().err == f"duo: {name} is not in duo: {what}; leave it out here\n"


def test_misspelt_options_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, meant in (
        ("--n-predic", "--n-predict"),
        ("-ngll", "-ngl"),
        ("--drft", "--draft"),
        ("-mdx", "-md"),
        ("--jinj", "--jinja"),
        ("--top-K", "--top-k"),  # the case
        ("--ctx", "--ctx-size"),  # the beginning
        ("--tmep", "--temp"),  # two letters are swapped
    ):
        assert main(["-p", "x", wrong, "5"]) == 1
        err = capsys.readouterr().err
        assert err.startswith(f"duo: unknown option {wrong}; did you mean {meant}")
    for name, wrong, said in (
        ("serve", "--prot", "unknown option --prot; did you mean --port?"),
        ("check", "--temp", "--temp is an option of duo run; leave it out here"),
        ("sreve", "--port", "unknown command sreve; did you mean duo serve?"),
    ):
        assert main([name, wrong, "5"]) == 1
        assert capsys.readouterr().err == f"duo: {said}\n"
    assert main(["chatt", "me", "up"]) == 1  # a prompt, perhaps
    assert capsys.readouterr().err.endswith('did you mean duo chat? (to give a prompt write: duo -p "chatt ...")\n')
    assert main(["-p", "x", "--zzzzzzzzzz"]) == 1
    assert capsys.readouterr().err == "duo: unknown option --zzzzzzzzzz; see duo run --help-all\n"


@pytest.mark.random
@pytest.mark.parametrize("p", [p for p in VALUED if p.name not in FREE_TEXT], ids=lambda p: p.name)
def test_invalid_options_are_reported_in_one_sentence_before_loading(
    p: click.Option, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("models are loaded before the options are checked")

    if p.name not in KNOWN_TO_THE_ENGINE:
        monkeypatch.setattr("duo._core.Engine", load)
    wrong = ["nonsense", "5 6", "nan", "✗", "\udcff", "1\n2"]
    if p.name not in ("flash_attn", "color"):  # these may stand alone before another option
        wrong += ["--", "-x", "-99999999999999999999"]
    if p.name not in KNOWN_TO_THE_ENGINE:
        wrong += [""]
    own = []
    if (p.name or "").startswith("cpu_range"):
        own = ["1-0", "0", "0-99999999999999", "a-b", "-1-2"]
    elif (p.name or "").startswith("cpu_mask"):
        own = ["0x", "0", "0xg", "f" * 300]
    elif p.name == "logit_bias":
        own = ["5", "5+", "5+x", "5+inf", "5+nan", "5+1e10", "x+1", "4096"]
    else:
        wrong += ["0-1", "1e400", "99999999999999999999"]
    wrong = [value for value in wrong if in_range(p.name or "", value) == value]  # llama.cpp takes the others
    # Each option has its own mistakes and some of those that all options share; with those of its neighbours, all.
    for value in [*(wrong if LARGE else wrong[VALUED.index(p) % 8 :: 8]), *own]:
        assert main(["-p", "x", p.opts[0], value]) == 1, value
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("duo: ")
        assert err.count("\n") == 1, err
        assert "Traceback" not in err
        assert any(o in err for o in p.opts) or p.name in KNOWN_TO_THE_ENGINE, err


@pytest.mark.parametrize(
    "name", ["LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_TOP_K", "LLAMA_ARG_DRAFT_MAX", "LLAMA_ARG_FLASH_ATTN"]
)
def test_invalid_environment_variables_are_reported(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "nonsense")
    assert main(["-p", "x"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("duo: ")
    assert err.count("\n") == 1
    assert "nonsense" in err


@pytest.mark.parametrize("kv", mostly_daily(CACHE_TYPES, ["bf16", "q8_0", "iq4_nl"]))
def test_cache_types(kv: str) -> None:
    with duo.Duo(n_ctx=128, type_k=kv, type_v=kv, type_k_draft=kv, type_v_draft=kv) as d:  # type: ignore[arg-type]
        assert d.generate("Once upon a time", max_tokens=8).text


@pytest.mark.parametrize(
    ("fa", "mode"),
    mostly_daily(product(["on", "off", "auto"], ["auto", "none", "mmap"]), [("on", "none"), ("off", "mmap")]),
)
def test_flash_attention_and_load_modes(fa: str, mode: str) -> None:
    with duo.Duo(n_ctx=128, flash_attn=fa, load_mode=mode) as d:  # type: ignore[arg-type]
        assert d.generate("Once upon a time", max_tokens=8, temperature=0).text


def test_a_quantised_v_cache_without_flash_attention_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-p", "x", "-n", "2", "-fa", "off", "-ctv", "q8_0"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "flash attention" in err


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs and /proc")
@pytest.mark.parametrize("how", mostly_daily(["mask", "range"], ["mask"]))
def test_masks_and_ranges_pin_each_models_threads(how: str) -> None:
    a, b = sorted(os.sched_getaffinity(0))[:2]
    pins = ["-C", hex(1 << a), "-Cd", f"{1 << b:x}"] if how == "mask" else ["-Cr", f"{a}-{a}", "-Crd", f"{b}-{b}"]
    # Two threads each: the one that begins, and one that it starts.
    p = start_duo("-p", "Once", "-n", -1, "--ignore-eos", "-c", 50_000, "-t", 2, "-td", 2, *pins)
    try:
        assert len(first_bytes(p, 200)) == 200
        allowed = []
        for task in Path(f"/proc/{p.pid}/task").iterdir():
            status = (task / "status").read_text()
            allowed.append(next(x.split()[1] for x in status.splitlines() if x.startswith("Cpus_allowed_list")))
        assert allowed.count(str(a)) == 2
        assert allowed.count(str(b)) == 2
    finally:
        p.kill()
        p.communicate(timeout=HANG_S)
