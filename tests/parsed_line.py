"""What a command makes of its arguments."""

from typing import Any

from duo.cli.main import command_named


def params(command: str, *args: str) -> dict[str, Any]:
    found = command_named(command)
    assert found is not None
    with found.make_context(command, list(args)) as ctx:
        return ctx.params
