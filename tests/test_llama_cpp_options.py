"""llama.cpp's options at the pinned commit: duo has them, takes them, or says which program has them."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from llama_cpp_table import ARGS, CHAT, IN_DUO, RUN, SERVE, TEXT, Run, options_of
from parsed_line import params
from sizes import mostly_daily

from duo import __version__
from duo._openmp import wait_policy
from duo.cli.docs import SHARES
from duo.cli.llama_cpp_options import IN_CHAT, IN_SERVE, OF_PROMPT, PROGRAM, SAYS_CHAT, WORK_OF_OTHERS
from duo.cli.llama_cpp_taken import OF_NAME, TAKEN, TakenOption
from duo.cli.main import COMMANDS as COMMANDS_OF_DUO
from duo.cli.main import command_named, main
from duo.cli.options import ModelCommand

LATER = {"--spec-autotune"}  # not at the pinned commit
# llama.cpp's names for what duo has as a command, or on another one.
COMMANDS = {"--usage", "--version", "--completion-bash"}


def test_every_option_has_one_class() -> None:
    for arg in ARGS:
        for name in arg["names"]:
            classes = [name in IN_DUO or name in COMMANDS, name in OF_NAME, name in PROGRAM, name in WORK_OF_OTHERS]
            others = {c for t in OF_NAME.get(name, ()) for c in t.commands}  # that take what one of duo's commands has
            both = name in IN_DUO and others and not any(name in options_of(c) for c in others)
            assert sum(classes) == (2 if both else 1), f"{name}: {classes}"
    known = {name for arg in ARGS for name in arg["names"]} | LATER
    assert known >= OF_NAME.keys() | PROGRAM.keys() | WORK_OF_OTHERS.keys()
    assert CHAT.keys() | OF_NAME.keys() >= IN_CHAT and not IN_CHAT & RUN.keys()
    assert {"-i", "--interactive"} == SAYS_CHAT - IN_CHAT and RUN.keys() - SERVE.keys() >= OF_PROMPT
    assert SERVE.keys() >= IN_SERVE and not IN_SERVE & (RUN.keys() | CHAT.keys())


def test_what_is_a_command_in_duo(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ((), ("run",), ("serve",), ("chat",)):
        assert main([*command, "--version"]) == 0 and capsys.readouterr().out == f"duo {__version__}\n"
        helps = []
        for name in ("--usage", "--help"):
            assert main([*command, name]) == 0
            helps.append(capsys.readouterr().out)
        assert helps[0] == helps[1] != ""
        assert main([*command, "--completion-bash"]) == 1
        assert "write: duo completion bash" in capsys.readouterr().err


def test_options_take_as_many_values_as_in_llama_cpp() -> None:
    takes = {name: arg["value"] for arg in ARGS for name in arg["names"]} | dict.fromkeys(LATER, False)
    for name, found in OF_NAME.items():
        assert {t.means is not None for t in found} == {takes[name]}, name
    for name in takes.keys() & IN_DUO.keys():
        assert takes[name] != IN_DUO[name].is_flag or name in ("-co", "--color"), name


@pytest.mark.parametrize(("name", "n_taken", "n_less", "n_all"), SHARES)
def test_most_options_of_the_programs_are_taken(name: str, n_taken: int, n_less: int, n_all: int) -> None:
    """Those that `duo serve`, `duo chat` and `duo` stand for. An option counts once, however many names it has."""
    program = name.removeprefix("llama-").upper()
    options = [arg["names"] for arg in ARGS if {"COMMON", program} & set(arg["programs"])]
    missing = [names for names in options if {*names} & (WORK_OF_OTHERS.keys() | PROGRAM.keys())]
    less = [names for names in options if any(t.kind == "less" for n in names for t in OF_NAME.get(n, ()))]
    counts = len(options) - len(missing), len(less), len(options)
    assert counts == (n_taken, n_less, n_all), "correct SHARES, which docs/cli.md quotes"
    assert n_taken - n_less >= 0.95 * n_all, f"missing: {missing}; without effect: {less}"


def test_classes_of_what_is_taken() -> None:
    for t in TAKEN:
        assert not t.loud or t.kind == "less", t.names
        assert not t.instead or t.kind == "means", t.names
    for name, t, value in values():
        if t.means is not None and value is not None and t.means(value):
            assert t.kind == "means", name


def values() -> Iterator[tuple[str, TakenOption, str | None]]:
    for t in TAKEN:
        for name in t.names:
            if t.means is None:
                yield name, t, None
            for value in ("0", "1", "-1", "on", "auto", "top_k;temperature", "kt") if t.means is not None else ():
                try:
                    t.means(value)
                except ValueError:
                    continue
                yield name, t, value
                break


COMMANDS_WITH_OPTIONS = [c for c in COMMANDS_OF_DUO if isinstance(command_named(c), ModelCommand)]


@pytest.mark.parametrize("command", mostly_daily(COMMANDS_WITH_OPTIONS, ["run", "serve"]))
def test_what_is_taken_can_be_given(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the command says that it does not know the option by the name that was typed."""
    monkeypatch.setattr(os, "setpriority", lambda *_: None)
    found = command_named(command)
    assert found is not None
    own = options_of(command)
    free = ["x"] * sum(p.required for p in found.params if isinstance(p, click.Argument))
    free += [word for p in found.params if isinstance(p, click.Option) and p.required for word in (p.opts[0], "x")]
    for name, taken, value in values():
        args = [name] if value is None else [name, value]
        joined = (
            value is not None and name.startswith("--") and command in ("run", "serve")
        )  # all commands split it alike
        for form in (args, [f"{name}={value}"]) if joined else (args,):
            if (taken.commands and command not in taken.commands) or (taken.needs and taken.needs not in own):
                if name not in own and not any(command in t.commands for t in OF_NAME[name]):
                    with pytest.raises(click.ClickException, match=f"^(unknown option )?{name}[ ;]"):
                        found.make_context(command, [*form, *free])
            else:
                with found.make_context(command, [*form, *free]) as ctx:
                    assert ctx.params.get("prompt") is None


