"""The program as one types it: where the prompt comes from, what is printed where, files that it writes, exit codes."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import needs_kernels
from model_files import random_model
from sizes import mostly_daily
from terminals import rest_of, terminal

import duo
from duo import Chunk
from duo.benchmark.trace import read_models, read_trace
from duo.cli import show
from duo.cli.first_line import kernels_of
from duo.cli.main import COMMANDS, command_named, main
from duo.cli.options import ModelCommand
from duo.models.demo import demo_pair

TARGET, DRAFT = map(str, demo_pair())
PROMPT = "Once upon a time"
GREEDY = ["--temp", "0", "-n", "12", "--strict"]
GREEN, PLAIN = "\x1b[32m", "\x1b[0m"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def text() -> str:
    return duo.generate(PROMPT, n_ctx=512, temperature=0, max_tokens=12, strict=True).text


# ---- the prompt, and what comes of it


def test_a_prompt_from_everywhere(run: Run, text: str, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT + "\n")
    for source, stdin in (
        (["--prompt", PROMPT], b"not this"),
        (["--file", file], b""),
        ([], PROMPT.encode() + b"\n"),
    ):
        code, out, err = run(*GREEDY, *source, stdin=stdin)
        assert (code, out) == (0, PROMPT + text + "\n")
        assert err.startswith(f"duo: {Path(TARGET).name} [")
    assert run("run", *GREEDY, "-p", PROMPT)[1] == PROMPT + text + "\n"
    assert run(stdin=PROMPT.encode())[0] == 0  # without any argument


def test_escapes_in_a_prompt(run: Run) -> None:
    assert run(*GREEDY, "-p", r"a\tb\x41\n\"\\\q\xe2\x82\xac", "-n", "1")[1].startswith('a\tbA\n"\\\\q€')
    assert run(*GREEDY, "-p", r"a\tb", "--no-escape", "-n", "1")[1].startswith(r"a\tb")
    assert run(*GREEDY, "-p", "é\\é😀", "-n", "1")[1].startswith("é\\é😀")


@pytest.mark.parametrize(
    ("args", "stdin", "why"),
    [
        (["-p", ""], b"", "the prompt is empty"), ([], b"", "the prompt is empty"),
        ([], b"\xff\xfe", "standard input is not UTF-8 (byte 0)"), (["-p", "a", "-f", "b"], b"", "both"),
        (["-f", "no/such"], b"", "the prompt file no/such cannot be read (No"), (["-f", "/"], b"", "cannot be read"),
        (["-p", r"a\x00b"], b"", "NUL character at position 1"), ([], b"a\0b", "NUL character at position 1"),
        (["-p", r"\xff"], b"", "is not UTF-8"), (["-p", "a", "-r", ""], b"", "a stop string (-r) is empty"),
        (["-p", "a " * 100, "-c", 50], b"", "the prompt has 102 tokens and the context holds 50"),
        (["what"], b"", "unknown command what"), (["-p", "a", "b"], b"", "unexpected extra argument"),
        (["-p"], b"", "requires an argument"), (["-p", "a", "-md", DRAFT], b"", "a draft was given without a target"),
        (["-p", "a", "-m", "no.gguf"], b"", "there is no file no.gguf; check the path"),
        (["-p", "a", "-m", TARGET, "-md", "no.gguf"], b"", "there is no file no.gguf"),
        (["-p", "a", "-m", "demo"], b"", "no file demo (-m), but a pair has this name; give it as --pair demo"),
        (["-p", "a", "-m", TARGET, "-md", "me/X-GGUF:Q8_0"], b"", "or write -hfd me/X-GGUF:Q8_0 for a repository"),
        (["-p", "a", "--trace", "no/such/file"], b"", "the trace file no/such/file cannot be written"),
        (["-p", "a", "--trace", "/dev/full"], b"", "the trace file /dev/full cannot be written (No space left"),
        (["-p", "a", "--log-file", "no/such/file"], b"", "the log file no/such/file cannot be written"),
        (["-p", "a", "-dev", "CUDA7"], b"", "unknown device CUDA7"),
        (["-p", "a", "-Cr", "0-9999"], b"", "is not available to this process"),
        (["trace", "no.json"], b"", "no.json"),
        (["dev", "widen", "no.gguf", "-o", "x", "--size", "1M"], b"", "no.gguf"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_in_one_sentence(run: Run, args: list[Any], stdin: bytes, why: str) -> None:
    code, out, err = run(*args, stdin=stdin)
    assert code == 1
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("duo: ")
    assert why in err


def test_the_first_line_says_which_models_where_and_how(run: Run) -> None:
    first = lambda *args: run("-p", "a", "-n", 1, *args)[2].splitlines()[0]  # noqa: E731
    name, small = Path(TARGET).name, Path(DRAFT).name
    both = (
        rf"duo: {name} \[llama .*, 8 MB\] on CPU \(\d threads?, (duo|stock) kernels\) "
        rf"\+ draft {small} \[.*, 3 MB\] on CPU \(\d threads?, (duo|stock) kernels\); "
    )
    freely = r"async, draft length auto(, guesses from the draft and n-grams \(ngram-map-k\))?"  # with duo's kernels
    assert re.fullmatch(both + freely, first())
    assert re.fullmatch(both + freely, first("-m", TARGET, "-md", DRAFT))
    assert re.fullmatch(both + "sync, draft length 4; strict", first("--mode", "sync", "--draft", 4, "--strict"))
    assert first("--mode", "plain").endswith("; plain decoding: --mode plain")
    alone = first("-m", TARGET, "-t", 2, "--cpu-kernels", "stock")
    assert "on CPU (2 threads, stock kernels); plain decoding: no draft was given; give one (-md)" in alone
    assert small not in alone


@needs_kernels
def test_the_first_line_names_the_types_of_stock_kernels(run: Run, tmp_path: Path) -> None:
    """If they are most of the matrices, and guesses are made, what that means."""
    few = random_model(tmp_path / "few.gguf", "llama", lambda name: "nvfp4" if "attn_q" in name else "q8_0")
    most = random_model(tmp_path / "most.gguf", "llama", lambda name: "nvfp4" if "blk" in name else "q8_0")
    lines = lambda *args: run("-p", "a", "-n", 1, "-md", DRAFT, *args)[2].splitlines()  # noqa: E731
    first, second = lines("-m", few, "--cpu-kernels", "duo")[:2]
    assert "duo kernels for 13 of 15 matrices, stock for others (nvfp4))" in first and "nvfp4" not in second
    first, second = lines("-m", most, "--cpu-kernels", "duo")[:2]
    assert "duo kernels for 1 of 15 matrices, stock for others (nvfp4))" in first
    assert second.startswith("duo: stock kernels compute nvfp4: a pass that verifies several guesses takes nearly as")
    first, second = lines("-m", most, "--cpu-kernels", "stock", "--mode", "plain")[:2]
    assert "stock kernels, duo has none for nvfp4)" in first and "nvfp4" not in second


def test_the_first_line_names_no_type_in_memory_that_the_user_chose() -> None:
    m: Any = SimpleNamespace(n_duo_products=13, n_cpu_products=15, stock_types=[])
    assert kernels_of(m) == "duo kernels for 13 of 15 matrices"


def test_the_figures_and_their_json(run: Run, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run("-p", PROMPT, *GREEDY, "--mode", "sync", "--draft", 4, "--json")
    assert code == 0
    assert PROMPT not in err and out.count("\n") == 1
    figures = json.loads(out)
    assert figures["text"] == text
    assert figures["finish_reason"] == "length"
    assert figures["completion_tokens"] == figures["timings"]["predicted_n"] == 12
    assert figures["warning"] is None
    for name in ("tokens: 12 (length)", "speed: ", "time to first token: ", "acceptance: ", "mean accepted length: ",
                 "acceptance by position: ", "busy: target ", "draft time hidden: "):  # fmt: skip
        assert sum(line.startswith(name) for line in err.splitlines()) == 1, name
    _, out, err = run("-p", PROMPT, *GREEDY, "--json", "-m", TARGET, "-md", "none")
    assert not [k for k in json.loads(out)["timings"] if k.startswith("draft")]
    assert "acceptance" not in err
    code, out, err = run("run", "-i", "-p", PROMPT, "--json")
    assert (code, out) == (1, "") and "--json is for one text" in err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, out, err = run("-p", PROMPT, *GREEDY, "--json", "-co", "off")
    assert code == 0 and json.loads(out)["text"] == text and PROMPT + text in err  # who waits reads along


def test_options_reach_the_text(run: Run, text: str) -> None:
    assert run("-p", PROMPT, *GREEDY, "--no-display-prompt")[1] == text + "\n"
    assert run("-p", PROMPT, *GREEDY, "-r", text[8:12])[1] == PROMPT + text[:8] + "\n"
    assert run("-p", PROMPT, *GREEDY, "-r", "never", "-r", text[8:12], "-r", text[3:5])[1] == PROMPT + text[:3] + "\n"
    ban = duo.generate(PROMPT, n_ctx=512, temperature=0, max_tokens=1).tokens[0]
    assert run("-p", PROMPT, *GREEDY, "-l", f"{ban}-inf")[1] != PROMPT + text + "\n"
    seeded = [run("-p", PROMPT, "-n", 12, "-s", s, "--strict")[1] for s in (1, 1, 2)]
    assert seeded[0] == seeded[1] != seeded[2]


def test_stop_strings_are_read_like_the_prompt(run: Run) -> None:
    long = [*GREEDY, "-n", 200, "--no-display-prompt", "-p", PROMPT]
    whole = run(*long)[1]
    line = whole.partition("\n")[0]
    assert len(line) < len(whole) - 2
    assert run(*long, "-r", r"\n")[1] == line + "\n"
    assert run(*long, "-r", r"\n", "--no-escape")[1] == whole


# ---- colours


def test_green_is_exactly_what_the_draft_guessed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[tuple[str, bool]] = []
    show_chunk = show.TokenPrinter.__call__

    # Of the same run: whether the draft is ready for the very first token is a matter of timing.
    def record(self: show.TokenPrinter, chunk: Chunk) -> None:
        chunks.extend([(chunk.text, chunk.from_draft)] if chunk.text else [])
        show_chunk(self, chunk)

    monkeypatch.setattr(show.TokenPrinter, "__call__", record)
    args = ["-p", PROMPT, "--temp", 0, "-n", 60, "--mode", "sync", "--draft", 4, "--strict"]
    _, out, _ = run(*args, "-co", "on")
    assert {True, False} == {green for _, green in chunks}
    assert out.startswith(PROMPT)
    seen, green = [], False
    for part in re.split(f"({re.escape(GREEN)}|{re.escape(PLAIN)})", out.removeprefix(PROMPT).removesuffix("\n")):
        if part in (GREEN, PLAIN):
            green = part == GREEN
        else:
            seen += [(c, green) for c in part]
    assert seen == [(c, green) for text, green in chunks for c in text]
    assert not green  # the terminal is left as it was
    for off in ("off", "auto"):
        assert "\x1b" not in run(*args, "-co", off)[1]


@pytest.mark.full
@pytest.mark.parametrize(
    ("args", "env", "colored"),
    mostly_daily(
        [
            ([], {}, True), ([], {"NO_COLOR": "1"}, False), ([], {"TERM": "dumb"}, False), (["-co", "off"], {}, False),
            (["-co"], {"NO_COLOR": "1"}, True), (["--color", "on"], {"TERM": "dumb"}, True),
        ],
        [([], {}, True)],
    ),
)  # fmt: skip
def test_a_terminal_gets_colours_and_a_panel(args: list[str], env: dict[str, str], colored: bool) -> None:
    args = ["-p", PROMPT, "-n", "60", "--temp", "0", "--mode", "sync", "--draft", "4", *args]
    with terminal(*args, env=env) as child:
        code, shown = rest_of(child)
    assert code == 0
    assert (GREEN in shown) == colored
    assert "╭─ duo" in shown


# ---- files


def test_a_trace_that_duo_trace_reads(run: Run, tmp_path: Path) -> None:
    file, picture = tmp_path / "t.json", tmp_path / "t.svg"
    assert run("-p", PROMPT, "-n", 60, "--trace", file, "--mode", "sync", "--draft", 4)[0] == 0
    events = read_trace(file)
    assert read_models(file) == (Path(TARGET).name, Path(DRAFT).name)
    assert {e.lane for e in events} == {"target", "draft"}
    assert json.loads(file.read_text())
    code, out, _ = run("trace", file, "--json", "-o", picture)
    assert code == 0
    assert json.loads(out)["n_verifications"] == sum(e.kind == "verify" for e in events) > 10
    assert picture.stat().st_size > 1000
    assert "verifications" in run("trace", file)[1]
    assert run("-p", PROMPT, "-n", 9, "--trace", file, "-m", TARGET)[0] == 0
    assert {e.lane for e in read_trace(file)} == {"target"}


def test_the_log_goes_where_it_is_wanted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import llama_cpp  # noqa: F401 - it takes libllama's log for itself

    log = tmp_path / "log.txt"
    assert main(["-p", PROMPT, "-n", "2", "--log-file", str(log)]) == 0
    assert "llama_model_loader" in log.read_text()
    assert "llama_model_loader" not in capfd.readouterr().err
    assert main(["-p", PROMPT, "-n", "2", "-v"]) == 0
    assert "llama_model_loader" in capfd.readouterr().err
    assert main(["-p", PROMPT, "-n", "2"]) == 0
    assert "llama_model_loader" not in capfd.readouterr().err


def test_questions_that_need_no_model(run: Run) -> None:
    assert run("--list-devices")[1].startswith("Available devices:\n")
    shown = [x.partition(":")[0].strip() for x in run("--list-devices")[1].splitlines()[1:]]
    assert [d["name"] for d in json.loads(run("--list-devices", "--json")[1])["devices"]] == shown
    assert run("--version")[1] == f"duo {duo.__version__}\n"
    for args in (["-h"], ["--help"], ["run", "-h"], ["trace", "--help"], ["dev", "widen", "--help"]):
        code, out, _ = run(*args)
        assert code == 0
        assert out.startswith("Usage: duo")


def test_the_list_of_the_cache(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path))
    file = tmp_path / "models--user--repo" / "snapshots" / "1" / "tale-Q4_K_M.gguf"
    file.parent.mkdir(parents=True)
    file.touch()
    assert run("--cache-list")[1] == "number of models in cache: 1\n   1. user/repo:Q4_K_M\n"
    assert json.loads(run("--cache-list", "--json")[1]) == {"models": ["user/repo:Q4_K_M"]}


def test_the_help_lists_the_commands_and_the_common_options_first(run: Run) -> None:
    out = run("-h")[1]
    assert out == run("--help")[1] and out.startswith("Usage: duo [OPTIONS] COMMAND")
    listed = out.partition("\nCommands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "] == [*COMMANDS]
    assert "Common options:" in run("-m", "x.gguf", "--help")[1]
    for name in COMMANDS:
        command = command_named(name)
        if not isinstance(command, ModelCommand) or not command.common:
            continue
        brief, whole = run(name, "--help")[1], run(name, "--help-all")[1]
        ctx = command.make_context(name, [], resilient_parsing=True)
        options = [p for p in command.get_params(ctx) if p.get_help_record(ctx) is not None]
        begins = lambda text: re.findall(r"(?m)^  (?=-)(.+?)(?:  |$)", text.partition("Common options:")[2])  # noqa: E731
        records = [(p.get_help_record(ctx) or ("",))[0] for p in options]
        assert sorted(begins(whole)) == sorted(records), name
        common = begins(brief)
        assert len(common) == 22 and common == begins(whole)[:22]  # the twenty, and those of the help
        assert brief.endswith(f"{len(options) - 22} more options: duo {name} --help-all\n")
    assert "\nSampling, length and grammar:\n" in run("--help-all")[1]
