"""The rule of a grammar for the strings that match a pattern."""

from __future__ import annotations

from duo.grammar.char_class import in_string, json_text, literal
from duo.grammar.gbnf import N_REPEATED
from duo.grammar.impossible import ImpossibleError
from duo.grammar.pattern import (
    ANYTHING,
    Chars,
    Choice,
    Node,
    Repeat,
    Sequence,
    UnsupportedPatternError,
    branches,
    lengths,
)
from duo.grammar.rules import Rules


def pattern_rule(rules: Rules, pattern: str, least: int, most: int | None) -> str | None:
    """The name of the rule for strings of so many characters that match. None: any string matches, or none can be held
    to the pattern. Raises ValueError."""
    rules.read(len(pattern))
    try:
        found = branches(pattern)
        if Sequence((ANYTHING,)) in found:
            return None
        limited = [_limited(rules, branch, least, most) for branch in found]
        bodies = [_item(rules, branch) for branch in limited if branch is not None]
    except UnsupportedPatternError:
        rules.not_enforced.add("pattern")
        return None
    if not bodies:
        raise ImpossibleError(f"no string matches {pattern} and has the length that is asked for")
    return rules.string("pattern", _one_of(bodies))


def _limited(rules: Rules, branch: Sequence, least: int, most: int | None) -> Sequence | None:
    """A branch for strings of so many characters, if one part alone may be longer or shorter. None: there are none."""
    shortest, longest = lengths(branch)
    if shortest >= least and (most is None or (longest is not None and longest <= most)):
        return branch
    if (most is not None and most < shortest) or (longest is not None and longest < least):
        return None
    loose = [i for i, x in enumerate(branch.items) if len({*lengths(x)}) > 1]
    x = branch.items[loose[0]]
    if len(loose) > 1 or not isinstance(x, Repeat) or not isinstance(x.item, Chars):
        rules.not_enforced |= {"minLength"} if shortest < least else set()
        rules.not_enforced |= {"maxLength"} if most is not None and (longest is None or longest > most) else set()
        return branch
    others = shortest - x.least
    at_most = [n for n in (x.most, None if most is None else most - others) if n is not None]
    repeat = Repeat(x.item, max(x.least, least - others), min(at_most, default=None))
    return Sequence((*branch.items[: loose[0]], repeat, *branch.items[loose[0] + 1 :]))


def _item(rules: Rules, node: Node) -> str:
    """As an item of a rule: what a mark such as * can stand behind."""
    match node:
        case Chars(ranges):
            if ranges is None:
                return rules.primitive("char")
            if (text := _text(node)) is not None:
                return literal(text)
            ways = in_string(ranges)
            if not ways:
                raise UnsupportedPatternError
            return ways[0] if ways[0][0] == "[" and len(ways) == 1 else rules.add("class", " | ".join(ways))
        case Sequence(items):
            return _sequence(rules, items)
        case Choice(options):
            return _one_of([_item(rules, option) for option in options])
        case Repeat(item, least, most):
            return _repeat(rules, item, least, most)
    raise UnsupportedPatternError


def _one_of(bodies: list[str]) -> str:
    bodies = list(dict.fromkeys(bodies))
    return bodies[0] if len(bodies) == 1 else f"({' | '.join(bodies)})"


def _text(node: Node) -> str | None:
    """How JSON writes the one character that this is."""
    if isinstance(node, Chars) and node.ranges and len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
        return json_text(chr(node.ranges[0][0]))[1:-1]
    return None


def _sequence(rules: Rules, items: tuple[Node, ...]) -> str:
    parts: list[str] = []
    text = ""
    for x in items:
        if (more := _text(x)) is not None:
            text += more
            continue
        if text:
            parts.append(literal(text))
            text = ""
        parts.append(_item(rules, x))
    if text or not parts:
        parts.append(literal(text))
    return parts[0] if len(parts) == 1 else f"({' '.join(parts)})"


def _repeat(rules: Rules, item: Node, least: int, most: int | None) -> str:
    if most is not None and most > N_REPEATED:
        rules.not_enforced.add("pattern")
        most = None
    if most is None and lengths(item)[0] == 0:
        raise UnsupportedPatternError  # the rule would begin with itself
    body = _item(rules, item)
    if not isinstance(item, Chars):
        body = rules.add("part", body)
    return rules.repeated(body, least, most)
