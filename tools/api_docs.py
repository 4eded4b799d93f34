"""Generates docs/api.md from the docstrings, the signatures and the tables of options.

python tools/api_docs.py                       writes docs/api.md
python tools/api_docs.py --check               exit code 1 if the file is out of date
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from docstring_parser import DocstringMeta, DocstringParam, DocstringRaises, DocstringStyle, parse, parse_from_object
from type_text import type_text

import duo
from duo import errors
from duo.cli.docs import cell, row, up_to_date
from duo.cli.help_groups import TABLES
from duo.errors import DuoError
from duo.generation.recent_events import RecentEvents
from duo.generation.timings import DraftTimings, NetworkTimings, TextTimings
from duo.options.llama_cpp import ChatOptions, CompletionOptions, LlamaOptions, LoadOptions
from duo.options.option import Opt
from duo.options.serve import ServeOptions
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS, SERVE_OPTIONS, options_of
from duo.server import create_app
from duo.server.app import OF_ROUTER, OF_SERVER

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
HEAD = """# Python API

`make docs` generates this page from the code; CI checks that it is up to date. [python.md](python.md) shows how to use
the API, and [cli.md](cli.md) has the command-line spelling of each keyword.

Contexts, batches and limits are counted in tokens. Probabilities and shares are 0 to 1. Log-probabilities are in nats.
Times are in seconds, unless the name ends in `_ms` or `_us`.
"""
# Members of `Duo` by group.
GROUPS: dict[str, tuple[str, ...]] = {
    "Loading": ("from_pair", "from_pretrained", "close"),
    "Texts": ("generate", "stream", "generate_many", "agenerate", "astream"),
    "Tokens": ("tokenize", "detokenize", "decode"),
    "Caches": ("save_state", "load_state"),
    "Models": (
        "target", "draft", "local_model", "n_parallel", "placement", "timings", "lora_scales", "chat_template",
    ),
    "Completions and chats in llama_cpp's and OpenAI's shape": (
        "create_completion", "create_chat_completion", "create_chat_completion_openai_v1",
    ),
    "Embeddings, with `embedding=True`": (
        "embed", "create_embedding", "rerank", "vectors", "rank_tokens", "pooling_type",
    ),
    "Token by token, as llama_cpp.Llama": (
        "eval", "sample", "generate_tokens", "n_tokens", "input_ids", "eval_tokens", "eval_logits", "scores", "reset",
    ),
    "Other members of llama_cpp.Llama": (
        "n_ctx", "n_vocab", "n_embd", "n_batch", "n_threads", "n_threads_batch", "token_bos", "token_eos", "token_nl",
        "tokenizer", "tokenizer_", "metadata", "model_path", "draft_model", "chat_format", "chat_handler",
        "last_n_tokens_size", "set_seed", "set_cache", "longest_token_prefix", "logits_to_logprobs",
        "kv_overrides", "tensor_split", "numa", "spm_infill", "lora_base", "lora_path", "lora_scale",
    ),
}  # fmt: skip
# For duo's own modules, or llama_cpp's empty place.
INTERNAL = {
    "cache",
    "chat_prompt",
    "drawn_seed",
    "elsewhere",
    "embedder",
    "engine",
    "network",
    "ngrams_unasked",
    "placed",
    "profile_key",
    "session",
    "stop_vectors",
}
OF_STREAM = ("result", "close", "is_open", "n_cached", "slot", "poll", "take_ready", "cache_notes")
# Keywords that stand in a table, and not in the signature of each call.
IN_TABLES = {
    name for table in (LoadOptions, CompletionOptions, ChatOptions, ServeOptions) for name in options_of(table)
}
OLD_NAMES = [n for n, c in vars(errors).items() if isinstance(c, type) and n != c.__name__]

FLAGS = {
    "-m": "model",
    "-md": "draft",
    **{
        spelling: name
        for table in (SERVE_OPTIONS, ENGINE_OPTIONS, GENERATE_OPTIONS)
        for name, option in table.items()
        for flag in option.flags
        for spelling in flag.split("/")
        if spelling and not spelling.startswith("--no-")
    },
}


def of_python(help_text: str) -> str:
    """The help of an option, with keywords in place of flags."""
    return re.sub(
        r"(?<!duo pack )(?<![\w-])--?[a-zA-Z][\w-]*",
        lambda m: f"`{FLAGS[m[0]]}`" if m[0] in FLAGS else m[0],
        help_text,
    )


def keyword_table(table: type, options: Mapping[str, Opt]) -> str:
    """A row for each keyword."""
    hints = get_type_hints(table, include_extras=True)
    rows = ["| keyword | type | default | meaning |", "|---|---|---|---|"]
    for name, option in options.items():
        rows.append(row((f"`{name}`", type_text(hints[name]), f"`{option.default!r}`", of_python(option.help))))
    return "\n".join(rows) + "\n"


def signature(name: str, call: Callable[..., Any]) -> str:
    """As a caller writes it; keywords that stand in a table are `**options`."""
    shown: list[str] = []
    by_name = False
    parameters = [p for p in inspect.signature(call).parameters.values() if p.name not in ("self", "cls")]
    documented = {m.arg_name for m in metas(call, DocstringParam)}
    in_tables = {p.name for p in parameters if p.name in IN_TABLES - documented} if len(parameters) > 2 else set()
    for p in parameters:
        if p.kind is p.VAR_KEYWORD or p.name in in_tables:
            continue
        if p.kind is p.KEYWORD_ONLY and not by_name:
            shown.append("*")
            by_name = True
        name_shown = f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name
        shown.append(name_shown if p.default is p.empty else f"{p.name}={p.default!r}")
    if in_tables or any(p.kind is p.VAR_KEYWORD for p in parameters):
        shown.append("**options")
    back = inspect.signature(call).return_annotation
    arrow = "" if back in (inspect.Signature.empty, "None", None) or inspect.isclass(call) else f" -> {back}"
    return f"{name}({', '.join(shown)}){arrow}"


def metas(thing: object, kind: type[DocstringMeta]) -> list[Any]:
    """The parts of a docstring of one kind."""
    return [m for m in parse(inspect.getdoc(thing) or "", DocstringStyle.GOOGLE).meta if isinstance(m, kind)]


def about(thing: object) -> str:
    """What the docstring says before its sections."""
    found = parse(inspect.getdoc(thing) or "", DocstringStyle.GOOGLE)
    if not found.short_description:
        raise SystemExit(f"{thing} has no docstring")
    return "\n\n".join(filter(None, (found.short_description, found.long_description)))


def bullets(thing: object) -> str:
    """Arguments, attributes and errors of a docstring."""
    kinds = {"param": "", "attribute": "attribute "}
    rows = [f"* {kinds[m.args[0]]}`{m.arg_name}`: {m.description}" for m in metas(thing, DocstringParam)]
    rows += [f"* raises `{m.type_name}`: {m.description}" for m in metas(thing, DocstringRaises)]
    return "\n".join(" ".join(r.split()) for r in rows)


def call_section(level: int, name: str, call: Callable[..., Any]) -> str:
    parts = [f"{'#' * level} `{signature(name, call)}`", about(call), bullets(call)]
    return "\n\n".join(filter(None, parts)) + "\n"


def plain(member: object) -> Any:
    """The function behind a descriptor."""
    return getattr(member, "fget", None) or getattr(member, "__func__", member)


def members(owner: type, names: Sequence[str], prefix: str) -> Iterator[str]:
    """Calls with arguments or errors get a section; what one sentence describes stands in a table before them."""
    rows: list[str] = []
    sections: list[str] = []
    for name in names:
        member = inspect.getattr_static(owner, name)
        function = plain(member)
        title = f"{'duo.Duo.' if isinstance(member, classmethod) else prefix}{name}"
        if isinstance(member, property):
            errors_of = "".join(f" Raises {m.type_name}: {m.description}" for m in metas(function, DocstringRaises))
            rows.append(f"| `{title}` | {cell(about(function) + errors_of)} |")
        elif not bullets(function) and "\n" not in about(function):
            rows.append(f"| `{signature(title, function)}` | {cell(about(function))} |")
        else:
            sections.append(call_section(4, title, function))
    if rows:
        yield "\n".join(["| member | meaning |", "|---|---|", *rows]) + "\n"
    yield from sections


def fields(record: type) -> str:
    """A row for each field of a record, from the docstrings below its fields."""
    hints = record.__annotations__
    rows = ["| field | type | meaning |", "|---|---|---|"]
    said = {m.arg_name: m.description for m in parse_from_object(record).meta if isinstance(m, DocstringParam)}
    if missing := set(hints) - set(said):
        raise SystemExit(f"{record.__name__} does not say what {missing} are")
    for name, hint in hints.items():
        shown = hint if isinstance(hint, str) else hint.__forward_arg__  # its module postpones annotations
        rows.append(f"| `{name}` | `{cell(shown)}` | {cell(said[name] or '')} |")
    return "\n".join(rows) + "\n"


def keywords() -> Iterator[str]:
    """All keywords, in the groups of the command line's help."""
    yield "## Keywords of a model\n\n`Duo` takes them. They are fixed from load to close.\n"
    yield from _grouped(ENGINE_OPTIONS)
    yield "## Keywords of a text\n\nAll calls that write texts take them. In `Duo` they are defaults of all texts.\n"
    yield from _grouped(GENERATE_OPTIONS)
    yield "## llama_cpp's keywords\n\n### Of `Duo`\n"
    yield keyword_table(LlamaOptions, options_of(LlamaOptions))
    for title, table in (("create_completion", CompletionOptions), ("create_chat_completion", ChatOptions)):
        own = {n: o for n, o in options_of(table).items() if n not in GENERATE_OPTIONS}
        yield f"### Of `{title}`\n"
        yield keyword_table(table, own)


