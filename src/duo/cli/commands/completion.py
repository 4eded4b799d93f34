"""`duo completion`: the shell completion of duo's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from duo.cli.complete import by_metavar
from duo.errors import BadValueError


@click.command("completion")
@click.argument("shell", metavar="bash|zsh|fish", shell_complete=by_metavar)
def completion(shell: str) -> None:
    """Print the shell completion for bash, zsh or fish.

    \b
    Examples:
      eval "$(duo completion bash)"        in ~/.bashrc
      eval "$(duo completion zsh)"         in ~/.zshrc
      duo completion fish > ~/.config/fish/completions/duo.fish
    """
    from duo.cli.main import program

    shell_class = get_completion_class(shell) if shell in ("bash", "zsh", "fish") else None
    if shell_class is None:
        raise BadValueError(f"no completion for {shell}; choose bash, zsh or fish")
    click.echo(shell_class(program, {}, "duo", "_DUO_COMPLETE").source())
