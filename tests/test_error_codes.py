"""Each stable code of duo.errors, provoked through the public interface."""

import asyncio
import builtins
import concurrent.futures
from collections.abc import Callable
from pathlib import Path

import pytest
from hub_server import REPO, TARGET, FakeHub

import duo
from duo import Duo, DuoError, errors
from duo.benchmark.bench import chart
from duo.errors import (
    AccessDeniedError,
    BadValueError,
    BusyError,
    CancelledError,
    ContextFullError,
    DoesNotFitError,
    MissingPackageError,
    PeerLostError,
    UnknownModelError,
    error_class,
)
from duo.models.demo import demo_pair
from duo.train import pytorch

Provoke = Callable[[], object]


def subclasses(of: type[DuoError]) -> set[type[DuoError]]:
    return {of}.union(*(subclasses(c) for c in of.__subclasses__()))


def test_a_code_leads_to_its_class() -> None:
    for c in subclasses(DuoError):
        assert error_class(c.code).code == c.code
    assert error_class("of a later version") is DuoError


def test_codes_are_these() -> None:
    public = {c for c in subclasses(DuoError) if c.__module__ == "duo.errors"}
    assert {c.__name__: c.code for c in public} == {
        "DuoError": "internal",
        "BadValueError": "bad_value",
        "UnknownModelError": "unknown_model",
        "ContextFullError": "context_full",
        "DoesNotFitError": "does_not_fit",
        "BusyError": "busy",
        "PeerLostError": "peer_lost",
        "AccessDeniedError": "access_denied",
        "MissingPackageError": "missing_package",
        "CancelledError": "cancelled",
    }


@pytest.mark.parametrize(
    "old", ["BadValue", "UnknownModel", "ContextFull", "DoesNotFit", "Busy", "PeerLost", "Cancelled"]
)
def test_a_class_has_its_old_name_too(old: str) -> None:
    new = getattr(errors, f"{old}Error")
    assert new.__name__ == f"{old}Error"
    assert getattr(errors, old) is getattr(duo, old) is getattr(duo, f"{old}Error") is new
    assert getattr(duo, f"{old}Error") is new is getattr(duo, old)
    assert {old, f"{old}Error"} - {"CancelledError"} <= set(duo.__all__)


def test_all_names_hide_none_of_pythons() -> None:
    assert not set(duo.__all__) & {*dir(builtins), *asyncio.__all__, *concurrent.futures.__all__}


def test_programs_that_catch_an_old_name_go_on_working(duo_pair: Duo) -> None:
    with pytest.raises(duo.BadValue, match="top_p"):
        duo_pair.generate("a", top_p=2)
    with pytest.raises(duo.UnknownModel, match="not a GGUF file") as e:  # by the extension
        Duo(__file__)
    assert type(e.value) is duo.UnknownModelError


