"""The work that libllama has with the rules of a grammar, counted before libllama does it.

It looks for rules that begin with themselves (llama_grammar_detect_left_recursion in src/llama-grammar.cpp), which
takes exponential time if rules begin with each other in several ways. At the begin and after each character it finds
all places where a text may go on (llama_grammar_advance_stack); each is compared with all that were found before.
"""

from __future__ import annotations

from collections.abc import Iterator

NO_RULE, ALTERNATIVE = -1, -2  # elements of a rule that name no rule: a character or token, and the sign "|"
N_CALLS = 30_000_000  # of the search for such rules: a second
N_STEPS = 20_000  # from one place to the next characters: a second
Rules = dict[int, list[int]]  # by number; other elements are the numbers of rules
Parts = dict[int, list[list[int]]]  # their alternatives


def too_much(rules: Rules) -> str:
    """Why libllama would take too long; empty: it does not."""
    parts = {number: _alternatives(rule) for number, rule in rules.items()}
    n_calls, repeats = _n_calls(parts)
    if n_calls > N_CALLS:
        return (
            f"rules begin with other rules in more than {N_CALLS} ways; write what several alternatives begin with once"
        )
    return "" if repeats or not rules else _many_places(parts)


def _alternatives(rule: list[int]) -> list[list[int]]:
    found: list[list[int]] = [[]]
    for x in rule:
        if x == ALTERNATIVE:
            found.append([])
        else:
            found[-1].append(x)
    return found


def _begins_with(of: list[list[int]], empty: set[int]) -> Iterator[tuple[int, bool]]:
    """Rules that these alternatives may begin with, and whether each ends its own. empty: those that may write nothing,
    so that the next one is at the beginning, too."""
    for part in of:
        for i, x in enumerate(part):
            if x >= 0:
                yield x, i + 1 == len(part)
            if x not in empty:
                break


def _n_calls(parts: Parts) -> tuple[int, bool]:
    """Calls of llama_grammar_detect_left_recursion, and whether it finds a rule that begins with itself."""
    empty = {number for number, of in parts.items() if [] in of}  # as libllama sees it

    calls: dict[int, int] = {}  # of rules that were searched
    n_all = 0
    for first in sorted(parts):
        if first in calls:
            continue
        # Not recursive: rules may be nested deeper than Python's calls. Each entry has the calls so far.
        path, n = [(first, _begins_with(parts[first], empty))], [1]
        within = {first}
        while path:
            number, rest = path[-1]
            named, _ = next(rest, (None, False))
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
                path.append((named, _begins_with(parts[named], empty)))
                n.append(1)
                within.add(named)
        n_all += calls[first]
    return n_all, False


def _nullable(parts: Parts) -> set[int]:
    """Rules that may write nothing."""
    found = {number for number, of in parts.items() if [] in of}
    users: dict[int, list[tuple[int, int]]] = {}  # alternatives of rules alone, by the rules that they name
    left: dict[tuple[int, int], int] = {}  # how many of these may not be empty, as far as is known
    for number, of in parts.items():
        for i, part in enumerate(of):
            if part and min(part) >= 0:
                left[number, i] = len(part)
                for named in part:
                    users.setdefault(named, []).append((number, i))
    todo = list(found)
    while todo:
        for use in users.get(todo.pop(), ()):
            left[use] -= 1
            if left[use] == 0 and use[0] not in found:
                found.add(use[0])
                todo.append(use[0])
    return found


def _many_places(parts: Parts) -> str:
    """Why llama_grammar_advance_stack makes more than N_STEPS stacks somewhere; empty: it does not."""
    nullable = _nullable(parts)
    steps: dict[int, int] = {}  # of all that a rule may begin with

    def most(part: list[int]) -> tuple[int, int]:
        """Steps from the first element, and the most from any."""
        n = highest = 1
        for x in reversed(part):
            n = 1 if x < 0 else min(N_STEPS + 1, 1 + steps.get(x, 1) + (n if x in nullable else 0))
            highest = max(highest, n)
        return n, highest

    for first in parts:
        path, ends = ([first], [_begins_with(parts[first], nullable)]) if first not in steps else ([], [])
        places = {first: 0}  # in the path
        last: list[bool] = []  # whether each rule of the path but the first ends its alternative
        while path:
            named, is_last = next(((x, e) for x, e in ends[-1] if x not in steps), (None, False))
            if named is None:
                number = path.pop()
                del places[number]
                ends.pop()
                del last[-1:]
                steps[number] = min(N_STEPS + 1, sum(most(part)[0] for part in parts[number]))
            elif named not in places:
                places[named] = len(path)
                path.append(named)
                ends.append(_begins_with(parts[named], nullable))
                last.append(is_last)
            elif not (is_last and all(last[places[named] :])):  # otherwise the same stack comes again
                # libllama sees it only behind a rule that has an empty alternative.
                return "a rule may begin with itself behind what may be empty"
    if max(steps.values()) > N_STEPS or any(most(part)[1] > N_STEPS for of in parts.values() for part in of):
        return "a text may go on at too many places; use fewer optional items, and fewer rules within each other"
    return ""
