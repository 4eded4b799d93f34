"""Options of llama.cpp's programs that need no option of duo's: they are so already, change nothing, or mean others.

The spellings are those of common/arg.cpp at the pinned commit. A test asks that each of its options is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from duo.cli.llama_cpp_presets import OF_PORT, OF_VECTORS, arguments
from duo.cli.llama_cpp_values import (
    Meaning,
    any_text,
    fit,
    integer,
    mmproj_url,
    model_url,
    number,
    only,
    rope_scale,
    samplers,
    verbosity,
)
from duo.cli.on_off import AUTO, OFF, ON

# means: it stands for options of duo. so: duo is like that anyway. less: what it asks for is not done.
Kind = Literal["means", "so", "less"]


@dataclass(frozen=True)
class TakenOption:
    """Options with the same meaning."""

    names: tuple[str, ...]
    why: str  # what duo does
    means: Meaning | None = None  # translates the value; None: the option takes none
    instead: tuple[str, ...] = ()  # duo's arguments for them, without a value
    commands: tuple[str, ...] = ()  # commands of duo that take the option; empty: all that have options of a run
    needs: str = ""  # an option that a command must have for this
    env: str = ""  # variable of the environment; its value is checked, too
    loud: bool = False  # of kind less, and more than speed may suffer: the note is shown without -v
    kind: Kind = "so"


_SAMPLING = "tokens are chosen on the CPU, which gives the same text"
_ROWS = "measured times decide which guesses are verified"
_QUIET = "llama.cpp's log is shown only with -v, and its lines are plain"
_FIT = "off means -ngl all -ngld all where they are not given; on is what duo does anyway"
_NO_VIDEO = "duo reads no videos"

TAKEN: tuple[TakenOption, ...] = (
    TakenOption(("--jinja",), "chat templates are always jinja2", env="LLAMA_ARG_JINJA"),
    TakenOption(("--no-jinja",), "chat templates are always jinja2, which gives the prompts of llama.cpp's own code"),
    TakenOption(
        ("-cb", "--cont-batching"), "texts share passes whenever several are written", env="LLAMA_ARG_CONT_BATCHING"
    ),
    TakenOption(
        ("-nocb", "--no-cont-batching"), "texts share passes whenever several are written; each stays as it is alone"
    ),
    TakenOption(("-kvu", "--kv-unified"), "all texts share one cache", env="LLAMA_ARG_KV_UNIFIED"),
    TakenOption(
        ("-no-kvu", "--no-kv-unified"), "all texts share one cache, so each has at least the share that it would have"
    ),
    TakenOption(
        ("--swa-full",),
        "the whole cache is always kept, so that a wrong guess can be taken back",
        env="LLAMA_ARG_SWA_FULL",
    ),
    TakenOption(
        ("--cache-idle-slots", "--no-cache-idle-slots"),
        "texts that wait keep their cache while there is room",
        env="LLAMA_ARG_CACHE_IDLE_SLOTS",
    ),
    TakenOption(
        ("--cache-reuse",),
        "what stands behind a change of the prompt is read again, so that its text is that of a new prompt",
        integer(),
        env="LLAMA_ARG_CACHE_REUSE",
        kind="less",
    ),
    TakenOption(("-sps", "--slot-prompt-similarity"), "a text goes where most of its prompt is cached", number()),
    TakenOption(
        ("-dt", "--defrag-thold"), "it has no effect in llama.cpp either", number(), env="LLAMA_ARG_DEFRAG_THOLD"
    ),
    TakenOption(("--warmup", "--no-warmup"), "loading tries one pass"),
    TakenOption(("-fit", "--fit"), _FIT, fit, needs="-ngl", env="LLAMA_ARG_FIT", kind="means"),
    TakenOption(
        ("-mu", "--model-url"),
        "it means -hf and -hff, or -m for other URLs",
        model_url,
        needs="-hf",
        env="LLAMA_ARG_MODEL_URL",
        kind="means",
    ),
    TakenOption(
        ("--kv-unified-per-slot",),
        "it means -c, which is the context of each text",
        lambda n: {"n_ctx": n},
        needs="-c",
        env="LLAMA_ARG_KV_UNIFIED_PER_SLOT",
        kind="means",
    ),
    TakenOption(
        ("-gan", "--grp-attn-n"),
        "duo has no group attention, so only 1 is taken",
        only("1"),
        env="LLAMA_ARG_GRP_ATTN_N",
    ),
    TakenOption(("-gaw", "--grp-attn-w"), "duo has no group attention", integer(), env="LLAMA_ARG_GRP_ATTN_W"),
    TakenOption(
        ("--poll-batch", "--poll-draft", "--poll-batch-draft", "--spec-draft-poll", "--spec-draft-poll-batch"),
        "OpenMP's libraries have one setting for all teams of a process, which is --poll",
        integer(0, 100, "a whole number from 0 to 100"),
        kind="less",
    ),
    TakenOption(("--threads-http",), "the server needs one thread for HTTP", integer(), env="LLAMA_ARG_THREADS_HTTP"),
    TakenOption(("-bs", "--backend-sampling"), _SAMPLING, env="LLAMA_ARG_BACKEND_SAMPLING"),
    TakenOption(
        ("--spec-draft-backend-sampling", "--no-spec-draft-backend-sampling"),
        _SAMPLING,
        env="LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING",
    ),
    TakenOption(
        ("--sampler-seq", "--sampling-seq"),
        "it means --samplers, which takes the letters, too",
        samplers,
        needs="--samplers",
        kind="means",
    ),
    TakenOption(
        ("--spec-draft-p-split", "--draft-p-split"),
        _ROWS,
        number(0, 1, "a number from 0 to 1"),
        env="LLAMA_ARG_SPEC_DRAFT_P_SPLIT",
    ),
    TakenOption(
        ("--rope-scale",),
        "it means --rope-freq-scale 1/N",
        rope_scale,
        needs="--rope-freq-scale",
        env="LLAMA_ARG_ROPE_SCALE",
        kind="means",
    ),
    TakenOption(("--perf", "--no-perf"), "the figures cost nothing", env="LLAMA_ARG_PERF"),
    TakenOption(
        ("--skip-chat-parsing",),
        "it means --reasoning-format none",
        instead=("--reasoning-format", "none"),
        commands=("chat",),
        kind="means",
    ),
    TakenOption(("--no-skip-chat-parsing",), "answers are parsed", commands=("chat",)),
    TakenOption(("--log-disable",), _QUIET),
    TakenOption(("--log-colors",), _QUIET, only(*AUTO, *ON, *OFF, words="on, off or auto"), env="LLAMA_ARG_LOG_COLORS"),
    TakenOption(("--log-verbose",), "it means -v", instead=("-v",), kind="means"),
    TakenOption(
        ("-lv", "--verbosity", "--log-verbosity"),
        "4 and 5 mean -v; below, " + _QUIET,
        verbosity,
        env="LLAMA_ARG_LOG_VERBOSITY",
        kind="means",
    ),
    TakenOption(("--verbose-prompt",), "duo run prints the prompt; elsewhere it does nothing"),
    TakenOption(("--simple-io",), "duo run reads nothing from a terminal", commands=("run",)),
    TakenOption(("-ptc", "--print-token-count"), "the figures on standard error count the tokens", integer()),
    TakenOption(("-if", "--interactive-first"), "duo chat waits for a turn first", commands=("chat",)),
    TakenOption(
        ("-mli", "--multiline-input"),
        "a pasted block is one turn, and Alt-Enter begins a line",
        commands=("chat", "run"),
    ),
    TakenOption(
        ("--no-mmproj-auto",), "it means --no-mmproj", instead=("--no-mmproj",), needs="--no-mmproj", kind="means"
    ),
    TakenOption(
        ("-mmu", "--mmproj-url"),
        "it means --mmproj",
        mmproj_url,
        needs="--mmproj",
        env="LLAMA_ARG_MMPROJ_URL",
        kind="means",
    ),
    TakenOption(("--video-ffmpeg-dir",), _NO_VIDEO, any_text, env="LLAMA_ARG_VIDEO_FFMPEG_DIR"),
    TakenOption(
        ("--mtmd-batch-max-tokens",),
        "pictures are encoded one by one",
        integer(),
        env="LLAMA_ARG_MTMD_BATCH_MAX_TOKENS",
    ),
    TakenOption(("--video-fps",), _NO_VIDEO, number(), env="LLAMA_ARG_VIDEO_FPS"),
    TakenOption(("--video-timestamp-interval",), _NO_VIDEO, number(), env="LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL"),
    TakenOption(
        ("--spec-default",),
        "it means --spec-type draft-simple,ngram-mod",
        instead=("--spec-type", "draft-simple,ngram-mod"),
        needs="--spec-type",
        kind="means",
    ),
    # Not at the pinned commit.
    TakenOption(
        ("--spec-autotune",), "it means --draft auto", instead=("--draft", "auto"), needs="--draft", kind="means"
    ),
    TakenOption(("--spec-ngram-mod-n-min",), _ROWS, integer(0, 1024, "a whole number from 0 to 1024")),
    TakenOption(("-no-ag", "--no-agent", "--no-ui-mcp-proxy", "--no-webui-mcp-proxy"), "the server's page has neither"),
    TakenOption(("-st", "--single-turn"), "duo run writes one text", commands=("run",)),
    TakenOption(("-no-cnv", "--no-conversation"), "duo run goes on from the prompt as it is", commands=("run",)),
    TakenOption(("-cnv", "--conversation", "-i", "--interactive"), "duo chat is a conversation", commands=("chat",)),
)


def _presets() -> Iterator[TakenOption]:
    for name in (*OF_PORT, *OF_VECTORS):
        for commands in (("serve",), ("run", "chat"))[: 2 if name in OF_PORT else 1]:
            args = arguments(name, serves=commands == ("serve",))
            yield TakenOption((name,), f"it means {' '.join(args)}", instead=args, commands=commands, kind="means")


TAKEN = (*TAKEN, *_presets())
OF_NAME: dict[str, list[TakenOption]] = {}
for _option in TAKEN:
    for _name in _option.names:
        OF_NAME.setdefault(_name, []).append(_option)
