"""One option: its spelling outside Python, and the types that options share."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from duo.options.markers import AfterValidator, BeforeValidator, Field
from duo.support.wording import quoted

# The core's limits (duo::n_draft_cap, n_step_cap); written here so that the command line needs no libllama.
N_DRAFT_MAX, N_STEP_MAX = 64, 16
N_PARALLEL_MAX = 16
N_TREE_MAX = 63  # nodes; with the root a pass of 64 rows
N_RANK_MAX = 64

N_ACCEPT_TOP_MAX = 1000
N_WINDOW_MAX = 1 << 20  # tokens; as many as a host accepts of a text

Mode = Literal["plain", "sync", "async"]
AcceptRule = Literal["noise", "rejection", "typical", "top-n"]
SpecType = Literal[
    "none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark",
    "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod",
]  # fmt: skip
# llama.cpp's other kind, by one that finds the same passages in the text: duo has no cache files of n-grams.
SPEC_ALIASES = {"ngram-cache": "ngram-map-k4v"}
CpuKernels = Literal["auto", "duo", "stock"]
SplitMode = Literal["none", "layer", "row"]
LoadMode = Literal["auto", "none", "mmap", "mlock", "dio"]
KvType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]


# llama.cpp's other words (common/arg.cpp: is_truthy, is_falsey, is_autoy).
_SWITCH = {"enabled": "on", "true": "on", "1": "on", "disabled": "off", "false": "off", "0": "off", "-1": "auto"}


def _switch(value: Any) -> Any:
    return _SWITCH.get(value, value) if isinstance(value, str) else value


OnOffAuto = Annotated[Literal["on", "off", "auto"], BeforeValidator(_switch)]


def _integer_text(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(r"([+-]?[0-9]+)(\.0*)?", value.strip())  # pydantic reads '0-7' as -7
        if match is None:
            raise ValueError("input should be a whole number")
        return match[1]
    return value


Int = Annotated[int, BeforeValidator(_integer_text)]
AutoInt = Int | Literal["auto"]
Window = Annotated[Int, Field(ge=0, le=N_WINDOW_MAX)] | Literal["auto", "all"]
TextCount = Annotated[Int, Field(ge=1, le=N_PARALLEL_MAX)] | Literal["auto"]
LayerCount = Annotated[Int, Field(ge=-1, le=2**31 - 1)] | Literal["all", "auto"]

Count = Annotated[Int, Field(ge=1, le=2**31 - 1)]
Threads = Annotated[Int, Field(ge=1, le=512)]  # ggml aborts on more
Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=-1e4, le=1e4, allow_inf_nan=False)]


def _finite_bias(value: float) -> float:
    # -inf excludes a token. +inf and NaN would make the other logits meaningless.
    if not (abs(value) <= 1e9 or value == float("-inf")):
        raise ValueError("input should be -inf or a number between -1e9 and 1e9")
    return value


def _tree(value: Any) -> Any:
    """Accepts auto, chain, dynamic, or a list of paths, which may be JSON text."""
    if isinstance(value, str):
        if value in ("auto", "chain", "dynamic"):
            return value
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    paths = [list(p) for p in value] if isinstance(value, list | tuple) and all(map(_is_path, value)) else []
    if not paths:
        raise ValueError(
            f"input should be auto, chain, dynamic or paths of ranks (0 to {N_RANK_MAX - 1}) such as "
            "[[0],[1],[0,0],[0,1]]"
        )
    nodes: set[tuple[int, ...]] = set()
    for p in paths:
        nodes.update(tuple(p[:n]) for n in range(1, min(len(p), N_TREE_MAX + 1) + 1))
        if len(nodes) > N_TREE_MAX:
            raise ValueError(f"a tree can have at most {N_TREE_MAX} nodes, including the beginnings of its paths")
    return paths


def _is_path(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(x, int) and not isinstance(x, bool) and 0 <= x < N_RANK_MAX for x in value)
    )


def _spec_types(value: Any) -> Any:
    """Accepts a list, or comma-separated names as in llama.cpp.

    draft-simple means the draft that was loaded, whatever it is; the other names of drafts insist on a kind.
    """
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(f"input should be one or more of {', '.join(get_args(SpecType))}")
    names = list(dict.fromkeys(SPEC_ALIASES.get(n.strip(), n.strip()) for n in names))
    for n in names:
        if n not in get_args(SpecType):
            raise ValueError(f"{quoted(n)} is not one of {', '.join(get_args(SpecType))}")
    drafts = [n for n in names if n.startswith("draft-") and n != "draft-simple"]
    if len(drafts) > 1:
        raise ValueError("only one kind of draft can be used at a time")
    names = [n for n in names if n != "draft-simple" or not drafts]
    if len([n for n in names if n.startswith("ngram-")]) > 1:
        raise ValueError("only one kind of n-grams can be used at a time")
    if "none" in names and len(names) > 1:
        raise ValueError("none cannot be combined with others")
    return names


def _shares(value: Any) -> Any:
    """Accepts a list of numbers, or text such as "3,1" or "3/1", as llama.cpp does."""
    parts = re.split("[,/]", value) if isinstance(value, str) else value
    try:
        values = [float(x) for x in parts]
    except (TypeError, ValueError):
        values = []
    if not values or not all(0 <= x < 1e9 for x in values) or not any(values):
        raise ValueError("input should be a share for each device, such as 3,1")
    return values


Shares = Annotated[list[float], BeforeValidator(_shares)]


def _scales(value: Any) -> Any:
    try:
        values = [float(x) for x in value]
    except (TypeError, ValueError):
        values = []
    if not values or not all(abs(x) <= 1e6 for x in values):
        raise ValueError("input should be a list with a number for each LoRA adapter, such as [0.5, 1.0]")
    return values


Scales = Annotated[list[float], BeforeValidator(_scales)]


def _endpoints(value: Any) -> Any:
    """Accepts a list, or comma-separated text, of host:port. libggml resolves IPv4 addresses only."""
    values = value.split(",") if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not values or not all(isinstance(e, str) for e in values):
        raise ValueError("input should be host:port, or several of them separated by commas")
    values = [e.strip() for e in values]
    for e in values:
        host, _, port = e.rpartition(":")
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,253}", host) or not re.fullmatch(r"[0-9]{1,5}", port):
            raise ValueError(f"{e!r} is not host:port (a name or an IPv4 address, and a number)")
        if not 1 <= int(port) <= 65535:
            raise ValueError(f"the port in {e!r} is not between 1 and 65535")
    if len(set(values)) < len(values):
        raise ValueError("a server is given twice")
    return values


Endpoints = Annotated[list[str], BeforeValidator(_endpoints)]


def _path(value: Any) -> Any:
    value = os.fsdecode(value) if isinstance(value, os.PathLike) else value
    if isinstance(value, str):
        if not value or "\0" in value:
            raise ValueError("input should be the path of a file")
        try:
            os.fsencode(value)
        except UnicodeEncodeError:
            raise ValueError("it is not valid Unicode") from None
    return value


FilePath = Annotated[str, BeforeValidator(_path)]


def _gbnf(value: Any) -> Any:
    """Accepts text, or llama_cpp's LlamaGrammar, which holds the text."""
    value = getattr(value, "_grammar", value)
    if isinstance(value, str) and not value.strip():
        raise ValueError("a grammar needs at least a rule named root")
    return value


