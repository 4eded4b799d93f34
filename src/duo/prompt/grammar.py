"""Grammars (GBNF) that constrain a text, checked before any work begins."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from duo import _core
from duo.errors import BadValue
from duo.prompt.schema import schema_to_gbnf
from duo.support.wording import one_line

if TYPE_CHECKING:
    from duo.options.generate import GenerateOptions

_stderr = threading.Lock()


def grammar_of(o: GenerateOptions) -> str:
    """The GBNF that constrains a text; empty if nothing does. Raises BadValue."""
    if o["grammar"] is not None and o["json_schema"] is not None:
        raise BadValue("both a grammar (--grammar) and a JSON schema (-j) were given; choose one")
    if o["json_schema"] is not None:
        made = schema_to_gbnf(o["json_schema"])
        _check_made(made)
        return made
    return o["grammar"] or ""


def _said(read: Callable[[], bool]) -> tuple[bool, str]:
    """The result of `read`, and what it wrote to standard error, where llama.cpp's grammar parser reports mistakes."""
    with _stderr, tempfile.TemporaryFile() as said:
        try:
            kept = os.dup(2)
        except OSError:  # the process has no standard error
            return read(), ""
        try:
            os.dup2(said.fileno(), 2)
            ok = read()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        said.seek(0)
        text = said.read()
        if ok and text:
            os.write(2, text)  # from another thread
        return ok, text.decode("utf-8", "replace")


@lru_cache(maxsize=64)
def _complaint(gbnf: str) -> str:
    """What is wrong with a grammar, as far as is known without a vocabulary; empty if nothing is."""
    return _core.grammar_too_large(gbnf) or ("" if _names_tokens(gbnf) else _why_not(gbnf, None))


def _names_tokens(gbnf: str) -> bool:
    """Whether the grammar contains <tokens>, which need a vocabulary (llama.cpp's grammars/README.md)."""
    return "<" in re.sub(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\#.*', "", gbnf)


def _why_not(gbnf: str, model: _core.Model | None) -> str:
    ok, said = _said(lambda: _core.reads_grammar(gbnf) if model is None else model.reads_grammar(gbnf))
    if ok:
        return ""
    match = re.search(r"error parsing grammar: (.*?)\n\n", said, re.DOTALL)
    if match is None:
        return (
            "it has no rule named root" if not re.search(r"(?m)^\s*root\s*::=", gbnf) else "a rule begins with itself"
        )
    why = one_line(match[1], 200)
    return f"{why} its end" if why.endswith(" at") else why


def _check_made(gbnf: str) -> None:
    """Checks a grammar made from a schema. The user never sees this grammar."""
    if _core.grammar_too_large(gbnf):
        raise BadValue("the JSON schema (-j) makes a grammar that is too large; lower minLength, maxLength or maxItems")
    if why := _complaint(gbnf):
        raise BadValue(f"the JSON schema (-j) cannot be turned into a grammar: {why}; simplify it")


def check_grammar(gbnf: str, model: _core.Model | None = None) -> None:
    """Raises BadValue if llama.cpp cannot parse it. A grammar with <tokens> is parsed only if there is a model."""
    if not gbnf:
        return
    if "\0" in gbnf:
        raise BadValue("the grammar (--grammar) holds a NUL character; remove it")
    try:
        gbnf.encode("utf-8")
    except UnicodeEncodeError:
        raise BadValue("the grammar (--grammar) is not valid Unicode; decode it as UTF-8") from None
    why = _complaint(gbnf)
    if not why and model is not None:
        why = _why_not(gbnf, model)
    if why:
        raise BadValue(f"the grammar (--grammar) cannot be read: {why}; correct it")
