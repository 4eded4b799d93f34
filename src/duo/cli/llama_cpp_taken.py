"""Options of llama.cpp's programs that need no option of duo's: they are so already, change nothing, or mean others.

The spellings are those of common/arg.cpp at the pinned commit. A test asks that each of its options is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from duo.cli.llama_cpp_presets import OF_PORT, OF_VECTORS, arguments
from duo.cli.on_off import AUTO, OFF, ON

# What a value means: arguments of duo, or values of parameters that are not given. Raises ValueError.
Meaning = Callable[[str], list[str] | dict[str, str]]


@dataclass(frozen=True)
class Taken:
    """Options with the same meaning."""

    names: tuple[str, ...]
    why: str  # what duo does
    means: Meaning | None = None  # None: they take no value
    instead: tuple[str, ...] = ()  # duo's arguments for them, without a value
    commands: tuple[str, ...] = ()  # of duo that have them; empty: all that have options of a run
    needs: str = ""  # an option that a command must have for this
    env: str = ""  # variable of the environment, if its value means something
    loud: bool = False  # what duo does is said without -v, because it is less than llama.cpp does


def _only(*values: str, words: str = "") -> Meaning:
    """These values, which the words describe."""

    def check(value: str) -> list[str]:
        if value.lower() not in values:
            raise ValueError(f"it has to be {words}" if words else f"only {' or '.join(values)} is possible in duo")
        return []

    return check


def _number(least: float = -float("inf"), most: float = float("inf"), words: str = "a number") -> Meaning:
    """Any number in the range, which the words describe."""
    return _in_range(float, least, most, words)


def _whole(least: float = -float("inf"), most: float = float("inf"), words: str = "a whole number") -> Meaning:
    return _in_range(int, least, most, words)


def _in_range(kind: type[float], least: float, most: float, words: str) -> Meaning:
    def check(value: str) -> list[str]:
        try:
            if least <= kind(value) <= most:
                return []
        except ValueError:
            pass
        raise ValueError(f"it has to be {words}")

    return check


def _fit(value: str) -> dict[str, str]:
    if value not in (*ON, *OFF):
        raise ValueError("it has to be on or off")
    return dict.fromkeys(("n_gpu_layers", "n_gpu_layers_draft"), "auto" if value in ON else "all")


_OF_HUB = re.compile(r"https?://(?:huggingface\.co|hf\.co)/([^/?#]+/[^/?#]+)/(?:resolve|blob)/main/([^?#]+)(?:\?.*)?")


def _model_url(value: str) -> list[str]:
    if (found := _OF_HUB.fullmatch(value)) is None:
        raise ValueError("only files of huggingface.co (/USER/REPO/resolve/main/FILE) are possible in duo")
    return ["-hf", found[1], "-hff", unquote(found[2])]


def _rope_scale(value: str) -> list[str]:
    try:
        factor = float(value)
    except ValueError:
        factor = 0.0
    if not 0.0 < factor < float("inf"):
        raise ValueError("it has to be a number above 0")
    return ["--rope-freq-scale", repr(1.0 / factor)]


def _text(_value: str) -> list[str]:
    """Any text."""
    return []


def _samplers(value: str) -> list[str]:
    return ["--samplers", value]


def _verbosity(value: str) -> list[str]:
    if not re.fullmatch(r"-?\d+", value):
        raise ValueError("it has to be a whole number")
    return ["-v"] if int(value) >= 4 else []  # llama.cpp's 4 and 5: debugging


_MARKS = "duo chooses by itself which states of a model it keeps"
_WAITS = "duo's threads wait as OpenMP does"
_SAMPLING = "tokens are chosen on the CPU, which gives the same text"
_ROWS = "measured times decide which guesses are verified"
_QUIET = "llama.cpp's log is shown only with -v, and its lines are plain"
_FIT = "off means -ngl all -ngld all where they are not given; on is what duo does anyway"
_NO_IMAGES = "duo reads no images"
_ONE_TEAM = "prompts are read on the CPUs that generate (-C, -Cr, -Cd, -Crd)"
_DRAFT = ("", "-batch", "-draft", "-batch-draft")
_SPEC = ("", "-batch")


def _for_all(option: str) -> tuple[str, ...]:
    """An option of threads: of the target, of its prompts, and of the draft, in both spellings."""
    return (*(f"--{option}{x}" for x in _DRAFT), *(f"--spec-draft-{option}{x}" for x in _SPEC))


def _of_prompts(option: str, target: str, draft: str) -> tuple[str, ...]:
    """An option of the threads that read prompts: of the target, and of the draft."""
    return target, f"--{option}-batch", draft, f"--{option}-batch-draft", f"--spec-draft-{option}-batch"


TAKEN: tuple[Taken, ...] = (
    Taken(("--jinja",), "chat templates are always jinja2"),
    Taken(("--no-jinja",), "chat templates are always jinja2, which gives the prompts of llama.cpp's own code"),
    Taken(("-cb", "--cont-batching"), "texts share passes whenever several are written"),
    Taken(
        ("-nocb", "--no-cont-batching"), "texts share passes whenever several are written; each stays as it is alone"
    ),
    Taken(("-kvu", "--kv-unified"), "all texts share one cache"),
    Taken(
        ("-no-kvu", "--no-kv-unified"), "all texts share one cache, so each has at least the share that it would have"
    ),
    Taken(("--swa-full",), "the whole cache is always kept, so that a wrong guess can be taken back"),
    Taken(("--cache-idle-slots", "--no-cache-idle-slots"), "texts that wait keep their cache while there is room"),
    Taken(("--cache-reuse",), "only the beginnings of prompts are reused", _whole()),
    Taken(("-sps", "--slot-prompt-similarity"), "a text goes where most of its prompt is cached", _number()),
    Taken(("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints", "-cms", "--checkpoint-min-step"), _MARKS, _whole()),
    Taken(("-dt", "--defrag-thold"), "it has no effect in llama.cpp either", _number()),
    Taken(("--warmup", "--no-warmup"), "loading tries one pass"),
    Taken(("-fit", "--fit"), _FIT, _fit, needs="-ngl", env="LLAMA_ARG_FIT"),
    Taken(("-mu", "--model-url"), "it means -hf and -hff", _model_url, needs="-hf", env="LLAMA_ARG_MODEL_URL"),
    Taken(
        ("--kv-unified-per-slot",),
        "-c is the context of each text",
        lambda n: {"n_ctx": n},
        needs="-c",
        env="LLAMA_ARG_KV_UNIFIED_PER_SLOT",
    ),
    Taken(("-fitc", "--fit-ctx"), "a context is never made smaller than -c", _whole(0)),
    Taken(("-lzm", "--lazy-mode"), "libllama decides that, so only auto is taken", _only("auto")),
    Taken(("-gan", "--grp-attn-n"), "duo has no group attention, so only 1 is taken", _only("1")),
    Taken(("-gaw", "--grp-attn-w"), "duo has no group attention", _whole()),
    Taken(_for_all("poll"), _WAITS, _whole(0, 100, "a whole number from 0 to 100")),
    Taken(
        _for_all("prio")[1:],
        "all threads have the priority that --prio gives",
        _whole(-1, 3, "a whole number from -1 to 3"),
    ),
    Taken(_for_all("cpu-strict"), "threads may use any CPU of their mask, so only 0 is taken", _only("0")),
    Taken(_of_prompts("cpu-mask", "-Cb", "-Cbd"), _ONE_TEAM, _text, loud=True),
    Taken(_of_prompts("cpu-range", "-Crb", "-Crbd"), _ONE_TEAM, _text, loud=True),
    Taken(("--threads-http",), "the server needs one thread for HTTP", _whole()),
    Taken(("-bs", "--backend-sampling"), _SAMPLING),
    Taken(("--spec-draft-backend-sampling", "--no-spec-draft-backend-sampling"), _SAMPLING),
    Taken(
        ("--sampler-seq", "--sampling-seq"),
        "it means --samplers, which takes the letters, too",
        _samplers,
        needs="--samplers",
    ),
    Taken(("--spec-draft-p-split", "--draft-p-split"), _ROWS, _number(0, 1, "a number from 0 to 1")),
    Taken(
        ("--rope-scale",),
        "it means --rope-freq-scale 1/N",
        _rope_scale,
        needs="--rope-freq-scale",
        env="LLAMA_ARG_ROPE_SCALE",
    ),
    Taken(("--perf", "--no-perf"), "the figures cost nothing"),
    Taken(
        ("--skip-chat-parsing",),
        "it means --reasoning-format none",
        instead=("--reasoning-format", "none"),
        commands=("chat",),
    ),
    Taken(("--no-skip-chat-parsing",), "answers are parsed", commands=("chat",)),
    Taken(("--log-disable",), _QUIET),
    Taken(("--log-colors",), _QUIET, _only(*AUTO, *ON, *OFF, words="on, off or auto")),
    Taken(("--log-verbose",), "it means -v", instead=("-v",)),
    Taken(
        ("-lv", "--verbosity", "--log-verbosity"),
        "4 and 5 mean -v; below, " + _QUIET,
        _verbosity,
        env="LLAMA_ARG_LOG_VERBOSITY",
    ),
    Taken(("--verbose-prompt",), "duo run prints the prompt; elsewhere it does nothing"),
    Taken(("--simple-io",), "duo run reads nothing from a terminal", commands=("run",)),
    Taken(("-ptc", "--print-token-count"), "the figures on standard error count the tokens", _whole()),
    Taken(("-if", "--interactive-first"), "duo chat waits for a turn first", commands=("chat",)),
    Taken(
        ("-mli", "--multiline-input"),
        "a pasted block is one turn, and Alt-Enter begins a line",
        commands=("chat", "run"),
    ),
    Taken(("--no-mmproj", "--mmproj-auto", "--no-mmproj-auto", "--mmproj-offload", "--no-mmproj-offload"), _NO_IMAGES),
    Taken(("-mm", "--mmproj", "-mmu", "--mmproj-url"), _NO_IMAGES + ", so the model reads text only", _text, loud=True),
    Taken(("-mmdev", "--mmproj-device", "--media-path", "--video-ffmpeg-dir"), _NO_IMAGES, _text),
    Taken(("--image-min-tokens", "--image-max-tokens", "--mtmd-batch-max-tokens"), _NO_IMAGES, _whole()),
    Taken(("--video-fps", "--video-timestamp-interval"), _NO_IMAGES, _number()),
    Taken(
        ("--ui-config", "--webui-config", "--ui-config-file", "--webui-config-file"),
        "the server's page has no settings",
        _text,
        commands=("serve",),
        loud=True,
    ),
    Taken(
        ("--spec-default",),
        "it means --spec-type draft-simple,ngram-mod",
        instead=("--spec-type", "draft-simple,ngram-mod"),
        needs="--spec-type",
    ),
    Taken(("--spec-ngram-mod-n-min",), _ROWS, _whole(0, 1024, "a whole number from 0 to 1024")),
    Taken(("-no-ag", "--no-agent", "--no-ui-mcp-proxy", "--no-webui-mcp-proxy"), "the server's page has neither"),
    Taken(("-st", "--single-turn"), "duo run writes one text", commands=("run",)),
    Taken(("-no-cnv", "--no-conversation"), "duo run goes on from the prompt as it is", commands=("run",)),
    Taken(("-cnv", "--conversation", "-i", "--interactive"), "duo chat is a conversation", commands=("chat",)),
)


def _presets() -> Iterator[Taken]:
    for name in (*OF_PORT, *OF_VECTORS):
        for commands in (("serve",), ("run", "chat"))[: 2 if name in OF_PORT else 1]:
            args = arguments(name, serves=commands == ("serve",))
            yield Taken((name,), f"it means {' '.join(args)}", instead=args, commands=commands)


TAKEN = (*TAKEN, *_presets())
OF_NAME: dict[str, list[Taken]] = {}
for _taken in TAKEN:
    for _name in _taken.names:
        OF_NAME.setdefault(_name, []).append(_taken)
