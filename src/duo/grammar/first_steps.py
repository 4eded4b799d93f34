"""The work that libllama has with the rules of a grammar before the first character, counted before libllama does it.

It looks for rules that begin with themselves (llama_grammar_detect_left_recursion in src/llama-grammar.cpp), which
takes exponential time if rules begin with each other in several ways, and finds all places where a text may begin
(llama_grammar_advance_stack).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

NO_RULE, ALTERNATIVE = -1, -2  # elements of a rule that name no rule: a character or token, and the sign "|"
N_CALLS = 30_000_000  # of the search for such rules: a second
N_STACKS, N_PLACES = 50_000, 2_000_000  # stacks, and the places that all of them have
Rules = dict[int, list[int]]  # by number; other elements are the numbers of rules


def too_much(rules: Rules, root: int | None) -> str:
    """Why libllama would take too long; empty: it does not."""
    n_calls, repeats = _n_calls(rules)
    if n_calls > N_CALLS:
        return (
            f"rules begin with other rules in more than {N_CALLS} ways; write what several alternatives begin with once"
        )
    if root is not None and not repeats and _has_many_beginnings(rules, root):
        return (
            "a text may begin at too many places; use fewer optional items in a row, and fewer rules within each other"
        )
    return ""


def _may_be_empty(rule: list[int]) -> bool:
    """As libllama sees it: an alternative has no elements."""
    return (
        not rule
        or rule[0] == ALTERNATIVE
        or rule[-1] == ALTERNATIVE
        or any(a == b == ALTERNATIVE for a, b in pairwise(rule))
    )


def _n_calls(rules: Rules) -> tuple[int, bool]:
    """Calls of llama_grammar_detect_left_recursion, and whether it finds a rule that begins with itself."""
    empty = {number: _may_be_empty(rule) for number, rule in rules.items()}

    def begins_with(number: int) -> Iterator[int]:
        at_start = True
        for x in rules[number]:
            if x >= 0 and at_start:
                yield x
            at_start = x == ALTERNATIVE or (x >= 0 and at_start and empty[x])

    calls: dict[int, int] = {}  # of rules that were searched
    n_all = 0
    for first in sorted(rules):
        if first in calls:
            continue
        # Not recursive: rules may be nested deeper than Python's calls. Each entry has the calls so far.
        path, n = [(first, begins_with(first))], [1]
        within = {first}
        while path:
            number, rest = path[-1]
            named = next(rest, None)
            if named is None:
                path.pop()
                within.remove(number)
                calls[number] = n.pop()
                if n:
                    n[-1] += calls[number]
            elif named in within:
                return n_all + sum(n), True
            elif named in calls:
                n[-1] += calls[named]
            else:
                path.append((named, begins_with(named)))
                n.append(1)
                within.add(named)
        n_all += calls[first]
    return n_all, False


def _has_many_beginnings(rules: Rules, root: int) -> bool:
    """Whether llama_grammar_advance_stack makes more than N_STACKS stacks for the first character."""

    def beginnings(number: int) -> Iterator[int]:
        yield 0
        yield from (i + 1 for i, x in enumerate(rules[number]) if x == ALTERNATIVE)

    def place(number: int, i: int) -> tuple[tuple[int, int], ...]:
        rule = rules[number]
        return () if i == len(rule) or rule[i] == ALTERNATIVE else ((number, i),)

    todo = [place(root, i) for i in beginnings(root)]
    seen, n_places = set(), 0
    while todo:
        stack = todo.pop()
        if stack in seen:
            continue
        seen.add(stack)
        n_places += len(stack)
        if len(seen) > N_STACKS or n_places > N_PLACES:
            return True
        if stack and (named := rules[stack[-1][0]][stack[-1][1]]) >= 0:
            number, i = stack[-1]
            todo += [stack[:-1] + place(number, i + 1) + place(named, j) for j in beginnings(named)]
    return False
