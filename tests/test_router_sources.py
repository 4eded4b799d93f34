"""The models that a router knows, and what a file of presets says of them."""

from pathlib import Path

import pytest

from duo import BadValueError
from duo.cli.commands.serve import OF_ROUTER, env_of_models
from duo.cli.main import command_named
from duo.cli.repeated import Repeatable
from duo.cli.typed import spelled_by, typed_args
from duo.server.router.sources import known_models, of_folder, presets_of


def presets(folder: Path, text: str) -> dict[str, tuple[str, ...]]:
    file = folder / "models.ini"
    file.write_text(text)
    command = command_named("serve")
    assert command is not None
    return {name: p.args for name, p in presets_of(file, spelled_by(command, "serve", OF_ROUTER)).items()}


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"")


def test_a_folder_of_models(tmp_path: Path) -> None:
    touch(tmp_path / "b.gguf", tmp_path / "notes.txt", tmp_path / "mmproj-x.gguf", tmp_path / "mtp-b.gguf",
          tmp_path / "pair" / "8B.gguf", tmp_path / "pair" / "draft-1B.gguf", tmp_path / "pair" / "mmproj-F16.gguf",
          tmp_path / "pair" / "X-imatrix.gguf", tmp_path / "X-imatrix.gguf",
          tmp_path / "parts" / "m-00002-of-00002.gguf", tmp_path / "parts" / "m-00001-of-00002.gguf",
          tmp_path / "empty" / "readme.md")  # fmt: skip
    touch(tmp_path / "b.packed.gguf", tmp_path / "c-Q4_0.packed.gguf")
    found = {s.name: s.args for s in of_folder(tmp_path)}
    assert found == {
        "b": ("-m", str(tmp_path / "b.gguf")),
        "b.packed": ("-m", str(tmp_path / "b.packed.gguf")),
        "c-Q4_0": ("-m", str(tmp_path / "c-Q4_0.packed.gguf")),
        "pair": (
            *("-m", str(tmp_path / "pair" / "8B.gguf"), "-md", str(tmp_path / "pair" / "draft-1B.gguf")),
            *("--mmproj", "auto"),
        ),
        "parts": ("-m", str(tmp_path / "parts" / "m-00001-of-00002.gguf")),
    }
    with pytest.raises(BadValueError, match=r"no/such \(--models-dir\) is no folder"):
        of_folder(Path("no/such"))


def test_keys_of_presets_are_options(tmp_path: Path) -> None:
    text = """version = 1
; a comment
[*]
n-gpu-layers = 8
c = 8192
[my model]
model = /x/y=z.gguf
LLAMA_ARG_CACHE_RAM = 0
jinja = true
cont-batching = off
mmap = false
no-webui = true
chat_template = chatml
spec-draft-n-max = 3
fa = on
host = 0.0.0.0
load-on-startup = true
stop-timeout = 3
"""
    assert presets(tmp_path, text) == {
        "*": ("--n-gpu-layers", "8", "-c", "8192"),
        "my model": (
            "--model", "/x/y=z.gguf", "--cache-ram", "0", "--jinja", "--no-mmap", "--no-ui", "--chat-template",
            "chatml", "--spec-draft-n-max", "3", "-fa", "on",
        ),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a]\nno-such-thing = 1\n", r"\[a\] of .*models\.ini: no-such-thing is no option of duo serve"),
        ("[a]\nmmap = maybe\n", "mmap is 'maybe'; write true or false"),
        ("[a]\njust words\n", r"line 2 of .*models\.ini \(--models-preset\) is no option; write KEY = VALUE"),
        ("[a]\nmodel = x\nstop-timeout = soon\n", "stop-timeout is 'soon'; give seconds"),
        ("[a]\nc = 5\n", r"\[a\] \(--models-preset\) names no model; give model or hf-repo"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadValueError, match=words):
        presets(tmp_path, text)
        command = command_named("serve")
        assert command is not None
        known_models(folder=None, presets=presets_of(tmp_path / "models.ini", spelled_by(command, "serve")), cached=[],
                     own=[])  # fmt: skip