@pytest.fixture
def hub(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    return fake


def provoke(call: Provoke, expected: type[DuoError], words: str) -> DuoError:
    with pytest.raises(DuoError, match=words) as e:
        call()
    assert isinstance(e.value, expected)
    assert e.value.code == expected.code  # no two public classes share one
    assert "\n" not in str(e.value)
    return e.value


def test_bad_values(duo_pair: Duo, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(TARGET[:5000])
    calls: dict[str, Provoke] = {
        "top_p": lambda: duo_pair.generate("a", top_p=2),
        "n_gpu_layers": lambda: Duo(n_gpu_layers="some"),
        "the prompt is empty": lambda: duo_pair.generate(""),
        "no candidate token": lambda: duo_pair.generate("a", logit_bias=dict.fromkeys(range(4096), float("-inf"))),
        "outside the vocabulary": lambda: duo_pair.generate([10**9]),
        "the grammar": lambda: duo_pair.generate("a", grammar="root ::= ("),
        "the JSON schema": lambda: duo_pair.generate("a", json_schema="{"),
        "unknown device X": lambda: Duo(device="X"),
        "the CPU mask": lambda: Duo(cpu_mask="0x0"),
        "CPU 9999": lambda: Duo(cpu_range="9999-9999"),
        r"unknown memory X \(-ot\)": lambda: Duo(override_tensor="ffn=X"),
        "truncated": lambda: Duo(broken),
        "the trace file": lambda: Duo(trace=tmp_path / "no" / "trace.json"),
        "top_k .* is 'a{199}\\.\\.\\., but": lambda: duo_pair.generate("a", top_k="a" * 10**6),
        "the path of the draft is not valid Unicode": lambda: Duo(tmp_path / "x", "\ud800"),
        "the path of the trace file is not valid": lambda: Duo(trace="\ud800"),
        "prompt_cache .* is not valid Unicode": lambda: duo_pair.generate("a", prompt_cache="\ud800"),
        r"chat_format is \[\]; give text": lambda: Duo(chat_format=[]),
        "chat_template is 5; give text": lambda: Duo(chat_template=5),
        r"chat_template is '\\ud800'; give text": lambda: Duo(chat_template="\ud800"),
        "not a repository": lambda: Duo.from_pretrained("nonsense"),
    }
    for words, call in calls.items():
        assert isinstance(provoke(call, BadValueError, words), ValueError), words


def test_unknown_models(tmp_path: Path, hub: FakeHub) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"This is text.")
    calls: dict[str, Provoke] = {
        "there is no file": lambda: Duo(tmp_path / "missing.gguf"),
        "is a directory": lambda: Duo(tmp_path),
        "not a GGUF file": lambda: Duo(other),
        "is empty": lambda: Duo(""),
        "there is no pair": lambda: Duo.from_pair("missing"),
        "there is no repository": lambda: Duo.from_pretrained("someone/Nothing", cache_dir=tmp_path),
        "there is no file x": lambda: Duo.from_pretrained(REPO, "x.gguf", cache_dir=tmp_path),
    }
    for words, call in calls.items():
        assert isinstance(provoke(call, UnknownModelError, words), ValueError), words


def test_full_contexts(duo_pair: Duo) -> None:
    n = duo_pair.target.n_ctx
    e = provoke(
        lambda: duo_pair.generate([5] * n), ContextFullError, f"the prompt has {n} tokens and the context holds {n}"
    )
    assert isinstance(e, ValueError)


def test_models_that_do_not_fit() -> None:
    e = provoke(lambda: Duo(demo_pair()[0], n_ctx=2**31 - 1000), DoesNotFitError, r"; lower -c/--ctx-size$")
    assert not isinstance(e, ValueError)


def test_busy(duo_pair: Duo, hub: FakeHub, tmp_path: Path) -> None:
    with duo_pair.stream("a", max_tokens=-1, ignore_eos=True):
        provoke(lambda: duo_pair.generate("b"), BusyError, "another stream open")
    hub.busy = 1
    provoke(lambda: Duo.from_pretrained(REPO, cache_dir=tmp_path), BusyError, "accepts no more requests")


def test_a_lost_peer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    e = provoke(
        lambda: Duo.from_pretrained(REPO, cache_dir=tmp_path), PeerLostError, "cannot be reached .* check the network"
    )
    assert not isinstance(e, ValueError)


def test_access_denied(hub: FakeHub, tmp_path: Path) -> None:
    hub.gated.add(REPO)
    e = provoke(lambda: Duo.from_pretrained(REPO, cache_dir=tmp_path), AccessDeniedError, "is gated; ask for access")
    assert not isinstance(e, PeerLostError | ValueError)


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytorch, "find_spec", lambda _name: None)
    monkeypatch.setattr(chart, "find_spec", lambda _name: None)
    for call in (pytorch.need_torch, lambda: chart.check_chart(Path("a.svg"))):
        assert isinstance(provoke(call, MissingPackageError, r"pip install 'duo-llama\["), ImportError)


def test_cancelled() -> None:
    d = Duo(n_ctx=256)
    model, s = d.target, d.stream("a", max_tokens=-1, ignore_eos=True)
    d.close()
    e = provoke(lambda: list(s), CancelledError, "closed while it generated")
    assert e.result is not None
    assert e.result.finish_reason == "cancelled"
    provoke(lambda: d.generate("a"), CancelledError, "this Duo is closed")
    provoke(lambda: model.n_ctx, CancelledError, "this Duo is closed")


def test_internal(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    provoke(lambda: Duo.from_pretrained(REPO, cache_dir=tmp_path / "file"), DuoError, "could not be written to")
