"""llama.cpp's options as the pinned commit has them, and duo's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from duo.cli.main import command_named

ARGS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "llama_cpp_args.json").read_text())


TEXT = ("-p", "once upon a time", "-n", "8", "--temp", "0")


Run = Callable[..., tuple[int, str, str]]


def options_of(command: str) -> dict[str, click.Option]:
    found = command_named(command)
    assert found is not None
    own = {s: p for p in found.params if isinstance(p, click.Option) for s in (*p.opts, *p.secondary_opts)}
    return own | dict.fromkeys(("-h", "--help"), click.Option(["-h"], is_flag=True))


RUN, CHAT, SERVE = map(options_of, ("run", "chat", "serve"))


IN_DUO = RUN | CHAT | SERVE
