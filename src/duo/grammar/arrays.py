"""The rule of a grammar for the arrays that a schema allows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from duo.grammar.impossible import ImpossibleError
from duo.grammar.merged_schema import Form
from duo.grammar.rules import COMMA, Rules


def array_rule(rules: Rules, form: Form, visit: Callable[[object], str]) -> str:
    """Its name. Raises ValueError. Without `items`, an array ends after its prefixItems, as an object does after its
    properties; without minItems it has all of them."""
    if not {"prefix", "rest", "minItems", "maxItems"} & form.keys():
        return rules.primitive("array")
    prefix = form.get("prefix", [])
    least, most = form.get("minItems", len(prefix)), form.get("maxItems")
    if most is not None and most < least and "minItems" in form:
        raise ImpossibleError(f"{least} items at least and {most} at most")
    least = least if most is None else min(least, most)
    is_open = "prefix" not in form or "rest" in form or least > len(prefix)

    items: list[str] = []
    for schema in prefix if most is None else prefix[:most]:
        try:
            items.append(visit(schema))
        except ImpossibleError:
            is_open = False
            break
    rest = None
    if is_open and (most is None or most > len(items)):
        with suppress(ImpossibleError):
            rest = visit(form.get("rest", True))
    if rest is None and least > len(items):
        if "minItems" in form:
            raise ImpossibleError(
                f"an array has {least} items at least, and no value can be the one after {len(items)}"
            )
        least = len(items)
    return rules.add("array", f'"[" space {_items(rules, items, rest, least, most)} "]" {rules.primitive("space")}')


def _items(rules: Rules, items: list[str], rest: str | None, least: int, most: int | None) -> str:
    tail = ""
    n = len(items)
    if rest is not None:
        n_most = None if most is None else most - n
        if n:
            tail = _more(rules, rest, max(0, least - n), n_most)
        else:
            tail = f"{rest} {_more(rules, rest, max(0, least - 1), None if n_most is None else n_most - 1)}".rstrip()
            tail = tail if least else f"{rules.add('items', tail)}?"
    for i in range(n - 1, -1, -1):
        tail = f"{f'{COMMA} ' if i else ''}{items[i]} {tail}".rstrip()
        if i >= least:
            tail = f"{rules.add('items', tail)}?"
    return tail


def _more(rules: Rules, item: str, least: int, most: int | None) -> str:
    return "" if most == 0 else rules.repeated(rules.add("item", f"{COMMA} {item}"), least, most)
