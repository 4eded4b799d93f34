"""Chat templates in jinja2, in the environment of transformers, which they are written for.

Only duo.chat.chat_template imports this, and only for such a template: importing jinja2 takes 30 ms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateSyntaxError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from duo.errors import BadValueError
from duo.support.wording import one_line

N_REASON = 200  # characters of a reason that a message quotes


class Refused(Exception):  # noqa: N818 - the template refuses; nothing has failed
    """A template called raise_exception."""


class Generation(Extension):
    """{% generation %} marks answers for training. It has no meaning here."""

    tags = {"generation"}  # noqa: RUF012 - an instance variable of the parent

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: object) -> NoReturn:
    raise Refused(str(message))


def _tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes <, > and & for HTML. map and others give generators.
    x = list(x) if isinstance(x, Iterator) else x
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Environment(ImmutableSandboxedEnvironment):
    """As transformers', but a missing value beside text in a sum is no text, as in llama.cpp (jinja/runtime.cpp)."""

    intercepted_binops = frozenset("+")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        for one, other in ((left, right), (right, left)):
            if isinstance(one, str) and (other is None or isinstance(other, Undefined)):
                return one
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Kimi K2's template has a list of its own that grows and shrinks."""
        return (isinstance(obj, list) and attr in ("append", "pop")) or super().is_safe_attribute(obj, attr, value)


def _environment() -> Environment:
    env = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _refuse
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return env


def _reason(e: BaseException) -> str:
    return one_line(e, N_REASON)


class JinjaTemplate:
    """A compiled template. how: what to do if it fails on a conversation. Raises BadValueError."""

    def __init__(self, source: str, how: str) -> None:
        self._how = how
        try:
            environment = _environment()
            self.variables = frozenset(find_undeclared_variables(environment.parse(source)))
            self._template: Template = environment.from_string(source)
        except TemplateSyntaxError as e:
            raise BadValueError(
                f"line {e.lineno} of the chat template is not jinja2 ({_reason(e)}); correct it"
            ) from None
        except Exception as e:  # jinja2 compiles it to Python, which has limits of its own
            raise BadValueError(f"the chat template cannot be compiled ({_reason(e)}); simplify it") from None

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text. Raises BadValueError."""
        try:
            return self._template.render(variables)
        except Refused as e:
            raise BadValueError(f"the chat template refuses this conversation: {_reason(e)}") from None
        except SecurityError as e:
            raise BadValueError(
                f"the chat template does something that is forbidden ({_reason(e)}); {self._how}"
            ) from None
        except Exception as e:  # a template is a program and can raise anything
            raise BadValueError(f"the chat template fails on this conversation ({_reason(e)}); {self._how}") from None
