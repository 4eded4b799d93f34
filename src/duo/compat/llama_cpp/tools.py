"""Which tools a chat may call, must call, or is to call by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duo.errors import BadValueError
from duo.support.wording import quoted

NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
HOW = "write {'type': 'function', 'function': {'name': ..., 'parameters': a JSON schema}}"


@dataclass(frozen=True)
class Choice:
    """The tools of a request, and which of them the answer has to call."""

    functions: tuple[Mapping[str, Any], ...] = ()
    named: str = ""  # the one that is to be called
    required: bool = False  # one of them is to be called
    forbidden: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Tools that the answer may call."""
        return frozenset(() if self.forbidden else (f["name"] for f in self.functions))

    @property
    def schemas(self) -> dict[str, Any]:
        """The JSON schemas of the tools' arguments, by name. Of several tools with one name the last counts."""
        return {f["name"]: f.get("parameters") for f in self.functions if f["name"] in self.names}

    @property
    def schema(self) -> Any:
        """What the answer must look like; None: anything. By name: the arguments alone, as llama_cpp asks for them.

        Raises BadValueError.
        """
        if self.named:
            return self.schemas[self.named] or NO_ARGUMENTS
        if not self.required:
            return None
        try:
            return _one_of(self.functions)
        except RecursionError:
            raise BadValueError("the parameters of a tool are nested too deeply; simplify them") from None


def _one_of(functions: Sequence[Mapping[str, Any]]) -> Any:
    """A call of one of them: its name and its arguments. References of a schema go on to mean what they meant."""
    definitions: dict[str, Any] = {}
    kinds = []
    for i, f in enumerate(functions):
        arguments = dict(f.get("parameters") or NO_ARGUMENTS)
        for key in ("$defs", "definitions"):
            inner = arguments.pop(key, None) or {}
            if not isinstance(inner, Mapping):
                raise BadValueError(f"the {key} of tool {i} are {quoted(inner, 40)}; write an object of JSON schemas")
            definitions |= {f"{i}-{key}-{name}": _moved(schema, i) for name, schema in inner.items()}
        shape = {"name": {"const": f["name"]}, "arguments": _moved(arguments, i)}
        kinds.append({"type": "object", "properties": shape, "required": list(shape), "additionalProperties": False})
    return {"anyOf": kinds, "$defs": definitions} if definitions else {"anyOf": kinds}


def _moved(schema: Any, i: int) -> Any:
    if isinstance(schema, list):
        return [_moved(s, i) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _moved(value, i) for key, value in schema.items()}
    ref = schema.get("$ref")
    if isinstance(ref, str):
        for key in ("$defs", "definitions"):
            if ref.startswith(f"#/{key}/"):
                out["$ref"] = f"#/$defs/{i}-{key}-" + ref.removeprefix(f"#/{key}/")
                break
        else:
            if ref == "#" or ref.startswith("#/"):
                out["$ref"] = f"#/anyOf/{i}/properties/arguments" + ref[1:]
    return out


def _functions(tools: object, functions: object) -> tuple[Mapping[str, Any], ...]:
    definitions: list[Any]
    if functions is not None:
        definitions = list(functions) if isinstance(functions, Sequence) else [None]
    elif tools is not None:
        tool_list = tools if isinstance(tools, Sequence) else [None]
        definitions = [t.get("function") if isinstance(t, Mapping) else None for t in tool_list]
    else:
        return ()
    for i, f in enumerate(definitions):
        if not isinstance(f, Mapping) or not isinstance(f.get("name"), str) or not f["name"]:
            raise BadValueError(f"tool {i} has no function with a name; {HOW}")
        if not isinstance(f.get("parameters") or {}, Mapping):
            raise BadValueError(f"the parameters of tool {i} are {type(f['parameters']).__name__}; {HOW}")
    return tuple(definitions)


def choice_of(tools: object, tool_choice: object, functions: object, function_call: object) -> Choice:
    """The choice that OpenAI's arguments, new and old, make. Raises BadValueError."""
    definitions = _functions(tools, functions)
    choice = tool_choice
    if function_call in ("none", "auto"):
        choice = function_call
    elif isinstance(function_call, Mapping) and "name" in function_call:
        choice = {"type": "function", "function": {"name": function_call["name"]}}
    elif function_call is not None:
        raise BadValueError(f"function_call is {quoted(function_call)}; it is none, auto or {{'name': ...}}")
    if choice in (None, "auto"):
        return Choice(definitions)
    if choice == "none":
        return Choice(definitions, forbidden=True)
    if choice == "required":
        if not definitions:
            raise BadValueError("tool_choice is required and there are no tools; give some")
        return Choice(definitions, required=True)
    inner = choice.get("function") if isinstance(choice, Mapping) else None
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if not isinstance(name, str):
        raise BadValueError(f"tool_choice is {quoted(choice)}; it is none, auto, required or a tool by name")
    if name not in {f["name"] for f in definitions}:
        raise BadValueError(f"tool_choice names {name}, which is not in tools; add it there")
    return Choice(definitions, named=name)