def test_the_text_is_the_same_and_verbose_says_why(run: Run) -> None:
    plain = run(*TEXT)[1]
    flags = [t.names[0] for t in TAKEN if t.means is None and t.commands in ((), ("run",)) and not t.instead]
    code, text, err = run(*TEXT, *flags, "--cache-reuse", "5", "--poll", "50", "--rope-scale", "1")
    assert (code, text) == (0, plain) and "llama.cpp's" not in err
    code, text, err = run(*TEXT, "-v", "--jinja")
    assert (code, text) == (0, plain)
    assert "duo: llama.cpp's --jinja: chat templates are always jinja2\n" in err


def test_values_that_change_something_are_refused_with_what_is_possible(run: Run) -> None:
    for args, why in (
        (["--cache-reuse", "x"], "--cache-reuse x: it has to be a whole number"),
        (["--cache-reuse", "1.5"], "--cache-reuse 1.5: it has to be a whole number"),
        (["--log-colors", "maybe"], "--log-colors maybe: it has to be on, off or auto"),
        (["--spec_synth_len", "2"], "--spec-synth-len is not in duo: duo bench --synthetic pretends acceptance"),
        (["--poll=101"], "invalid value for '--poll': 101 is not in the range 0<=x<=100"),
        (["--poll-batch=101"], "--poll-batch 101: it has to be a whole number from 0 to 100"),
        (["--fit-ctx", "-1"], "fit_ctx (-fitc) is '-1'"),
        (["--rope-scale", "0"], "--rope-scale 0: it has to be a number above 0"),
        (["--samplers", "top_k;typical"], "(--samplers) is 'top_k;typical', but duo has no sampler 'typical'"),
        (["--sampling-seq", "tz"], "--sampling-seq tz: duo has no sampler 'z'"),
        (["-lv", "high"], "-lv high: it has to be a whole number"),
        (["--jinja=1"], "--jinja takes no value"),
        (["--adaptive-target", "1.5"], "adaptive_target (--adaptive-target) is '1.5'"),
        (["--rope-scale", "-2"], "--rope-scale -2: it has to be a number above 0"),
        (["--rope-scale", "inf"], "--rope-scale inf: it has to be a number above 0"),
        (["--no-skip-chat-parsing"], "--no-skip-chat-parsing is an option of duo chat"),
        (["--cache-reuse"], "--cache-reuse needs a value"),
    ):
        code, out, err = run("-p", "x", *args)
        assert code == 1 and out == "" and why in err and err.count("\n") == 1 and err.startswith("duo: ")
    code, _, err = run("chat", "--reasoning-budget", "-5")
    assert code == 1 and "reasoning_budget (--reasoning-budget) is '-5'" in err