def _grouped(options: Mapping[str, Opt]) -> Iterator[str]:
    left = dict(options)
    for title, tables in TABLES:
        if found := {n: left.pop(n) for table in tables for n in options_of(table) if n in left}:
            yield f"### {title}\n"
            yield keyword_table(LoadOptions, found)
    if left:
        raise SystemExit(f"no group has {', '.join(left)}")


def errors_table() -> str:
    rows = ["| class | `code` | base | when |", "|---|---|---|---|"]
    for name, c in vars(errors).items():
        if name in OLD_NAMES or not isinstance(c, type) or not issubclass(c, DuoError):
            continue
        if c is DuoError or c.code != "internal":
            bases = ", ".join(f"`{b.__name__}`" for b in c.__bases__)
            rows.append(row((f"`duo.{name}`", f"`{c.code}`", bases, about(c))))
    return "\n".join(rows) + "\n"


def page() -> str:
    """The text of docs/api.md."""
    public = {n for n in dir(duo.Duo) if not n.startswith("_")}
    if odd := public ^ {*INTERNAL, *(n for names in GROUPS.values() for n in names)}:
        raise SystemExit(f"give these members of Duo a group in {Path(__file__).name}, or take them out: {odd}")
    parts = [HEAD, "## Functions\n", call_section(3, "duo.generate", duo.generate)]
    parts += [call_section(3, "duo.stream", duo.stream), "## Duo\n", call_section(3, "duo.Duo", duo.Duo)]
    for title, names in GROUPS.items():
        parts += [f"### {title}\n", *members(duo.Duo, names, "d.")]
    parts += [*keywords(), "## Results\n"]
    for record in (duo.Result, duo.Chunk, duo.TokenLogprobs):
        parts += [f"### `duo.{record.__name__}`\n\n{about(record)}\n", fields(record)]
    reasons = ", ".join(f'`"{r}"`' for r in duo.FinishReason.__args__)
    parts += [f"### `duo.FinishReason`\n\nOne of {reasons}.\n"]
    parts += [f"### `duo.Stream`\n\n{about(duo.Stream)}\n\n{bullets(duo.Stream)}\n"]
    parts += members(duo.Stream, OF_STREAM, "s.")
    parts += [f"### `duo.State`\n\n{about(duo.State)}\n", fields(duo.State)]
    parts += members(duo.State, ("n_tokens", "input_ids", "llama_state", "llama_state_size"), "state.")
    parts += [f"### `duo.Timings`\n\n{about(duo.Timings)}\n"]
    for table in (TextTimings, DraftTimings, NetworkTimings):
        parts += [f"{about(table)}\n", fields(table)]
    parts += ["### `duo.generation.recent_events.RecentEvents`\n", f"{about(RecentEvents)}\n"]
    parts += members(RecentEvents, ("look", "since", "wanted"), "events.")
    parts += ["## Errors\n", errors_table(), _old_names(), "## Server\n"]
    parts += [call_section(3, "duo.server.create_app", create_app)]
    left_out = (*OF_SERVER, *OF_ROUTER)
    parts += [keyword_table(ServeOptions, {n: o for n, o in SERVE_OPTIONS.items() if n not in left_out})]
    return "\n".join(p for p in parts if p)


def _old_names() -> str:
    names = ", ".join(f"`{old}`" for old in OLD_NAMES)
    return f"Names up to 0.2.0, which a later release removes: {names}.\n"


def main() -> int:
    text = page()
    for name in duo.__all__:
        if not re.search(rf"\b{name}\b", text) and name != "__version__":
            raise SystemExit(f"duo.{name} is public, and the page does not name it")
    if "--check" in sys.argv[1:]:
        return 0 if up_to_date(PAGE, text) else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
