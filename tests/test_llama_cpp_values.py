"""Values of options as llama.cpp's command line takes them: given several times, beyond a bound, -1 for auto."""

import pytest
from parsed_line import params

from duo import BadValueError
from duo.cli.options import given_options
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS
from duo.options.validate import engine_options, generate_options


def test_the_last_of_several_counts() -> None:
    assert params("run", "--fit", "on", "--fit", "off", "-p", "x")["n_gpu_layers"] == "all"
    assert params("chat", "--reasoning-budget", "0", "--reasoning-budget", "-1")["reasoning_budget"] == "-1"
    assert not params("run", "-lv", "5", "-lv", "0", "-p", "x")["verbose"]
    assert params("run", "--rope-scale", "4", "--rope-freq-scale", "0.5", "-p", "x")["rope_freq_scale"] == "0.5"
    assert params("run", "--rope-freq-scale", "0.5", "--rope-scale", "4", "-p", "x")["rope_freq_scale"] == "0.25"


# What llama.cpp collects (push_back and insert in common/arg.cpp), besides what duo had as repeatable from the start.
@pytest.mark.parametrize(("command", "name", "parameter"), [
    ("run", "--lora", "lora"), ("run", "--lora-scaled", "lora_scaled"), ("run", "--control-vector", "control_vector"),
    ("run", "--control-vector-scaled", "control_vector_scaled"), ("run", "--override-kv", "kv_overrides"),
    ("run", "--rpc", "rpc"), ("run", "--spec-type", "spec_type"), ("serve", "--alias", "alias"),
    ("serve", "--tags", "tags"), ("serve", "--api-key", "api_key"), ("verify-host", "--lora", "lora"),
])  # fmt: skip
def test_values_of_what_llama_cpp_collects_add_up(command: str, name: str, parameter: str) -> None:
    port = ["--listen", "x:1"] if command == "verify-host" else []
    assert params(command, *port, name, "a,b", f"{name}=c")[parameter] == "a,b,c"
    assert params(command, *port, name, "")[parameter] == ""  # its check refuses it
    assert params(command, *port)[parameter] is None


def test_what_is_collected_is_checked_as_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    given = params(
        "run", "--lora-scaled", "a:1", "--lora-scaled", "b:2", "--override-kv", "a=int:1,b=str:x,y", "--override-kv",
        "a=int:2", "--rpc", "a:1", "--rpc", "b:2", "-md", "x", "-p", "x",
    )  # fmt: skip
    o = engine_options(given_options(given, ENGINE_OPTIONS))
    assert list((o["lora_scaled"] or {}).items()) == [("a", 1.0), ("b", 2.0)]
    assert o["kv_overrides"] == {"a": 1, "b": "x,y"}  # the first counts, as in llama.cpp
    assert o["rpc"] == ["a:1", "b:2"]
    with pytest.raises(BadValueError, match="a file is given twice"):
        engine_options({"lora_scaled": "a:1,a:2"})
    monkeypatch.setenv("LLAMA_ARG_ALIAS", "my model, b")
    monkeypatch.setenv("LLAMA_ARG_API_KEY_FILE", "my keys")
    assert params("serve")["alias"] == "my model, b"  # its spaces separate nothing
    assert params("serve")["api_key_file"] == ("my keys",)
    assert params("serve", "-a", "x", "-a", "y")["alias"] == "x,y"
    assert params("run", "-dev", "a", "-dev", "b", "-p", "x")["device"] == "b"  # llama.cpp forgets the first


def test_values_beyond_a_bound_are_the_bound_as_on_llama_cpps_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for args, name, value in (
        (["--temp", "-1"], "temperature", 0.0),
        (["--top-p", "1.5"], "top_p", 1.0),
        (["--min-p", "2"], "min_p", 1.0),
        (["--typical", "1e400"], "typical_p", 1.0),
        (["--top-k", "-7"], "top_k", 0),
        (["--top-nsigma", "-3"], "top_n_sigma", -1.0),
        (["--xtc-probability", "3"], "xtc_probability", 1.0),
        (["--xtc-threshold", "-1"], "xtc_threshold", 0.0),
        (["--dynatemp-range", "-0.5"], "dynatemp_range", 0.0),
    ):
        texts = given_options(params("run", *args, "-p", "x"), GENERATE_OPTIONS)
        assert {**generate_options(texts)}[name] == value
    monkeypatch.setenv("LLAMA_ARG_TEMPERATURE", "-0.5")
    assert given_options(params("serve"), GENERATE_OPTIONS) == {"temperature": "0"}
    for wrong in ({"temperature": -1}, {"top_p": 1.5}, {"min_p": "nan"}):
        with pytest.raises(BadValueError):
            generate_options(wrong)


def test_minus_one_texts_at_once_are_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given_options(params("serve", "-np", "-1"), ENGINE_OPTIONS) == {"n_parallel": "auto"}
    monkeypatch.setenv("LLAMA_ARG_N_PARALLEL", "-1")
    assert given_options(params("serve"), ENGINE_OPTIONS) == {"n_parallel": "auto"}