def test_variables_of_llama_cpp_as_keys(tmp_path: Path) -> None:
    keys = "LLAMA_ARG_NO_HOST = {}\nLLAMA_ARG_CACHE_REUSE = 256\nLLAMA_ARG_MMPROJ = x.gguf\n"
    keys += "LLAMA_ARG_YARN_ORIG_CTX = 4096\n"
    rest = ("--cache-reuse", "256", "--mmproj", "x.gguf", "--yarn-orig-ctx", "4096")
    assert presets(tmp_path, "[a]\n" + keys.format("true")) == {"a": ("--no-host", *rest)}
    assert presets(tmp_path, "[a]\n" + keys.format("0")) == {"a": ("--host-buffers", *rest)}


def test_a_negative_variable_as_a_key_is_the_option_itself_as_in_llama_cpp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """common/preset.cpp finds the option by both names, and reverses the value of neither."""
    for value, option in (("1", "-kvo"), ("false", "-nkvo")):
        keys = f"[a]\nLLAMA_ARG_NO_KV_OFFLOAD = {value}\nLLAMA_ARG_NO_CONT_BATCHING = 0\n"
        assert presets(tmp_path, keys) == {"a": (option,)}
        said = capsys.readouterr().err
        assert f"LLAMA_ARG_NO_KV_OFFLOAD = {value} in a preset means LLAMA_ARG_KV_OFFLOAD = {value}" in said
        assert "write no-kv-offload = true" in said and said.count("\n") == 1
    with pytest.raises(
        BadValueError, match="LLAMA_ARG_NO_CTX_SIZE is no option of duo serve; see duo serve --help-all"
    ):
        presets(tmp_path, "[a]\nLLAMA_ARG_NO_CTX_SIZE = 1\n")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad.ini").write_bytes(b"\xff\xfe\xff")
    for name, why in (("none.ini", "No such file"), ("bad.ini", "it is not UTF-8")):
        with pytest.raises(BadValueError, match=why):
            presets_of(tmp_path / name, lambda _key, _value: [])


def test_what_counts_most_comes_last(tmp_path: Path) -> None:
    touch(tmp_path / "m" / "m.gguf")
    command = command_named("serve")
    assert command is not None
    file = tmp_path / "models.ini"
    file.write_text("[*]\nc = 1\nload-on-startup = true\n[m]\nc = 2\n[user/repo:Q8_0]\nc = 3\n[other]\nhf-repo = a/b\n")
    found = known_models(
        folder=tmp_path, presets=presets_of(file, spelled_by(command, "serve")), cached=["user/cached:Q4_K_M"],
        own=["-c", "4"],
    )  # fmt: skip
    assert {name: s.args for name, s in found.items()} == {
        "user/cached:Q4_K_M": ("-hf", "user/cached:Q4_K_M", "--offline", "-c", "1", "-c", "4"),
        "m": ("-m", str(tmp_path / "m" / "m.gguf"), "-c", "1", "-c", "2", "-c", "4"),
        "user/repo:Q8_0": ("-hf", "user/repo:Q8_0", "-c", "1", "-c", "3", "-c", "4"),
        "other": ("-c", "1", "--hf-repo", "a/b", "-c", "4"),
    }
    assert all(s.on_startup for s in found.values())


def test_what_adds_up_on_a_command_line_does_not_from_one_place_to_the_next(tmp_path: Path) -> None:
    command = command_named("serve")
    assert command is not None
    file = tmp_path / "models.ini"
    file.write_text("[*]\nlora = a,b\nr = x\nc = 1\n[a/m]\nlora = c\nr = y\n[a/n]\nspec-type = none\n")
    with command.make_context("serve", ["--stop", "z", "-r", "zz"]) as ctx:
        own = typed_args(ctx, ())
    found = known_models(
        folder=None, presets=presets_of(file, spelled_by(command, "serve")), cached=[], own=own,
        repeatable={p.opts[-1] for p in command.params if isinstance(p, Repeatable)},
    )  # fmt: skip
    typed = ("--reverse-prompt", "z", "--reverse-prompt", "zz")
    assert {name: s.args for name, s in found.items()} == {
        "a/m": ("-hf", "a/m", "-c", "1", "--lora", "c", *typed),
        "a/n": ("-hf", "a/n", "--lora", "a,b", "-c", "1", "--spec-type", "none", *typed),
    }