def test_what_options_mean_in_duo() -> None:
    assert params("run", "--sampler-seq", "kt", "-p", "x")["samplers"] == "kt"
    assert params("run", "--rope-scale", "4", "-p", "x")["rope_freq_scale"] == "0.25"
    assert params("run", "-lv", "5", "-p", "x")["verbose"] and not params("run", "-lv", "3", "-p", "x")["verbose"]
    assert params("run", "--fit", "on", "-p", "x")["n_gpu_layers"] == "auto"
    assert params("run", "-ngl", "7", "--fit", "on", "-p", "x")["n_gpu_layers"] == "7"
    assert params("run", "-fit", "off", "-p", "x")["n_gpu_layers"] == "all"
    assert params("run", "-ngl", "7", "-fit", "off", "-p", "x")["n_gpu_layers"] == "7"
    assert params("chat", "--reasoning-budget", "0")["reasoning_budget"] == "0"
    assert params("chat", "--skip-chat-parsing")["reasoning_format"] == "none"
    assert params("run", "--draft", "4", "--spec-autotune")["n_draft"] == "auto"
    assert params("run", "--spec-default")["spec_type"] == "draft-simple,ngram-mod"
    fim = params("serve", "--fim-qwen-7b-spec")
    assert (fim["hf_file_draft"], fim["n_ctx"], fim["port"]) == ("qwen2.5-coder-0.5b-q8_0.gguf", "0", "8012")
    oss = params("chat", "--gpt-oss-20b-default", "-c", "4096")
    assert (oss["hf_repo"], oss["n_ctx"], oss["top_k"]) == ("ggml-org/gpt-oss-20b-GGUF", "4096", "0")
    assert params("run", "-p", "--top_k=my_var", "--top_k", "5")["prompt"] == "--top_k=my_var"  # values stay
    assert params("run", "-p", "x", "--top_k", "5")["top_k"] == "5"
    for remote, name in (("--draft-host", "n_gpu_layers_draft"), ("--verify-host", "n_gpu_layers")):
        p = params("run", remote, "h:1", "--fit", "on", "-p", "x")
        assert p[name] is None and p["n_gpu_layers" if "draft" in name else "n_gpu_layers_draft"] == "auto"


def test_options_of_a_run_in_a_chat(run: Run) -> None:
    chat = ("chat", "--chat-template", "chatml", "-n", "6", "--temp", "0", "-st", "-p", "Tell me a tale.")
    code, text, err = run(*chat, "--no-display-prompt")
    assert code == 0 and text and "tokens per second" not in err
    code, shown, err = run(*chat, "--display-prompt", "--show-timings")
    assert (code, shown) == (0, f"> Tell me a tale.\n{text}") and "target " in err
    assert params("chat", "-bf", "x")["file"] == Path("x")
    for command, name in (("chat", "--trace"), ("serve", "--no-display-prompt"), ("check", "-p")):
        assert run(command, name, "x")[2] == f"duo: {name} is an option of duo run; leave it out here\n"


@pytest.mark.parametrize("command", ["run", "chat", "serve"])
def test_lists_in_place_of_a_run(command: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duo.models.hub.repository.cached_models", lambda: ["a/b:Q8_0"])
    assert run(command, "--list-devices")[:2] == (0, "Available devices:\n")
    for name in ("-cl", "--cache-list"):
        assert run(command, name)[:2] == (0, "number of models in cache: 1\n   1. a/b:Q8_0\n")


def test_priority(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "setpriority", lambda *a: asked.append(a))
    params("run", "--prio", "2", "-p", "x")
    params("run", "--prio", "0", "-p", "x")
    assert asked == [(os.PRIO_PROCESS, 0, -10)]

    def refuse(*_: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "setpriority", refuse)
    code, text, err = run(*TEXT, "--prio", "3")
    assert code == 0 and text and "--prio 3 is not possible here (Permission denied)" in err


def test_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long idle threads wait awake, as OpenMP's libraries read it once."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    for given, found in (
        ([], ["active", "2000", "1"]),
        (["--poll", "50"], ["active", "2000", "1"]),
        (["--poll", "0"], ["passive", "0", "0"]),
        (["--poll", "100", "--poll-batch", "1"], ["active", "4000", "1"]),
    ):
        for name in names:
            monkeypatch.delenv(name, raising=False)
        params("run", *given, "-p", "x")
        wait_policy.set()
        assert [os.environ[name] for name in names] == found
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    params("run", "-p", "x")
    wait_policy.set()
    assert os.environ["GOMP_SPINCOUNT"] == "7"  # the user's


