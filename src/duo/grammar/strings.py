"""The rule of a grammar for the strings that a schema allows."""

from __future__ import annotations

from duo.grammar.impossible import ImpossibleError
from duo.grammar.merged_schema import Form
from duo.grammar.pattern_rule import pattern_rule
from duo.grammar.rules import FORMATS, Rules


def string_rule(rules: Rules, form: Form) -> str:
    """Its name. Raises ValueError."""
    least, most = form.get("minLength", 0), form.get("maxLength")
    if most is not None and most < least:
        raise ImpossibleError(f"{least} characters at least and {most} at most")
    limits = {key for key in ("minLength", "maxLength") if key in form}
    if "pattern" in form and (name := pattern_rule(rules, form["pattern"], least, most)) is not None:
        rules.not_enforced |= {"format"} & form.keys()
        return name
    if "format" in form:
        rules.not_enforced |= limits
        return rules.primitive(FORMATS[form["format"]])
    if least == 0 and most is None:
        return rules.primitive("string")
    return rules.string("string", rules.repeated(rules.primitive("char"), least, most))
