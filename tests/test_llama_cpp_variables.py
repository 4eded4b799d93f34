"""llama.cpp's variables of the environment: each is read, refused or named."""

import pytest
from llama_cpp_table import ARGS, IN_DUO, TEXT, Run
from parsed_line import params

from duo.cli.commands.serve import command, name_of, typed_page
from duo.cli.llama_cpp_options import PROGRAM, WORK_OF_OTHERS
from duo.cli.llama_cpp_taken import TAKEN
from duo.cli.main import command_named


def test_every_variable_is_known() -> None:
    """It has the class of its option: it is read, or named where it has no effect."""
    variables = {arg["env"]: arg["names"] for arg in ARGS if arg["env"]}
    assert {t.env for t in TAKEN if t.env} <= variables.keys()
    of_taken = {name: t.env for t in TAKEN for name in t.names}
    for variable, names in variables.items():
        if variable == "HF_TOKEN":  # huggingface_hub reads it
            continue
        own = [IN_DUO[name] for name in names if name in IN_DUO]
        if own:
            assert all(variable in ([p.envvar] if isinstance(p.envvar, str) else p.envvar or ()) for p in own), variable
        elif not {*names} & (WORK_OF_OTHERS.keys() | PROGRAM.keys()):
            assert {of_taken[name] for name in names if of_taken.get(name)} == {variable}, variable


def test_a_variable_is_refused_as_its_option_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, why in (
        ("LLAMA_ARG_GRP_ATTN_N", "4", "only 1 is possible in duo"),
        ("LLAMA_ARG_LOG_COLORS", "maybe", "it has to be on, off or auto"),
        ("LLAMA_ARG_CACHE_REUSE", "x", "it has to be a whole number"),
    ):
        with monkeypatch.context() as m:
            m.setenv(name, value)
            wrong = f"duo: llama.cpp's variable {name}={value}: {why}; change the value or unset it\n"
            assert run("-p", "x") == (1, "", wrong)
    monkeypatch.setenv("LLAMA_ARG_ROPE_SCALING_TYPE", "spiral")
    code, _, err = run("-p", "x")
    assert code == 1 and "rope_scaling_type (--rope-scaling) is 'spiral'" in err


def test_variables_of_the_context_and_of_switches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {
        "ROPE_SCALING_TYPE": "yarn", "ROPE_FREQ_BASE": "1e6", "ROPE_FREQ_SCALE": "0.5", "YARN_ORIG_CTX": "4096",
        "YARN_EXT_FACTOR": "1", "YARN_ATTN_FACTOR": "2", "YARN_BETA_SLOW": "3", "YARN_BETA_FAST": "4",
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(f"LLAMA_ARG_{name}", value)
    found = params("run", "-p", "x")
    assert {name.upper(): found[name.lower()] for name in given} == given
    for value, on in (("1", False), ("true", False), ("0", None), ("", None)):
        monkeypatch.setenv("LLAMA_ARG_NO_HOST", value)
        assert params("run", "-p", "x")["host_buffers"] is on
    monkeypatch.setenv("LLAMA_ARG_NO_KV_OFFLOAD", "0")  # whatever its value, as in llama.cpp
    monkeypatch.setenv("LLAMA_ARG_KV_OFFLOAD", "1")
    assert params("run", "-p", "x")["offload_kqv"] is False
    assert params("run", "-p", "x", "-kvo")["offload_kqv"] is True
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("LLAMA_ARG_MMPROJ_URL", "https://x/eyes.gguf")
    assert params("run", "-p", "x")["mmproj"] == "https://x/eyes.gguf"
    assert params("run", "-p", "x", "-mm", "mine.gguf")["mmproj"] == "mine.gguf"


def test_the_environment_means_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_ROPE_SCALE", "4")
    monkeypatch.setenv("LLAMA_ARG_FIT", "on")
    monkeypatch.setenv("LLAMA_ARG_THINK_BUDGET", "0")
    assert params("run", "-p", "x")["rope_freq_scale"] == "0.25"
    assert params("run", "--rope-scale", "2", "-p", "x")["rope_freq_scale"] == "0.5"
    assert params("run", "-p", "x")["n_gpu_layers"] == "auto"
    monkeypatch.setenv("LLAMA_ARG_N_GPU_LAYERS", "7")
    assert params("run", "-p", "x")["n_gpu_layers"] == params("run", "--fit", "on", "-p", "x")["n_gpu_layers"] == "7"
    assert params("chat")["reasoning_budget"] == "0"
    for value, meant in (("1", True), ("disabled", False), ("auto", None), ("enabled", True), ("-1", None)):
        monkeypatch.delenv("LLAMA_ARG_THINK_BUDGET", raising=False)
        monkeypatch.setenv("LLAMA_ARG_REASONING", value)
        assert params("chat")["reasoning"] is meant
    for value, on in (("disabled", False), ("enabled", True), ("0", False)):
        monkeypatch.setenv("LLAMA_ARG_CACHE_PROMPT", value)
        assert params("run", "-p", "x")["cache_prompt"] is on
    assert params("run", "-p", "--jinja")["prompt"] == "--jinja"  # a value


def test_a_variable_that_cannot_be_followed_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = run(*TEXT)[1]
    for name, value in (("TOOLS", "all"), ("CONTEXT_SHIFT", "0"), ("CTX_SIZE", "256"), ("NO_SUCH_THING", "1")):
        monkeypatch.setenv(f"LLAMA_ARG_{name}", value)
    code, text, err = run(*TEXT)
    assert (code, text) == (0, plain)
    assert [x for x in err.splitlines() if "LLAMA_ARG" in x] == [
        "duo: the variable LLAMA_ARG_TOOLS has no effect, because duo has no --tools"
    ]
    monkeypatch.setenv("LLAMA_ARG_FIT", "maybe")
    wrong = "duo: llama.cpp's variable LLAMA_ARG_FIT=maybe: it has to be on or off; change the value or unset it\n"
    assert run(*TEXT) == (1, "", wrong)
    assert params("run", "--fit=off", "-p", "x")["n_gpu_layers"] == "all"  # typed wins
    found = command_named("run")
    assert found is not None and "LLAMA_ARG_TOOLS" in capfd.readouterr().err
    with found.make_context("run", ["--dra"], resilient_parsing=True):  # completion
        assert capfd.readouterr().err == ""


def test_what_a_server_is_told_on_its_command_line_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_DOCKER_REPO", "zzz")
    monkeypatch.setenv("LLAMA_ARG_UI_CONFIG", "{}")
    for args, name, page in (
        (["-m", "a/b.gguf", "--ui-config-file", "x.json"], "b", (None, "x.json")),
        (["-hf", "a/b", "--ui-config", "[]"], "a/b", ("[]", None)),
        ([], "zzz", ("{}", None)),
    ):
        with command.make_context("serve", args) as ctx:
            found = typed_page(ctx.params)
            assert (name_of(ctx.params), (found["ui_config"], found["ui_config_file"])) == (name, page)
