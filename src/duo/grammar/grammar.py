"""Grammars (GBNF) that constrain a text, checked before any work begins."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from duo import _core
from duo.errors import BadValueError
from duo.grammar.gbnf import NeedsVocabulary, complaint
from duo.grammar.repetition import too_large
from duo.grammar.schema import schema_to_gbnf

if TYPE_CHECKING:
    from duo.options.generate import GenerateOptions

# A literal, a class or a comment. Each match ends at its closing mark or with the text, so the time is linear.
LITERAL = re.compile(r'"[^"\\]*(?:\\[\s\S][^"\\]*)*"?|\[[^\]\\]*(?:\\[\s\S][^\]\\]*)*\]?|\#.*')
ROOT = re.compile(r"(?m)^[ \t]*root[ \t]*::=")


def grammar_of(o: GenerateOptions) -> str:
    """The GBNF that constrains a text; empty if nothing does. Raises BadValueError."""
    if o["grammar"] is not None and o["json_schema"] is not None:
        raise BadValueError("both a grammar (--grammar) and a JSON schema (-j) were given; choose one")
    if o["json_schema"] is not None:
        return grammar_of_schema(o["json_schema"])
    return o["grammar"] or ""


def grammar_of_schema(schema: Any) -> str:
    """The GBNF of the JSON texts that a schema allows. Raises BadValueError."""
    grammar = schema_to_gbnf(schema)
    _check_made(grammar)
    return grammar


@lru_cache(maxsize=64)
def _complaint(gbnf: str) -> str:
    """What is wrong with a grammar, as far as is known without a vocabulary; empty if nothing is."""
    return _core.grammar_too_large(gbnf) or ("" if _names_tokens(gbnf) else _why_not(gbnf, None))


def _names_tokens(gbnf: str) -> bool:
    """Whether the grammar contains <tokens>, which need a vocabulary (llama.cpp's grammars/README.md)."""
    return "<" in LITERAL.sub("", gbnf)


def _why_not(gbnf: str, model: _core.Model | None) -> str:
    def is_token(text: str) -> bool:
        return model is not None and len(model.tokenize(text, False, True)) == 1

    try:
        if why := complaint(gbnf, None if model is None else is_token):
            return why
    except NeedsVocabulary:
        return ""  # it can be checked only with a model
    if _core.reads_grammar(gbnf) if model is None else model.reads_grammar(gbnf):
        return ""
    return "it has no rule named root" if not ROOT.search(gbnf) else "a rule begins with itself"


def _check_made(gbnf: str) -> None:
    """Checks a grammar made from a schema. The user never sees this grammar."""
    if _core.grammar_too_large(gbnf):
        raise too_large()
    if why := _complaint(gbnf):
        raise BadValueError(f"the JSON schema (-j) cannot be turned into a grammar: {why}; simplify it")


def check_grammar(gbnf: str, model: _core.Model | None = None) -> None:
    """Raises BadValueError if llama.cpp cannot parse it. A grammar with <tokens> is parsed only if there is a model."""
    if not gbnf:
        return
    if "\0" in gbnf:
        raise BadValueError("the grammar (--grammar) holds a NUL character; remove it")
    try:
        gbnf.encode("utf-8")
    except UnicodeEncodeError:
        raise BadValueError("the grammar (--grammar) is not valid Unicode; decode it as UTF-8") from None
    why = _complaint(gbnf)
    if not why and model is not None:
        why = _why_not(gbnf, model)
    if why:
        raise BadValueError(f"the grammar (--grammar) cannot be read: {why}; correct it")
