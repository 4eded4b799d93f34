"""The rule of a grammar for the objects that a schema allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from duo.grammar.char_class import NOT_PLAIN, json_text, literal, ranges_of, united, written
from duo.grammar.impossible import ImpossibleError
from duo.grammar.merged_schema import Form
from duo.grammar.rules import COMMA, Rules


def object_rule(rules: Rules, form: Form, visit: Callable[[object], str]) -> str:
    """Its name. Raises ValueError. Required properties come first. An object with `properties` has no others, unless
    additionalProperties says so."""
    properties = dict(form.get("properties", {}))
    required = dict.fromkeys(form.get("required", ()))
    additional = form.get("additional", "properties" not in form)
    for name in required:
        if name in properties:
            continue
        if form.get("additional") is False:
            rules.not_enforced.add("required")
        else:
            properties[name] = form.get("additional", True)
    if not properties and additional in (True, {}):
        return rules.primitive("object")

    space = rules.primitive("space")
    pairs: dict[str, str] = {}
    for name, schema in properties.items():
        try:
            pairs[name] = rules.add("pair", f'{literal(json_text(name))} space ":" space {visit(schema)}')
        except ImpossibleError:
            if name in required:
                raise
    others = None
    with suppress(ImpossibleError):
        value = visit(additional)
        others = rules.add("pair", f'{_key_but(rules, properties)} ":" space {value}')
    first = f" {COMMA} ".join(pairs[name] for name in pairs if name in required)
    optional = _optional(rules, [pairs[name] for name in pairs if name not in required], others)
    if optional:
        # A rule by its name counts as one, however many rules it names: llama.cpp bounds those that are optional.
        optional = rules.add("optional", f"{COMMA} {optional}" if first else optional) + "?"
    body = " ".join(x for x in ('"{" space', first, optional, f'"}}" {space}') if x)
    return rules.add("object", body)


def _optional(rules: Rules, pairs: list[str], others: str | None) -> str:
    """One or more of these pairs, in this order, and then any number of others. Empty: there are none."""
    rest = "" if others is None else f"( {COMMA} {others} )*"
    firsts = [] if others is None else [f"{others} {rest}"]
    for pair in reversed(pairs):
        name = rules.add("rest", rest) if rest else ""
        firsts.append(f"{pair} {name}".rstrip())
        rest = f"( {COMMA} {pair} )? {name}".rstrip()
    firsts.reverse()
    return firsts[0] if len(firsts) == 1 else f"( {' | '.join(firsts)} )" if firsts else ""


def _key_but(rules: Rules, names: Iterable[str]) -> str:
    """The rule for names of properties other than these."""
    tree: dict[str, object] = {}
    for name in names:
        rules.read(len(name))
        node = tree
        for c in name:
            node = node.setdefault(json_text(c)[1:-1], {})  # type: ignore[assignment]
        node[""] = {}  # it ends here
    if not tree:
        return rules.primitive("string")
    return rules.string("key", _other_text(rules, tree))


def _other_text(rules: Rules, node: dict[str, object]) -> str:
    """What may come in a name after the characters that lead to this node. An escape may come only behind a character
    that none of the names has there, since each character can be written as one."""
    char = rules.primitive("char")
    if node.keys() == {""}:
        return f"{char}+"
    known = ranges_of("".join(c for c in node if len(c) == 1))
    ways = [f"[^{written(united([*NOT_PLAIN, *known]))[1:]} {char}*"]
    for c, inner in node.items():
        if c and isinstance(inner, dict):
            ways.append(f"{literal(c)} {_other_text(rules, inner)}")
    return f"({' | '.join(ways)})" + ("" if "" in node else "?")
