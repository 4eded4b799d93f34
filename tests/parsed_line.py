"""What a command makes of its arguments."""

import re
import shlex
from typing import Any

import click

from duo.cli.main import command_named, program


def params(command: str, *args: str) -> dict[str, Any]:
    found = command_named(command)
    assert found is not None
    with found.make_context(command, list(args)) as ctx:
        return ctx.params


def lines_of(page: str) -> list[str]:
    """The command lines of duo in a page's blocks, without comments; a line may go on after a backslash."""
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.S)).replace("\\\n", " ")
    lines = (shlex.split(line, comments=True) for line in blocks.splitlines() if line.startswith("duo "))
    return [shlex.join(words[:-1] if words[-1] == "&" else words) for words in lines]


def parse(line: str) -> None:
    """Reads a command line, whatever it names. Raises click.ClickException: it is not understood."""
    words = shlex.split(line)[1:]
    name = "run" if words[0].startswith("-") else words.pop(0)
    command = program.get_command(None, name)  # type: ignore[arg-type]
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert command is not None
    command.make_context(name, words).close()
