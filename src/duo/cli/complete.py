"""Shell completion of values: files, the words of a choice, names of pairs."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from duo.errors import DuoError


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def by_metavar(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For FILE and lists of them: files. For on|off|auto: those words.

    Words in capitals are placeholders and are not offered.
    """
    words = (param.metavar or "").split("|")
    if words[0] in ("FILE", "FILE,FILE", "FILE:SCALE,..."):
        return files(ctx, param, incomplete)
    return [CompletionItem(w) for w in words if w == w.lower() and w.startswith(incomplete)]


def pair_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from duo.models.pairs import entries

    try:
        return [CompletionItem(name) for name in entries() if name.startswith(incomplete)]
    except DuoError:  # commands that read the user's list report its errors
        return []
