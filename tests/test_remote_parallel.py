"""Several texts at once with a model on another machine: hosts that die or hang, and clients that do."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import EXACT, HANG_S, start_duo
from hosts import KERNELS, PROMPT, HostProcess, host, remote, until_it_helps
from proxies import proxy
from sizes import mostly_daily
from waits import first_bytes

from duo import Duo, Result
from duo.models.demo import demo_pair

pytest.importorskip("grpc")

PROMPTS = [PROMPT, "The king said", "In the forest lived", "One day the dog"]
OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0}, {"temperature": 0.8, "seed": 3},
    {"temperature": 0, "mode": "sync"}, {"temperature": 1, "seed": 4},
]  # fmt: skip
LATE_US = 10_000  # each pass is late by up to this, so that a text lasts
N = 48


def options(i: int) -> dict[str, Any]:
    return {"max_tokens": N, "ignore_eos": True, **OPTIONS[i]}


@pytest.fixture(scope="module")
def expected() -> list[Result]:
    with Duo(demo_pair()[0], n_ctx=1024, **EXACT) as d:
        return [d.generate(p, **options(i)) for i, p in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def draft_host() -> Iterator[HostProcess]:
    with host("draft", "-td", "1", "-np", "6", "-cd", "4096") as h:
        yield h


@pytest.fixture(scope="module")
def verify_host() -> Iterator[HostProcess]:
    with host("verify", "-t", "1", "-c", "4096", "-np", "6", *KERNELS) as h:
        yield h


def client(role: str, address: Any, **given: Any) -> Duo:
    return remote(role, address, **{"n_ctx": 2048, "n_parallel": 4, "delay": (LATE_US, 7)} | given)


def write_all(d: Duo, at: dict[int, Callable[[], None]]) -> list[Result]:
    """All texts at once. When the first one has so many tokens, something happens."""
    together = threading.Barrier(len(PROMPTS))

    def write(i: int) -> Result:
        with d.stream(PROMPTS[i], **options(i)) as s:
            next(s)
            together.wait(HANG_S)
            for n, _ in enumerate(s):
                if i == 0 and n in at:
                    at[n]()
            return s.result

    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(write, range(len(PROMPTS))))


def check(found: list[Result], expected: list[Result]) -> None:
    assert [(r.text, r.tokens, r.finish_reason) for r in found] == [
        (e.text, e.tokens, e.finish_reason) for e in expected
    ]


@pytest.mark.parametrize("role", mostly_daily(["draft", "verify"], ["verify"]))
def test_texts_at_once_are_those_written_alone(
    role: str, request: pytest.FixtureRequest, expected: list[Result]
) -> None:
    with client(role, request.getfixturevalue(f"{role}_host"), delay=(0, 1)) as d:
        found = write_all(d, {})
        check(found, expected)
        assert [r.warning for r in found] == [""] * len(found)
        assert all(r.timings["network_sent_bytes"] > 0 for r in found)
        with ThreadPoolExecutor(4) as pool:
            for r in pool.map(lambda _: until_it_helps(d), range(4)):
                assert r.tokens == expected[0].tokens[:40]


@pytest.mark.daily
def test_two_clients_with_several_texts_each(draft_host: HostProcess, expected: list[Result]) -> None:
    with client("draft", draft_host) as one, client("draft", draft_host) as two, ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda d: write_all(d, {}), (one, two)):  # two of the eight texts find no place
            check(found, expected)


@pytest.mark.parametrize("how", mostly_daily(["killed", "frozen", "cut off"], ["cut off"]))
def test_a_draft_host_that_is_lost_with_four_texts(how: str, expected: list[Result]) -> None:
    with (
        host("draft", "-td", "1", "-np", "4") as h,
        proxy(h.address) as way,
        client("draft", way if how == "cut off" else h) as d,
    ):
        lose: dict[str, Callable[[], None]] = {
            "killed": h.kill,
            "frozen": lambda: h.send(signal.SIGSTOP),
            "cut off": lambda: way.set("silent"),
        }
        found = write_all(d, {10: lose[how]})
        check(found, expected)
        if how == "killed":
            assert all("the draft host" in r.warning for r in found), [r.warning for r in found]
        check(write_all(d, {}), expected)  # without it
        {"killed": h.start, "frozen": lambda: h.send(signal.SIGCONT), "cut off": lambda: way.set("up")}[how]()
        with ThreadPoolExecutor(4) as pool:
            for r in pool.map(lambda _: until_it_helps(d), range(4)):
                assert r.tokens == expected[0].tokens[:40]


@pytest.mark.parametrize("how", mostly_daily(["killed", "frozen"], ["killed"]))
def test_a_verify_host_that_is_lost_with_four_texts(how: str, expected: list[Result]) -> None:
    with host("verify", "-t", "1", "-c", "4096", "-np", "4", *KERNELS) as h, client("verify", h) as d:

        def restart() -> None:
            h.kill()
            threading.Thread(target=h.start).start()

        def freeze() -> None:
            h.send(signal.SIGSTOP)
            threading.Timer(5.0, h.send, (signal.SIGCONT,)).start()

        check(write_all(d, {10: restart if how == "killed" else freeze}), expected)


@pytest.mark.parametrize("role", mostly_daily(["draft", "verify"], ["verify"]))
def test_a_client_that_hangs_stalls_nobody(role: str, request: pytest.FixtureRequest, expected: list[Result]) -> None:
    h = request.getfixturevalue(f"{role}_host")
    # It neither reads nor sends, and its connection stays.
    other = start_duo(f"--{role}-host", h.address, "-p", PROMPT, "-n", "4000", "--ignore-eos", "-c", "4096")
    try:
        assert first_bytes(other, len(PROMPT) + 20)
        other.send_signal(signal.SIGSTOP)
        with client(role, h) as d:
            check(write_all(d, {}), expected)
            assert until_it_helps(d).tokens == expected[0].tokens[:40]
    finally:
        other.kill()
        other.communicate(timeout=HANG_S)


@pytest.mark.daily  # test_remote has a client beyond the last seat
def test_more_texts_than_the_host_takes(expected: list[Result]) -> None:
    why = "cannot take another text (the host is busy with 1 text"
    with host("draft", "-td", "1") as h, client("draft", h, always=True) as d:
        for _ in range(10):  # its places may be free again before the next text begins
            found = write_all(d, {})
            check(found, expected)
            if any(why in r.warning for r in found):
                break
        else:
            raise AssertionError([r.warning for r in found])
