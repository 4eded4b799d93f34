"""What a shell offers for a value: files, a choice's words, names of pairs."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from duo.errors import DuoError


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def by_metavar(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For FILE files, for on|off|auto those words; capitals stand for what only the user knows."""
    words = (param.metavar or "").split("|")
    if words == ["FILE"]:
        return files(ctx, param, incomplete)
    return [CompletionItem(w) for w in words if w == w.lower() and w.startswith(incomplete)]


def pair_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from duo.models.pairs import entries

    try:
        return [CompletionItem(name) for name in entries() if name.startswith(incomplete)]
    except DuoError:  # a mistake in the user's own list is told by the commands that read it
        return []