def test_options_of_conversations_and_servers_choose_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for args, command in (
        (["-cnv", "-p", "hi"], "chat"),
        (["--system_prompt", "x"], "chat"),
        (["--api_key", "k"], "serve"),
        (["-no-cnv", "-st", "-p", "hi"], "run"),
        (["-st", "--no-display-prompt", "-p", "hi"], "chat"),
        (["--stop", "--port", "-p", "hi"], "run"),
        (["--system-prompt=Be brief."], "chat"),
        (["--jinja", "--port", "8081"], "serve"),
        (["-sys", "x", "--alias", "y"], "serve"),
        (["-p", "--port"], "run"),
        (["-p", "hi", "--jinja"], "run"),
    ):
        found = command_named(command)
        assert found is not None
        ran: list[str] = []
        with monkeypatch.context() as m:
            for name in ("run", "chat", "serve"):
                other = command_named(name)
                assert other is not None
                m.setattr(other, "callback", lambda _name=name, _ran=ran, **_: _ran.append(_name))
            code = main(args)
        if command == "serve" and "-sys" in args:
            assert code == 1 and "-sys is an option of conversations; write: duo chat -sys" in capsys.readouterr().err
        else:
            assert (code, ran) == (0, [command]), args


def test_a_conversation_of_one_turn(run: Run, tmp_path: Path) -> None:
    chatml = ("--chat-template", "chatml", "-n", "6", "--temp", "0")
    code, typed, _ = run("chat", *chatml, stdin=b"Tell me a tale.\n")
    assert code == 0 and typed
    for args in (["-st", "-p", "Tell me a tale."], ["-st", "-p", "Tell me a\\x20tale.", "--jinja", "-cnv"]):
        assert run("chat", *chatml, *args, stdin=b"And another.\n")[:2] == (0, typed)
    code, two, _ = run("chat", *chatml, "-p", "Tell me a tale.", stdin=b"And another.\n")
    assert code == 0 and two.startswith(typed) and len(two) > len(typed)
    assert run("chat", *chatml, "-st", stdin=b"Tell me a tale.\nAnd another.\n")[:2] == (0, typed)
    assert typed.strip() in run("chat", *chatml, "-st", stdin=b"/help\nTell me a tale.\nAnd another.\n")[1]
    turn = tmp_path / "turn"
    turn.write_text("Tell me a tale.\n")
    assert run("chat", *chatml, "-st", "-f", turn)[:2] == (0, typed)
    assert "both -p and -f were given" in run("chat", "-p", "x", "-f", "y")[2]


def test_reasoning_is_a_variable_of_the_template(tmp_path: Path, run: Run) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{{ messages[0].content }}{% if enable_thinking is defined %} {{ enable_thinking }}{% endif %}")
    chat = ("chat", "--chat-template-file", template, "-n", "8", "--temp", "0", "-st", "-p", "Tell me")
    texts = [run(*chat)[1]]
    for value, given in (("on", "true"), ("off", "false")):
        texts.append(run(*chat, "--reasoning", value)[1])
        assert texts[-1] == run(*chat, "--chat-template-kwargs", f'{{"enable_thinking": {given}}}')[1]
    assert run(*chat, "--reasoning", "auto")[1] == texts[0] == texts[1] != texts[2]
    named = ("chat", "--chat-template", "chatml", *chat[3:])  # it has no variables
    assert run(*named, "--reasoning", "on")[:2] == run(*named)[:2]
    assert "may think in spite of --reasoning off" in run(*named, "--reasoning", "off")[2]
