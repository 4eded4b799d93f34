"""Hosts that are not there, die, freeze, come back: the text is the same, or ends with one sentence."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conftest import EXACT
from hosts import GREEDY, KERNELS, LONG, PROMPT, SEEDED, deaf, host, remote, until_it_helps, write
from sizes import mostly_daily
from waits import join, wait_until

from duo import Duo, DuoError
from duo.errors import BadValueError, BusyError
from duo.gguf_tools.switched_duo import SwitchedDuo

pytest.importorskip("grpc")

Run = Callable[..., tuple[int, str, str]]


@contextmanager
def nobody() -> Iterator[str]:
    """An address where connections are refused."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{s.getsockname()[1]}"


# ---- the draft


@pytest.mark.parametrize("where", mostly_daily([nobody, deaf], [deaf]))
def test_a_missing_draft_host_is_a_warning(where: Any, long_texts: dict[str, str]) -> None:
    with where() as address, Duo(draft_host=address, n_ctx=1024, **EXACT) as d:
        r = d.generate(PROMPT, **GREEDY | {"max_tokens": 100})
        assert len(r.tokens) == 100 and long_texts["greedy"].startswith(r.text)
        assert address in r.warning
        assert "cannot be reached" in r.warning or "does not answer" in r.warning


def test_the_program_says_so_and_writes_at_once(run: Run) -> None:
    with nobody() as address:
        code, out, err = run("--draft-host", address, "-p", PROMPT, "-n", 20, "--temp", 0)
    assert code == 0 and out.startswith(PROMPT)
    said = [line for line in err.splitlines() if "cannot be reached" in line]
    assert said == [f"duo: the draft host {address} cannot be reached (connection refused); the text starts without it"]


def test_a_draft_that_is_required_is_an_error(run: Run) -> None:
    with nobody() as address:
        code, out, err = run("--draft-host", address, "--require-draft", "-p", PROMPT)
    assert (code, out) == (1, "")
    assert err == (
        f"duo: the draft host {address} cannot be reached (connection refused); start it, or give another address\n"
    )


@pytest.mark.daily  # the one that is started again joins, too
def test_a_draft_host_that_appears_later_joins() -> None:
    with nobody() as address:
        pass
    d = SwitchedDuo(draft_host=address, n_ctx=1024, always=True, **EXACT)
    with d, host("draft", "-td", "1", listen=address):
        until_it_helps(d)


def test_a_draft_host_that_is_killed_and_started_again(long_texts: dict[str, str]) -> None:
    kind, options = "greedy", GREEDY
    with host("draft", "-td", "1") as h, remote("draft", h) as d:
        r = write(d, options, {100: h.kill})
        assert r.text == long_texts[kind]
        assert r.finish_reason == "length"
        assert f"the draft host {h.address}" in r.warning
        assert r.timings["network_lost_n"] == 1
        h.start()
        assert long_texts[kind].startswith(until_it_helps(d).text)


@pytest.mark.daily
def test_a_draft_host_that_freezes_for_a_while(long_texts: dict[str, str]) -> None:
    kind, options = "seeded", SEEDED
    with host("draft", "-td", "1") as h, remote("draft", h) as d:
        r = write(d, options, {100: lambda: h.send(signal.SIGSTOP), 300: lambda: h.send(signal.SIGCONT)})
        assert r.text == long_texts[kind]
        assert r.finish_reason == "length"
        # Frozen before a text begins: it is missed after some seconds, and found again when it wakes up.
        h.send(signal.SIGSTOP)
        assert d.generate(PROMPT, **options).text == long_texts[kind]
        h.send(signal.SIGCONT)
        assert until_it_helps(d, **options).text == long_texts[kind]


# ---- the target


def test_a_verify_host_that_is_killed_comes_back_or_its_text_is_stopped(long_texts: dict[str, str]) -> None:
    kind, options = "seeded", SEEDED
    with host("verify", "-t", "1", "-c", "1024", *KERNELS) as h, remote("verify", h) as d:
        starting = threading.Thread(target=h.start)

        def restart() -> None:
            h.kill()
            starting.start()

        r = write(d, options, {50: restart})
        assert r.text == long_texts[kind]
        assert (r.finish_reason, len(r.tokens)) == ("length", LONG["max_tokens"])
        assert r.timings["network_lost_n"] >= 1
        assert f"the verify host {h.address}" in r.warning
        join(starting)
        with d.stream(PROMPT, **GREEDY) as s:
            for _ in range(20):
                next(s)
            h.kill()
            s.close()  # while it waits
            assert s.finish_reason == "cancelled"


@pytest.mark.daily
def test_a_verify_host_that_freezes_and_wakes_up(long_texts: dict[str, str]) -> None:
    with host("verify", "-t", "1", "-c", "1024", *KERNELS) as h, remote("verify", h) as d:

        def freeze() -> None:
            h.send(signal.SIGSTOP)
            threading.Timer(5.0, h.send, (signal.SIGCONT,)).start()

        assert write(d, GREEDY, {50: freeze}).text == long_texts["greedy"]


@pytest.mark.daily
def test_a_verify_host_that_stays_away_leaves_what_was_written(long_texts: dict[str, str]) -> None:
    with host("verify", "-t", "1", "-c", "1024", *KERNELS) as h, remote("verify", h, host_patience=1.0) as d:
        with pytest.raises(DuoError) as e:
            write(d, GREEDY, {50: h.kill})
        assert e.value.result is not None
        r = e.value.result
        assert r.finish_reason == "error"
        assert len(r.tokens) > 50
        assert long_texts["greedy"].startswith(r.text)
        assert str(e.value) == (
            f"the verify host {h.address} cannot be reached (connection refused), and has not come back for 1 s; "
            "the text so far is kept"
        )
        h.start()
        assert d.generate(PROMPT, **GREEDY).text == long_texts["greedy"]


@pytest.mark.parametrize("where", [nobody, deaf])
def test_a_missing_verify_host_is_an_error(where: Any) -> None:
    with where() as address, pytest.raises(DuoError, match=r"cannot be reached|does not answer") as e:
        Duo(verify_host=address)
    assert address in str(e.value)


def test_a_prompt_that_is_too_long_for_the_host() -> None:
    with host("verify", "-t", "1", "-c", "64") as h, remote("verify", h) as d:
        with pytest.raises(DuoError, match="context"):
            d.generate(PROMPT * 20)
        assert d.generate(PROMPT, max_tokens=5).text
    with host("draft", "-cd", "64") as h, remote("draft", h) as d:

        def is_told() -> bool:
            r = d.generate(PROMPT * 20, max_tokens=20)
            assert r.finish_reason in ("length", "stop")
            return "the host's context" in r.warning

        wait_until(is_told)  # a short text may end before the host has answered


@pytest.mark.daily
def test_errors_of_a_verify_host_keep_their_codes() -> None:
    with host("verify", "-t", "1", "-c", "8192", "-np", "1") as h, remote("verify", h, n_ctx=8192) as d:
        with pytest.raises(BadValueError, match="the verify host failed: the filters left no candidate token"):
            d.generate(PROMPT, logit_bias=dict.fromkeys(range(4096), float("-inf")))
        with remote("verify", h, host_patience=0.1) as other, d.stream(PROMPT, max_tokens=-1, ignore_eos=True) as s:
            next(s)
            with pytest.raises(BusyError, match="cannot take another text"):
                other.generate(PROMPT, max_tokens=1)
