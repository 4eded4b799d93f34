"""What help(), editors and shells see of the calls, and that it is what the calls take."""

import inspect
import pydoc
import re
from collections.abc import Callable
from typing import Any, get_type_hints

import llama_cpp
import pytest

import duo
from duo import Duo, _core
from duo.generation.timings import Timings
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.options.llama_cpp import ChatOptions, CompletionOptions, DuoOptions
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS


def parameters(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(call).parameters)


@pytest.mark.parametrize("call", [Duo.stream, Duo.generate, Duo.astream, Duo.agenerate, duo.generate, duo.stream,
                                  Duo, Duo.from_pair, Duo.from_pretrained], ids=lambda c: c.__qualname__)  # fmt: skip
def test_every_option_has_a_name_and_its_default(call: Callable[..., Any]) -> None:
    found = parameters(call)
    wanted = GENERATE_OPTIONS if call.__qualname__ in ("Duo.stream", "Duo.generate") else {}
    if call in (Duo, duo.generate, duo.stream):
        wanted = GENERATE_OPTIONS | ENGINE_OPTIONS
    assert {name: found[name].default for name in wanted} == {name: o.default for name, o in wanted.items()}
    assert "max_tokens" in found and "n_draft" in pydoc.render_doc(call)
    assert not [n for n, p in found.items() if n.startswith("_") or p.kind is p.VAR_KEYWORD]


@pytest.mark.parametrize("name", ["create_completion", "create_chat_completion", "__init__", "__call__"])
def test_llama_cpps_parameters_are_there(name: str) -> None:
    ours, theirs = parameters(getattr(Duo, name)), parameters(getattr(llama_cpp.Llama, name))
    theirs.pop("kwargs", None)
    assert theirs.keys() <= ours.keys()
    if name == "__init__":
        return
    order = [n for n, p in ours.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert order == list(theirs)
    changed = {n for n in theirs if theirs[n].default != ours[n].default and ours[n].default not in (-1, [], {})}
    assert not changed


def test_type_checkers_know_as_many_keywords_as_the_calls() -> None:
    for call, table in ((Duo, DuoOptions), (Duo.create_completion, CompletionOptions),
                        (Duo.create_chat_completion, ChatOptions)):  # fmt: skip
        assert get_type_hints(table).keys() <= parameters(call).keys()


@pytest.mark.parametrize("options", [{}, {"mode": "plain"}], ids=str)
def test_timings_are_what_their_type_says(duo_pair: Duo, options: Any) -> None:
    t = duo_pair.generate("Once", max_tokens=12, seed=1, **options).timings
    names = list(Timings.__annotations__)
    without_network = {n for n in names if not n.startswith("network_")}
    guesses = names.index("draft_n")
    assert t.keys() == (without_network if not options else set(names[:guesses]))
    assert duo_pair.timings == t


@pytest.mark.parametrize("call", [duo.generate, duo.stream, Duo.generate, Duo.stream, Duo.create_completion])
def test_annotations_can_be_read(call: Callable[..., Any]) -> None:
    assert get_type_hints(call)["prompt"] is not None


def test_a_call_that_loads_takes_every_keyword_of_duo() -> None:
    assert parameters(Duo).keys() <= parameters(duo.generate).keys() | {"model", "draft"}
    read: list[float] = []
    keep: Any = lambda _path, share: read.append(share)  # noqa: E731
    text = duo.generate("Once", max_tokens=4, n_ctx=256, verbose=False, progress=keep, chat_template="chatml")
    assert len(text.tokens) == 4 and read[-1] == 1.0


def test_public_calls_say_what_they_raise() -> None:
    for call in (Duo, Duo.stream, Duo.generate, Duo.create_completion, Duo.create_chat_completion, Duo.astream,
                 Duo.agenerate, duo.generate, duo.stream, Duo.from_pair, Duo.from_pretrained):  # fmt: skip
        said = inspect.getdoc(call) or ""
        assert re.search("Raises:|rrors are those of|the same errors", said), call


@pytest.mark.parametrize("name", ["always", "delay", "_always", "_delay"])
def test_switches_of_tests_are_no_keywords(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        Duo(**{name: 1})


def test_a_duo_with_switches(duo_pair: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[tuple[int, int]] = []
    monkeypatch.setattr(_core, "make_late", lambda _, us, seed: late.append((us, seed)))
    assert not duo_pair.session.always
    with SwitchedDuo(n_ctx=64) as d:
        assert not d.session.always and not late
    with SwitchedDuo(n_ctx=64, always=True, delay=(1, 2)) as d:
        assert d.session.always and late == [(1, 2)]
