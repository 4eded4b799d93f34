"""`duo pairs --for SIZE`: which pairs fit beside a GPU, and where their models lie."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from duo.cli.commands.run import command as run_command
from duo.errors import BadValueError
from duo.models.pairs import Entry, ModelRef, Pair
from duo.placement.pair_fit import bytes_of, fit, fits

pytestmark = pytest.mark.usefixtures("empty_lists")
Run = Callable[..., tuple[int, str, str]]


def entry(
    target: float | None, draft: float | None = 1.0, dense: float | None = None, *, name: str = "x", own: bool = False
) -> Entry:
    guesses = {"head": "mtp"} if own else {"draft": ModelRef(file="d.gguf", memory_gb=draft)}
    model = ModelRef(file="t.gguf", memory_gb=target, dense_gb=dense)
    return Entry(Pair.model_validate({"name": name, "target": model, **guesses}), Path(), False)


def test_a_pair_lies_where_it_fits() -> None:
    whole = fit(entry(9.0), 12.0)
    assert whole is not None and (whole.way, whole.device_gb, whole.host_gb) == ("whole", 10.0, 0.0)
    part = fit(entry(24.0), 12.0)
    assert part is not None and part.way == "partly" and part.options == "-ngl auto -ngld all"
    assert part.device_gb == 12.0 * 15 / 16, "a sixteenth of a small card stays free"
    assert part.device_gb + part.host_gb == pytest.approx(25.0)
    mixture = fit(entry(24.0, dense=3.0), 12.0)
    assert mixture is not None and mixture.way == "experts in RAM" and mixture.options == part.options
    assert (mixture.device_gb, mixture.host_gb, mixture.share) == (part.device_gb, part.host_gb, part.share)
    tight = fit(entry(500.0, dense=3.0), 12.0)
    assert tight is not None and tight.way == "experts in RAM", "however large the experts are"
    own = fit(entry(24.0, own=True), 80.0)
    assert own is not None and (own.device_gb, own.options) == (24.0, "-ngl all")


@pytest.mark.parametrize("e", [entry(12.0, 12.0), entry(500.0), entry(None), entry(9.0, None)])
def test_one_that_does_not_fit_or_has_no_figures_is_left_out(e: Entry) -> None:
    assert fit(e, 12.0) is None


def test_large_ones_that_fit_whole_come_first() -> None:
    known = [
        entry(30.0, name="part"),
        entry(1.5, name="small"),
        entry(9.0, name="large"),
        entry(40.0, dense=2.0, name="m"),
    ]
    assert [f.entry.pair.name for f in fits(known, 12.0)] == ["large", "small", "m", "part"]
    assert [f.entry.pair.name for f in fits(known, 12.0, 25.0)] == ["large", "small", "part"]


@pytest.mark.parametrize(
    ("text", "gib"),
    [("12G", 12.0), ("12", 12.0), ("8192M", 8.0), ("24 GB", 24.0), ("12GiB", 12.0), ("1.5t", 1536.0)],
)
def test_sizes_are_binary_as_on_the_boxes_of_gpus(text: str, gib: float) -> None:
    assert bytes_of(text, "--for") == gib * 2**30


@pytest.mark.parametrize("text", ["", "G", "12X", "-3G", "0G", "12G 3", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(BadValueError, match=r"--for is .* which is not an amount of memory; write it as 12G"):
        bytes_of(text, "--for")


def test_the_command_lists_them(run: Run) -> None:
    code, out, _ = run("pairs", "--for", "12G")
    rows = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert code == 0 and "all, 11.1 GB" in rows["qwen2.5-14b"] and "G is GiB" in out
    assert (
        "its own MTP layers" in rows["qwen3.6-35b-a3b"] and "all but some experts, 12.1 GB" in rows["qwen3.6-35b-a3b"]
    )
    assert "of the target and the draft" in rows["qwen3-32b"] and "llama-3-70b" not in rows
    assert "gpt-oss-120b" in rows and "gpt-oss-120b" not in run("pairs", "--for", "12G", "--ram", "32G")[1]


def test_json_has_the_options_that_place_them_so(run: Run) -> None:
    code, out, _ = run("pairs", "--for", "24G", "--json")
    found = {p["name"]: p["fit"] for p in json.loads(out)}
    assert (
        code == 0
        and found["qwen3.6-27b"]["placement"] == "whole"
        and found["glm-4.5-air"]["options"] == "-ngl auto"
        and found["gpt-oss-20b"]["options"] == "-ngl all --spec-type ngram-map-k"
    )
    assert found["qwen3.6-35b-a3b"]["device_gb"] > 22 and found["qwen3.6-35b-a3b"]["host_gb"] < 2
    for name, told in found.items():
        run_command.make_context("run", ["--pair", name, *shlex.split(told["options"])]).close()


def test_without_a_gpu_the_pairs_that_ram_holds(run: Run) -> None:
    code, out, _ = run("pairs", "--ram", "16G")
    rows = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert code == 0 and "on a GPU" not in out and "llama-3.3-70b" not in rows
    assert "mistral-small-3.1" not in rows, "16.4 GB and the system are more than 16 GiB"
    assert "11.0 GB" in rows["llama-3.1-8b"] and rows["llama-3.1-8b"].rstrip().endswith("-ngl 0 -ngld 0")
    found = {p["name"]: p["fit"] for p in json.loads(run("pairs", "--ram", "16G", "--json")[1])}
    assert found["gpt-oss-20b"]["placement"] == "CPU" and found["gpt-oss-20b"]["device_gb"] == 0
    assert found["gpt-oss-20b"]["options"] == "-ngl 0 --spec-type ngram-map-k"
    assert all(told["host_gb"] <= 14 * 2**30 / 1e9 for told in found.values())


def test_mistakes_are_one_sentence(run: Run) -> None:
    for option in ("--for", "--ram"):
        code, _, err = run("pairs", option, "much")
        assert code == 1 and err.startswith(f"duo: {option} is 'much', which is not an amount of memory")
    code, _, err = run("pairs", "--for", "1M")
    assert code == 1 and err == "duo: duo knows no pair for a GPU of 1M; duo pairs shows all of them\n"
    code, _, err = run("pairs", "--ram", "1M")
    assert code == 1 and "no pair for a machine without a GPU with 1M of RAM" in err
