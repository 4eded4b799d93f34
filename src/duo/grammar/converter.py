"""JSON schemas as grammars (GBNF). Each value that the grammar allows follows the schema, but for the keywords that are
not enforced; of the values that the schema allows, some have no place in the grammar."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from duo.grammar.arrays import array_rule
from duo.grammar.char_class import json_text, literal
from duo.grammar.enum_values import follows
from duo.grammar.impossible import ImpossibleError
from duo.grammar.merged_schema import Form, SchemaMerger, key_of
from duo.grammar.objects import object_rule
from duo.grammar.references import References
from duo.grammar.repetition import too_large
from duo.grammar.rules import Rules
from duo.grammar.strings import string_rule

N_BRANCHES = 20_000  # of several anyOf at once
N_BYTES = 20_000_000  # of all schemas, where each counts with all that are in it
N_VALUES = 1_000_000  # of all enums
# Keywords that tell the type of what has none.
HINTS: dict[str, set[str]] = {
    "object": {"properties", "additional", "required"},
    "array": {"prefix", "rest", "minItems", "maxItems"},
    "string": {"pattern", "format", "minLength", "maxLength"},
}


class SchemaConverter:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._rules = Rules()
        self._merger = SchemaMerger(References(root), self._rules.not_enforced)
        self._names: dict[str, str] = {}  # of rules, by the schemas' forms
        self._begun: dict[str, str] = {}  # of rules that are being made: a name, if they are used within themselves
        self._n_bytes = self._n_values = 0

    def grammar(self) -> str:
        """Raises ValueError and BadValueError."""
        # "{}" is how people ask for any object.
        wanted = {"type": "object"} if self._root == {} else self._root
        self._rules.define("root", self._visit(wanted))
        return self._rules.text()

    def not_enforced(self) -> set[str]:
        """Keywords that the grammar does not hold a text to, though it can hold it to others of the same name."""
        return self._rules.not_enforced

    def _visit(self, schema: Any) -> str:
        return self._rule(self._merger.form(schema))

    def _rule(self, form: Form) -> str:
        key = key_of(form)
        if key in self._names:
            return self._names[key]
        if key in self._begun:
            self._begun[key] = self._begun[key] or self._rules.new_name("again")
            return self._begun[key]
        self._n_bytes += len(key)
        if self._n_bytes > N_BYTES:
            raise too_large()
        self._begun[key] = ""
        n_names = len(self._names)
        try:
            name = self._made(form)
        except ImpossibleError:
            if again := self._begun.pop(key):
                self._rules.define(again, "[^\\x00-\\U0010FFFF]")
                for other in list(self._names)[n_names:]:  # it may lead there
                    del self._names[other]
            raise
        if again := self._begun.pop(key):
            self._rules.define(again, name)
        self._names[key] = name
        return name

    def _made(self, form: Form) -> str:
        if "alternatives" in form:
            return self._one_of_several(form)
        if "enum" in form:
            return self._enum(form)
        types = form.get("types") or [name for name, hints in HINTS.items() if hints & form.keys()]
        if not types and form.get("types") is None:
            return self._rules.primitive("value")
        return self._union([(self._typed, name, form) for name in types])

    def _typed(self, name: str, form: Form) -> str:
        if name == "object":
            return object_rule(self._rules, form, self._visit)
        if name == "array":
            return array_rule(self._rules, form, self._visit)
        return string_rule(self._rules, form) if name == "string" else self._rules.primitive(name)

    def _one_of_several(self, form: Form) -> str:
        """Each of the alternatives with what stands beside them."""
        beside = {key: value for key, value in form.items() if key != "alternatives"}
        if prod(map(len, form["alternatives"])) > N_BRANCHES:
            raise too_large()

        def merged(branches: tuple[Any, ...]) -> str:
            return self._rule(self._merger.merged([beside, *map(self._merger.form, branches)]))

        return self._union([(merged, branches) for branches in product(*form["alternatives"])])

    def _union(self, makers: list[Any]) -> str:
        """A rule for one of several, of which some may be impossible."""
        names: dict[str, None] = {}
        why: ImpossibleError | None = None
        for make, *arguments in makers:
            try:
                names[make(*arguments)] = None
            except ImpossibleError as e:
                why = why or e
        if not names:
            raise why or ImpossibleError("no type is allowed")
        return next(iter(names)) if len(names) == 1 else self._rules.add("any-of", " | ".join(names))

    def _enum(self, form: Form) -> str:
        self._n_values += len(form["enum"])
        if self._n_values > N_VALUES:
            raise too_large()
        beside = {key: value for key, value in form.items() if key != "enum"}
        values = [v for v in form["enum"] if follows(v, beside, self._merger)]
        if not values:
            raise ImpossibleError("no value of the enum follows the other keywords")
        return self._rules.add("enum", " | ".join(dict.fromkeys(literal(json_text(v)) for v in values)))