def test_what_was_typed_goes_to_each_model() -> None:
    command = command_named("serve")
    assert command is not None
    typed = [
        "--port", "1", "-c", "99", "--no-mmap", "-fa", "--logit-bias", "5+1", "-l", "6+1", "--jinja",
        "--control-vector-layer-range", "1", "2", "--rope-scale", "2", "--reasoning", "auto", "--api-key", "secret",
        "--cache-prompt", "-v", "--lora", "a", "--lora", "b,c", "--stop", "x", "-r", "y",
    ]  # fmt: skip
    with command.make_context("serve", typed) as ctx:
        out = typed_args(ctx, ("port", "api_key"))
    with command.make_context("serve", list(out)) as again, command.make_context("serve", typed) as ctx:
        assert {k: v for k, v in again.params.items() if k not in ("port", "api_key")} == {
            k: v for k, v in ctx.params.items() if k not in ("port", "api_key")
        }
    assert "secret" not in out and "--port" not in out


def test_a_models_process_does_not_see_what_only_the_router_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODELS_DIR", "HOST", "MODEL", "CTX_SIZE", "API_PREFIX"):
        monkeypatch.setenv(f"LLAMA_ARG_{name}", "512")
    monkeypatch.setenv("LLAMA_API_KEY", "key")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    serve = command_named("serve")
    assert serve is not None
    ctx = serve.make_context("serve", ["-hft", "secret"])
    env = env_of_models(ctx.params)
    assert {n for n in env if n.startswith("LLAMA_")} == {"LLAMA_ARG_CTX_SIZE"} and env["HF_TOKEN"] == "secret"
    assert "secret" not in typed_args(ctx, (*OF_ROUTER, "hf_token"))


def test_what_only_the_router_does_is_left_out_however_it_is_spelled(tmp_path: Path) -> None:
    text = "[a]\nmodel = x\napi_key = k\nLLAMA_API_KEY = k\nLLAMA_ARG_PORT = 1\na = b\nno-models-autoload = true\n"
    assert presets(tmp_path, text) == {"a": ("--model", "x")}


def test_a_preset_hides_what_it_loads_from_the_cache(tmp_path: Path) -> None:
    """In lists alone: who names it may use it."""
    cached = ["u/draft:Q8_0", "u/m:F32", "u/other:F32", "u/two:F16", "u/two:F32"]
    command = command_named("serve")
    assert command is not None

    def hidden(text: str) -> list[str]:
        (tmp_path / "models.ini").write_text(text)
        read = presets_of(tmp_path / "models.ini", spelled_by(command, "serve", OF_ROUTER))
        found = known_models(folder=None, presets=read, cached=cached, own=[])
        assert set(cached) < found.keys()
        return [name for name, s in found.items() if s.is_hidden]

    models = "hf-repo = u/m\nspec-draft-hf = u/draft:q8_0\n"
    both = ["u/draft:Q8_0", "u/m:F32"]
    assert hidden(f"[a]\n{models}") == []
    assert hidden(f"[a]\n{models}dedup-cache-models = 1\n") == both
    assert hidden(f"[*]\ndedup-cache-models = true\n[a]\n{models}") == both
    assert hidden(f"[*]\ndedup-cache-models = 1\n[a]\n{models}dedup-cache-models = 0\n") == []
    assert hidden("[a]\nhf-repo = u/two\ndedup-cache-models = 1\n") == []
    assert hidden("[a]\nhf-repo = u/two:F16\ndedup-cache-models = 1\n") == ["u/two:F16"]