N_BREAKERS_MAX, N_BREAKER_BYTES_MAX = 64, 40


def _breakers(value: Any) -> Any:
    """Accepts a list of strings, or one."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(b, str) for b in values):
        raise ValueError("input should be a list of strings")
    if len(values) > N_BREAKERS_MAX:
        raise ValueError(f"there can be {N_BREAKERS_MAX} strings at most")
    for b in values:
        if not b or "\0" in b or len(b.encode("utf-8", "surrogatepass")) > N_BREAKER_BYTES_MAX:
            raise ValueError(f"{quoted(b)} is not a string of 1 to {N_BREAKER_BYTES_MAX} bytes without NUL")
        if any("\ud800" <= c <= "\udfff" for c in b):
            raise ValueError(f"{b!r} is not valid Unicode")
    return list(values)


Breakers = Annotated[list[str], BeforeValidator(_breakers)]


def _hook(value: Any) -> Any:
    """Accepts a function, or a list of them, as llama_cpp's LogitsProcessorList is."""
    several = value if isinstance(value, list | tuple) else [value]
    if value is not None and not all(map(callable, several)):
        raise ValueError("input should be a function, or a list of functions")
    return value


Gbnf = Annotated[str, BeforeValidator(_gbnf)]
Hook = Annotated[Any, BeforeValidator(_hook)]
DraftTree = Annotated[Any, BeforeValidator(_tree)]
SpecTypes = Annotated[list[str], BeforeValidator(_spec_types)]
Bias = Annotated[float, AfterValidator(_finite_bias)]


@dataclass(frozen=True)
class Opt:
    """How one option is spelt outside Python. Without `flags` it exists in Python only."""

    default: Any
    help: str
    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    metavar: str | None = None


def opt(default: Any, help: str, *flags: str, env: str = "", metavar: str | None = None) -> Opt:
    """env: names without LLAMA_ARG_, separated by spaces; the first one that is set counts."""
    return Opt(default, help, flags, tuple(f"LLAMA_ARG_{name}" for name in env.split()), metavar)
