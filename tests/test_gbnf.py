"""The reader of grammars reads what libllama reads, and nothing else."""

import random

import pytest

from duo import _core
from duo.grammar.gbnf import NeedsVocabulary, complaint
from duo.grammar.schema import schema_to_gbnf

GOOD = [
    'root ::= "a" | [a-z]+ ( "b" | foo )* # x\nfoo ::= [^"\\]\\n-]{2,3} .?\r\n\n',
    'root ::= ("a"{1,} "b"{0}) foo{0}\n foo::="\\x41\\u00e9\\U0001F438\\t"',
    'root ::=\n  "a"\nroot-2 ::= (\n"x" |\n "y"\n)+ root {3}',
    'root ::= <[5]> !<[6]> a0-b\na0-b ::= [] [\\]a] | "" ',
    schema_to_gbnf({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}),
]
PARTS = ["::=", "root", "{1,2}", "{0}", '"a"', "[a-z]", "{9}", *'()[]{}<>|*+?".^-\\#,:=!019axu_ \n\r\t\u00e9']


def mutated(text: str, r: random.Random) -> str:
    for _ in range(r.randint(1, 4)):
        at = r.randint(0, len(text))
        end = min(len(text), at + r.choice([0, 0, 1, 1, 5]))
        text = text[:at] + r.choice(["", *PARTS]) + text[end:]
    return text


@pytest.mark.parametrize("seed", range(8))
def test_duos_grammar_reader_agrees_with_libllama(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    """By what libllama's own reader complains of on standard error, which it does for what it cannot read."""
    r, n_bad = random.Random(seed), 0
    for _ in range(500):
        gbnf = mutated(r.choice(GOOD), r)
        if _core.grammar_too_large(gbnf) or not gbnf.strip():
            continue
        try:
            why = complaint(gbnf, None)
        except NeedsVocabulary:
            continue
        # libllama would count from there to the end of 64 bits, and take all memory.
        if "at least and" in why or "behind what may be empty" in why:
            continue
        _core.reads_grammar(gbnf)
        theirs = capfd.readouterr().err
        assert ("error parsing grammar" in theirs) == bool(why), (gbnf, why, theirs)
        n_bad += bool(why)
    assert 50 < n_bad < 480


def test_good_ones_and_limits() -> None:
    assert [complaint(g, None) for g in GOOD] == [""] * len(GOOD)
    assert complaint("root ::= " + "(" * 2400 + '"a"' + ")" * 2400, None) == ""
    assert "2000 at most" in complaint('root ::= "a"{2001}', None)
    assert "3 times at least and 1 at most" in complaint('root ::= "a"{3,1}', None)
    assert "1000000 at most can be read" in complaint('root ::= "' + "a" * 10_000 + '"{2000}', None)
    assert "more than 2000 rules" in complaint('root ::= "a"{100}{100}', None)
    assert complaint("root ::= " + " | ".join(f'"value {i}"' for i in range(5000)), None) == ""  # an enum
    assert complaint("root ::= <think>", lambda t: t == "<think>") == ""
    assert complaint("root ::= <thinks>", lambda t: t == "<think>") == "invalid token '<thinks>'"
    with pytest.raises(NeedsVocabulary):
        complaint("root ::= <think>", None)


def test_a_rule_that_begins_with_itself_unseen_by_libllama_is_refused() -> None:
    why = complaint('root ::= a root "c" | "d"\na ::= b\nb ::= "" | "x"', None)
    assert why == "a rule may begin with itself behind what may be empty"
    for gbnf in ("root ::= ([a-z]*)*", 'root ::= (a b)* "c"\na ::= [a-z]*\nb ::= "b"*'):  # the same places again
        assert complaint(gbnf, None) == "" and _core.reads_grammar(gbnf)


def nested(n_rules: int, begin: str) -> str:
    """Each rule begins with the next one, as `begin` says."""
    rules = [f"r{i} ::= {begin.format(f'r{i + 1}')}" for i in range(n_rules)]
    return "\n".join(["root ::= r0", *rules, f"r{n_rules} ::= {begin.format(chr(34) + 'a' + chr(34))}"])


@pytest.mark.parametrize("n_rules,begin,why", [
    (9, "{0} | {0} \"+\"", ""),  # what 10 levels of precedence look like
    (40, "{0} | {0} \"+\"", "begin with other rules in more than 30000000 ways"),
    (4000, "{0} | {0} \"+\"", "begin with other rules"),
    (2, "{0}? " * 10, ""),
    (2, "{0}? " * 60, "go on at too many places"),
    (2000, "{0} {0}", ""),
])  # fmt: skip
def test_what_would_take_libllama_hours_is_refused(n_rules: int, begin: str, why: str) -> None:
    """Its search for rules that begin with themselves is exponential, and so is the number of places to begin at."""
    for gbnf in (
        nested(n_rules, begin),
        nested(n_rules, begin).replace("::=", '::= "x"', 1),
    ):  # at the begin, and later
        said = complaint(gbnf, None)
        assert why in said and bool(why) == bool(said)
        if not why:
            assert _core.reads_grammar(gbnf)
