"""What is said of an option that a command does not have."""

from __future__ import annotations

import re
from collections.abc import Collection

import click

from duo.cli.help_groups import HELP_ALL
from duo.cli.llama_cpp_line import commands_of, taken_by
from duo.cli.llama_cpp_options import IN_CHAT, IN_SERVE, OF_PROMPT, PROGRAM, WORK_OF_OTHERS
from duo.cli.llama_cpp_taken import OF_NAME
from duo.cli.nearest import nearest
from duo.cli.run_options import before_models, behind_texts
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS

_FLAGS = [flag for o in (*ENGINE_OPTIONS.values(), *GENERATE_OPTIONS.values()) for flag in o.flags]
_ITS_OWN = [p for p in (*before_models(), *behind_texts()) if isinstance(p, click.Option)]
OF_RUN = {name for flag in _FLAGS for name in re.split("[ /]+", flag)}
OF_RUN |= {name for p in _ITS_OWN for name in (*p.opts, *p.secondary_opts)}


def unknown_option(name: str, own_options: Collection[str], command: str) -> str:
    """The message for an option that this command does not have."""
    if name.startswith("--"):
        name = name.replace("_", "-")  # as in llama.cpp
    if name == "--completion-bash":
        return "--completion-bash is a command of duo; write: duo completion bash"
    if name in IN_CHAT:
        return f"{name} is an option of conversations; write: duo chat {name}"
    if name in IN_SERVE:
        return f"{name} is an option of the server; write: duo serve {name}"
    if name in OF_PROMPT and command == "serve":
        return f"{name} is an option of duo run; the server gets prompts from its clients, so leave it out"
    if commands := commands_of(name):
        return f"{name} is an option of {' and '.join(f'duo {c}' for c in commands)}; leave it out here"
    if name in PROGRAM:
        return f"{name} is an option of {PROGRAM[name]}; use that program, or leave it out"
    if name in WORK_OF_OTHERS:
        return f"{name} is not in duo: {WORK_OF_OTHERS[name]}; leave it out here"
    if name in OF_RUN:
        return f"{name} is an option of duo run; leave it out here"
    close = nearest(name, [*own_options, *(x for x in OF_NAME if taken_by(x, command, own_options))])
    how = HELP_ALL if HELP_ALL in own_options else "--help"
    return f"unknown option {name}; " + (f"did you mean {close}?" if close else f"see duo {command} {how}")
