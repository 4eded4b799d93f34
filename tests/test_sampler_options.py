"""The options of DRY, XTC and the other samplers: names, bounds, and what they do to a text."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from prompts import PROMPTS

from duo import Duo, DuoError
from duo.models.demo import demo_pair
from duo.options.validate import generate_options

TARGET, DRAFT = demo_pair()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("typical_p", 1.5),
        ("typical_p", math.nan),
        ("top_n_sigma", -2),
        ("xtc_probability", -0.1),
        ("xtc_threshold", "much"),
        ("dynatemp_range", -1),
        ("dynatemp_exponent", math.inf),
        ("samplers", ["zzz"]),
        ("samplers", ["top_k"] * 33),
        ("mirostat", 3),
        ("mirostat_tau", -1),
        ("mirostat_eta", math.nan),
        ("adaptive_target", 1.5),
        ("adaptive_decay", 1.0),
        ("samplers", "kz"),
        ("samplers", 5),
        ("dry_multiplier", -1),
        ("dry_base", 0.5),
        ("dry_allowed_length", -1),
        ("dry_penalty_last_n", -2),
        ("dry_sequence_breakers", [""]),
        ("dry_sequence_breakers", ["x" * 41]),
        ("dry_sequence_breakers", ["a\0b"]),
        ("dry_sequence_breakers", ["\ud800"]),
        ("dry_sequence_breakers", ["x"] * 65),
        ("dry_sequence_breakers", 5),
    ],
)
def test_a_bad_value_is_one_sentence(name: str, value: Any) -> None:
    with pytest.raises(DuoError, match=rf"^{name} \(--[a-z-]+\) is .*; see duo run --help-all$") as e:
        generate_options({name: value})
    assert e.value.code == "bad_value"


def test_flags_are_llama_cpps(run: Callable[..., tuple[int, str, str]]) -> None:
    base = ["-m", str(TARGET), "-p", "The king had a cat. The king had a", "-n", "20", "-s", "3", "--temp", "1"]
    usual = run(*base)
    assert usual[0] == 0
    for flags in (
        ["--typical", "0.2"],
        ["--mirostat", "2", "--mirostat-ent", "2", "--mirostat-lr", "0.5"],
        ["--samplers", "temperature;top_k;top_p", "--top-k", "3"],
        ["--typical-p", "0.2"],
        ["--top-nsigma", "0.3"],
        ["--top-n-sigma", "0.3"],
        ["--xtc-probability", "1", "--xtc-threshold", "0.05"],
        ["--dynatemp-range", "0.9", "--dynatemp-exp", "0.3"],
        ["--dry-multiplier", "9", "--dry-base", "2", "--dry-allowed-length", "1", "--dry-penalty-last-n", "-1"],
    ):
        code, out, _ = run(*base, *flags)
        assert code == 0 and out != usual[1], flags
    assert run(*base, "--dry-base", "0.5")[0] == 1
    assert "mirostat (--mirostat) is '3'" in run(*base, "--mirostat", "3")[2]


def test_sequence_breakers_are_read_as_by_llama_cpp(run: Callable[..., tuple[int, str, str]]) -> None:
    from duo.cli.options import sequence_breakers

    assert sequence_breakers(("\\n", "x"), escape=True) == ["\n", "x"]
    assert sequence_breakers(("\\n",), escape=False) == ["\\n"]
    assert sequence_breakers(("x", "none", ":"), escape=True) == [":"]
    assert sequence_breakers(("none",), escape=True) == []
    base = ["-m", str(TARGET), "-p", "a dog: a dog: a dog:", "-n", "12", "--temp", "0", "--dry-multiplier", "9"]
    texts = {run(*base, *more)[1] for more in ([], ["--dry-sequence-breaker", "none"])}
    assert len(texts) == 2


def test_llama_cpps_typical_p_is_taken(strict_pair: Duo) -> None:
    o: dict[str, Any] = {"max_tokens": 20, "temperature": 1.0, "seed": 5}
    got = strict_pair.create_completion(PROMPTS[0], typical_p=0.3, **o)["choices"][0]["text"]
    assert got == strict_pair.generate(PROMPTS[0], typical_p=0.3, **o).text
    assert got != strict_pair.create_completion(PROMPTS[0], **o)["choices"][0]["text"]
    by_place = strict_pair.create_completion(PROMPTS[0], None, 20, 1.0, 0.95, 0.05, 0.3, seed=5)
    assert by_place["choices"][0]["text"] == got


@pytest.mark.parametrize("mode", ["plain", "sync", "async"])
def test_samplers_that_are_left_out_are_off(duo_pair: Duo, mode: Any) -> None:
    given: dict[str, Any] = {"temperature": 0.9, "top_k": 3, "top_p": 0.1, "min_p": 0.5, "repeat_penalty": 1.5}
    off: dict[str, Any] = {"top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    how: dict[str, Any] = {"max_tokens": 24, "seed": 5, "mode": mode, "ignore_eos": True}
    want = duo_pair.generate(PROMPTS[0], **how, **given | off).tokens
    for samplers in (["top_k", "temperature"], ["top-k", "temp"], "top_k;temperature", "kt"):
        assert duo_pair.generate(PROMPTS[0], **how, **given, samplers=samplers).tokens == want
    assert duo_pair.generate(PROMPTS[0], **how, **given, samplers="edskypmxt").tokens != want
    one = duo_pair.generate(PROMPTS[0], **how, samplers="top_k", top_k=1).tokens
    assert one == duo_pair.generate(PROMPTS[0], **how, temperature=0).tokens
