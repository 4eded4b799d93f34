"""Generates docs/cli.md from the program.

python -m duo.cli.docs > docs/cli.md
python -m duo.cli.docs --check docs/cli.md    exit code 1 if the file is out of date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from inspect import cleandoc
from pathlib import Path
from textwrap import fill

import click

from duo.cli.llama_cpp_options import PROGRAM, WORK_OF_OTHERS
from duo.cli.llama_cpp_taken import TAKEN
from duo.cli.main import program
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS

_PYTHON = {**ENGINE_OPTIONS, **GENERATE_OPTIONS}
HEAD = """# Command line

`make docs` generates this page from the program; CI checks that it is up to date. The last column names the keyword if
`Duo(...)` or `generate(...)` takes the same option. Exit codes: 0; 1 (an error, one line on standard error); 2 (`duo
prove` found a difference); 130 (Ctrl-C).
"""
CLASSES = (
    "Classes: `means`: the option stands for others of duo. `built in`: duo is like that anyway, or the option changes "
    "nothing in duo. `ignored`: what it asks for is not done; the text is right all the same."
)
_CLASS = {"means": "means", "so": "built in", "less": "ignored"}  # by TakenOption.kind
# llama.cpp's programs: options that duo has or takes, those among them of class `ignored`, and all at the pinned
# commit. A test counts them.
SHARES = (("llama-server", 251, 4, 259), ("llama-cli", 201, 3, 205), ("llama-completion", 163, 1, 163))


def cell(text: str) -> str:
    """Text of a table's cell. Marks such as <think> are code, because Markdown would take them for HTML."""
    return " ".join(re.sub(r"(?<!`)<[|\w]+>", r"`\g<0>`", text).replace("|", "\\|").split())


def row(cells: Iterable[str]) -> str:
    """Of a table."""
    return f"| {' | '.join(map(cell, cells))} |"


def up_to_date(path: Path, text: str) -> bool:
    """Whether the file has this text. Otherwise it says how to write it anew."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return True
    print(f"{path} is out of date; run: make docs", file=sys.stderr)
    return False


def _rows(command: click.Command) -> list[str]:
    rows = ["| option | meaning | environment | Python |", "|---|---|---|---|"]
    for p in command.params:
        if not isinstance(p, click.Option) or p.hidden:
            continue
        names = " ".join(f"`{o}`" for o in (*p.opts, *p.secondary_opts))
        value = "" if p.is_flag else f" *{p.metavar or p.type.name.upper()}*"
        names_env = [p.envvar] if isinstance(p.envvar, str) else p.envvar or []
        env = " ".join(f"`{e}`" for e in names_env)
        flags = {s for o in (_PYTHON.get(p.name or ""),) if o is not None for f in o.flags for s in f.split("/")}
        python = f"`{p.name}`" if flags & {*p.opts} else ""
        rows.append(row((names + value, p.help or "", env, python)))
    return rows


def _commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its name, each group before its own commands."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        yield prefix + name, command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix}{name} ")


def page() -> str:
    """The text of docs/cli.md."""
    parts = [HEAD]
    for name, command in _commands(program):
        usage = (
            "duo [OPTIONS]"
            if name == "run"
            else f"duo {name} " + " ".join(command.collect_usage_pieces(click.Context(command, info_name=name)))
        )
        text = cleandoc(command.help or "").replace("\b\n", "").replace("\\b\n", "")
        about, _, examples = text.partition("Examples:\n")
        about = re.sub(r"(?m)^Commands:\n((?:  .+\n)+)", r"Commands:\n\n```\n\1```\n", about)
        parts.append(f"## `{usage}`\n\n{about.strip()}\n")
        if examples:
            code, _, after = examples.partition("\n\n")
            block = "\n".join(line.strip() for line in code.splitlines())
            parts.append(f"```\n{block}\n```\n\n{after}".rstrip() + "\n")
        if any(isinstance(p, click.Option) and not p.hidden for p in command.params):
            parts.append("\n".join(_rows(command)) + "\n")
    return "\n".join([*parts, *_llama_cpp()])


def _llama_cpp() -> Iterator[str]:
    """What duo makes of options that only llama.cpp's programs have."""
    shares = [
        f"{n - n_less} of the {n_all} options of `{name}` ({100 * (n - n_less) / n_all:.0f}%; {n_less} more are taken "
        "without effect)"
        for name, n, n_less, n_all in SHARES
    ]
    yield """## llama.cpp's options

Options that duo shares with `llama-server`, `llama-cli` and `llama-completion` have the same names, in all their
spellings. These are taken, too, by the commands that have the options of a run (or those of the last column); `-v` says
what they mean.
"""
    counted = (
        f"duo does what {', '.join(shares[:-1])} and {shares[-1]} ask for, or is like that anyway; each is counted "
        "once, however it is spelled. Our aim is 95%."
    )
    yield fill(counted, 120) + "\n"
    name, n, n_less, n_all = SHARES[0]
    n_video = sum(t.names[0].startswith("--video-") for t in TAKEN)
    without = n - n_less - n_video
    videos = (
        f"Among those of `{name}` are {n_video} options for videos, which are of class `built in`: duo reads no "
        "videos, so they change nothing. Counting those as unsupported gives "
        f"{without} of {n_all} ({100 * without / n_all:.1f}%)."
    )
    yield fill(videos, 120) + "\n"
    yield fill(CLASSES, 120) + "\n"
    rows = ["| option | class | in duo | commands |", "|---|---|---|---|"]
    for t in TAKEN:
        names = " ".join(f"`{name}`" for name in t.names)
        commands = ", ".join(f"`duo {c}`" for c in t.commands)
        rows.append(f"| {names}{' *VALUE*' * (t.means is not None)} | {_CLASS[t.kind]} | {t.why} | {commands} |")
    yield "\n".join(rows) + "\n"
    yield "These end with an error, because they are the work of another program:\n"
    rows = ["| option | who does it |", "|---|---|"]
    for what in dict.fromkeys(WORK_OF_OTHERS.values()):
        rows.append(f"| {' '.join(f'`{x}`' for x, of in WORK_OF_OTHERS.items() if of == what)} | {what} |")
    yield "\n".join(rows) + "\n"
    programs = ", ".join(f"`{p}`" for p in sorted(set(PROGRAM.values())))
    yield f"Options of other programs end with an error that names the program: {programs}.\n"
    open_to_others = (
        "With `--host 0.0.0.0`, or another address that other machines can reach, and without `--api-key`, `duo serve` "
        "starts with a warning, as everybody who reaches the port can use the model; `--insecure` silences it. Behind "
        "a proxy that passes on its clients' name it needs `--allowed-hosts` or a key."
    )
    yield fill(open_to_others, 120) + "\n"


def main() -> int:
    if sys.argv[1:2] == ["--check"]:
        return 0 if up_to_date(Path(sys.argv[2]), page()) else 1
    sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
