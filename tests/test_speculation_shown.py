"""How speculation is asked for and what is said of it: options, the first line, timings, the panel, the trace."""

import json
from pathlib import Path
from typing import Any

import pytest
from sizes import mostly_daily

import duo
from duo import Duo, DuoError, Result
from duo.benchmark.trace import read_trace
from duo.cli import show
from duo.cli.main import main
from duo.generation.trace_writer import Event, TraceWriter
from duo.models.demo import demo_pair

PROMPT = "One day a dog saw a cat."
TARGET, DRAFT = demo_pair()
LONG_PATH = json.dumps([[0] * 64])
MANY = json.dumps([[i] for i in range(64)])
UNFILTERED: dict[str, Any] = {"temperature": 0.8, "top_k": 0, "top_p": 1, "min_p": 0}
GENERIC = "input should be auto, chain, dynamic or paths of ranks"


def stderr_of(capsys: pytest.CaptureFixture[str], *args: object) -> list[str]:
    assert main(["-p", PROMPT, "-n", "2", *map(str, args)]) == 0
    return capsys.readouterr().err.splitlines()


# ---- what is refused


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        *(("--draft-tree", v, GENERIC) for v in (
            "[[0]", "tree", "[]", "[[]]", "[[0],[]]", "[[-1]]", "[[64]]", "[0,1]", "[[0],[[1]]]", '[["0"]]', "[[0.5]]",
            "[[true]]", "[[null]]", '"chain"', '{"0":[0]}', "3", "[" * 100_000, "[[1e3]]", "CHAIN",
        )),
        ("--draft-tree", LONG_PATH, "a tree can have at most 63 nodes"),
        ("--draft-tree", MANY, "a tree can have at most 63 nodes"),
        ("--spec-type", "ngram-mod,ngram-cache", "only one kind of n-grams can be used at a time"),
        ("--spec-type", "ngram", "'ngram' is not one of none, draft-simple, draft-eagle3, draft-mtp, draft-dflash, "),
        ("--spec-type", "ngram-map-k,", "'' is not one of"),
        ("--spec-type", "ngram-simple,ngram-map-k", "only one kind of n-grams can be used at a time"),
        ("--spec-type", "ngram-map-k4v,draft-simple,ngram-simple", "only one kind of n-grams"),
        ("--spec-type", "none,draft-simple", "none cannot be combined with others"),
        ("--spec-type", "ngram-map-k,none", "none cannot be combined with others"),
        ("--draft-branches", "0", "n_draft_branches (--draft-branches) is 0; give 1 to 16, or auto"),
        ("--draft-branches", "17", "give 1 to 16, or auto"), ("--draft-branches", "-1", "give 1 to 16, or auto"),
        ("--spec-ngram-map-k-size-n", "0", "ngram_size_n"), ("--spec-ngram-simple-size-m", "1025", "ngram_size_m"),
        ("--spec-ngram-map-k4v-min-hits", "0", "ngram_min_hits"), ("--draft-window", "-1", "draft_window"),
        ("--draft-window", "some", "draft_window"),
    ],
    ids=lambda x: str(x)[:20],
)  # fmt: skip
def test_mistakes_are_reported_in_one_sentence_before_loading(
    option: str, value: str, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr("duo._core.Engine", load)
    assert main(["-p", "x", option, value]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("duo: ")
    assert err.count("\n") == 1
    assert why in err
    assert option.partition("-ngram")[0] in err


@pytest.mark.parametrize(
    "options",
    [
        {"draft_tree": [[0], ["1"]]}, {"draft_tree": [[0], 1]}, {"draft_tree": None}, {"draft_tree": 4},
        {"draft_tree": [[True]]}, {"draft_tree": []}, {"spec_type": []}, {"spec_type": 3}, {"spec_type": [3]},
        {"spec_type": ["ngram-simple", "ngram-map-k"]}, {"n_draft_branches": 17}, {"n_draft_branches": "many"},
    ],
    ids=str,
)  # fmt: skip
def test_bad_keywords_are_duo_errors(duo_pair: Duo, options: dict[str, Any]) -> None:
    with pytest.raises(DuoError, match=next(iter(options))):
        duo_pair.generate(PROMPT, max_tokens=2, **options)


def test_python_takes_lists_text_and_tuples(duo_pair: Duo) -> None:
    plain = duo_pair.generate(PROMPT, max_tokens=12, temperature=0, mode="plain").tokens
    for tree in ([[0], [0, 0]], ((0,), (0, 0)), "[[0], [0, 0]]", [[0, 0]]):
        for source in ("ngram-simple", ["draft-simple", "ngram-simple"], "draft-simple, ngram-simple", ["none"]):
            r = duo_pair.generate(PROMPT, max_tokens=12, temperature=0, mode="sync", draft_tree=tree, spec_type=source)
            assert len(r.tokens) == len(plain) == 12
            assert ("draft_n" in r.timings) == (source != ["none"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'draft_trees'"):
        duo_pair.generate(PROMPT, draft_trees=[[0]])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="spec_types"):
        duo.generate(PROMPT, spec_types="none")


# ---- the first line


@pytest.mark.parametrize(
    ("args", "how"),
    [
        (("--spec-type", "draft-simple"), "async, draft length auto"),
        (("--draft-tree", "[[0],[1]]", "--draft", 9), "async, a fixed tree"),
        (("--draft-tree", "[[0],[1]]", "--spec-type", "draft-simple,ngram-simple"),
         "async, a fixed tree; n-grams are not used with it"),
        (("--draft-tree", "[[0]]", "--spec-type", "ngram-simple"),
         "plain decoding: a fixed --draft-tree takes guesses only from a draft model (-md)"),
        (("--spec-type", "draft-simple,ngram-map-k", "--mode", "sync", "--draft", 4),
         "sync, draft length 4, guesses from the draft and n-grams (ngram-map-k)"),
        (("--spec-type", "ngram-map-k"),
         "async, draft length auto, guesses from n-grams (ngram-map-k); the draft is not used"),
        (("--spec-type", "none"), "plain decoding: --spec-type none"),
        (("--spec-type", "none", "-m", TARGET), "plain decoding: --spec-type none"),
        (("--spec-type", "ngram-map-k", "--mode", "plain"), "plain decoding: --mode plain"),
        (("--spec-type", "ngram-mod"),
         "async, draft length auto, guesses from n-grams (ngram-mod); the draft is not used"),
        (("--spec-default",), "async, draft length auto, guesses from the draft and n-grams (ngram-mod)"),
        (("-m", TARGET, "--spec-type", "ngram-cache"),
         "async, draft length auto, guesses from n-grams (ngram-map-k4v)"),
        (("-m", TARGET, "--spec-type", "ngram-map-k4v"),
         "async, draft length auto, guesses from n-grams (ngram-map-k4v)"),
        (("-m", TARGET, "--spec-type", "draft-simple,ngram-map-k"),
         "async, draft length auto, guesses from n-grams (ngram-map-k); no draft was given (-md)"),
        *((("-m", TARGET, *more),
           "plain decoding: no draft was given; give one (-md) or let n-grams guess (--spec-type ngram-map-k)")
          for more in (("-md", "none"), ("--spec-type", "draft-simple"))),
    ],
)  # fmt: skip
def test_the_first_line_says_where_guesses_come_from(
    args: tuple[object, ...], how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = stderr_of(capsys, *args)[0]
    assert first.startswith(f"duo: {Path(TARGET).name} [")
    assert first.partition("); ")[2] == how


# ---- figures


def test_without_a_draft_model_n_grams_have_the_drafts_figures(duo_pair: Duo) -> None:
    with Duo(TARGET, n_ctx=512) as d:
        r = d.generate(PROMPT, max_tokens=24, temperature=0, spec_type="ngram-map-k")
        assert {k for k in r.timings if k != "pass_ms"} >= {"draft_n", "draft_ngram_n", "draft_hit_n", "passes_ahead_n"}
        assert r.timings["draft_nodes_n"] == r.timings["draft_steps_n"] == 0
        assert r.timings["draft_busy_share"] == 0
        for options in ({"spec_type": "none"}, {}, {"spec_type": "ngram-map-k", "mode": "plain"}):
            t = d.generate(PROMPT, max_tokens=4, **options).timings
            assert not [k for k in t if k.startswith(("draft", "passes", "step"))]
    both = duo_pair.generate(PROMPT, max_tokens=8, temperature=0).timings
    assert both.keys() == r.timings.keys()


def figures_of(r: Result, **changed: Any) -> dict[str, str]:
    return dict(show.figures(Result(r.text, r.tokens, r.from_draft, r.finish_reason, r.timings | changed)))


def test_the_panel_shows_hits_rollback_n_grams_and_rest(duo_pair: Duo) -> None:
    r = duo_pair.generate(PROMPT, max_tokens=48, temperature=0, mode="sync", n_draft=4)
    t = r.timings
    lines = figures_of(r)
    assert lines["rolled back"] == f"{100 * t['draft_rollback_share']:.0f}% of the best path's tokens"
    assert t["draft_rollback_share"] == pytest.approx(1 - t["draft_n_accepted"] / t["draft_n"])
    assert t["passes_ahead_n"] + t["passes_by_turn_n"] + t["passes_at_rest_n"] == t["target_passes_n"]
    assert "rest" not in lines
    assert "n-grams" not in lines
    made = figures_of(
        r, target_passes_n=40, draft_hit_n=10, draft_rollback_share=0.24, passes_at_rest_n=7, draft_ngram_n=9,
        draft_ngram_n_accepted=4, promised_per_second={"plain": 12.0, "by_turn": 9.0, "ahead": 10.04},
    )  # fmt: skip
    assert made["hits"] == "after 25% of the passes the next guesses were ready"
    assert made["rolled back"] == "24% of the best path's tokens"
    promises = "at the end guesses promise 10.0 tokens/s, and 12.0 come without"
    assert made["rest"] == f"7 of 40 passes without speculation: {promises}"
    unknown, later = {"plain": 12.0, "by_turn": 0.0, "ahead": 0.0}, {"plain": 9.0, "by_turn": 10.0, "ahead": 0.0}
    for promised, why in (
        (unknown, "too little was measured to say whether guesses pay"),
        (later, "at the end guesses promise 10.0 tokens/s, and 9.0 come without"),
    ):
        shown = figures_of(r, passes_at_rest_n=7, promised_per_second=promised)["rest"]
        assert shown.endswith(f"without speculation: {why}")
    assert t["promised_per_second"]["plain"] > 0 and t["promised_per_second"]["by_turn"] > 0
    assert made["n-grams"] == "4 of 9 accepted"
    assert figures_of(r, target_passes_n=0, draft_hit_n=0)["hits"].startswith("after 0%")
    plain = duo_pair.generate(PROMPT, max_tokens=4, mode="plain")
    assert not {"hits", "rolled back", "rest", "n-grams"} & figures_of(plain).keys()


def test_the_program_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    err = stderr_of(capsys, "-n", 24, "--mode", "sync", "--draft", 4)
    assert sum(line.startswith("hits: after ") for line in err) == 1
    assert sum(line.startswith("rolled back: ") for line in err) == 1


# ---- the trace


@pytest.mark.parametrize("sampling", mostly_daily([{"temperature": 0}, UNFILTERED], [UNFILTERED]))
def test_a_fixed_tree_is_verified_whole_and_the_trace_shows_it(
    sampling: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.json"
    # Without filters: of what they leave, there may be no second best.
    how = {"mode": "sync", "draft_tree": [[0], [1], [0, 0]], "seed": 4, **sampling}
    with Duo(n_ctx=512, trace=file) as d:
        r = d.generate(PROMPT, max_tokens=60, ignore_eos=True, **how)
    passes = [e for e in read_trace(file) if e.kind == "verify"]
    assert len(passes) == r.timings["target_passes_n"]
    assert (
        passes[0].n_accepted <= passes[0].n_drafted <= 3
    )  # with the prompt: the draft may already be done with its own
    left = 60 - 1 - passes[0].n_accepted
    n_whole = 0
    for e in passes[1:]:
        n_whole += e.n_drafted == 3 or left <= 3
        assert 0 <= e.n_accepted <= min(2, e.n_drafted)
        assert e.n_drafted <= left - 1
        left -= e.n_accepted + 1
    assert left == 0
    # The first tree may be older than the first token, and a wait for a late draft ends after some milliseconds.
    assert n_whole >= len(passes) / 2
    assert sum(e.n_drafted for e in passes) == r.timings["draft_n"]
    assert sum(e.n_accepted for e in passes) == r.timings["draft_n_accepted"]
    assert {e.stance for e in passes} == {"by turn"}
    assert all(e.n_branch >= 1 for e in passes)
    assert all(1 <= e.expected <= 1 + e.n_drafted for e in passes)
    assert any(e.expected > 1 for e in passes)
    assert main(["trace", str(file), "-o", str(tmp_path / "t.svg")]) == 0
    assert (tmp_path / "t.svg").stat().st_size > 1000
    assert "verifications" in capsys.readouterr().out


def test_async_traces_have_stances_and_branches(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    with Duo(n_ctx=512, trace=file) as d:
        t = d.generate(PROMPT, max_tokens=60, seed=4, n_draft_branches=3).timings
    events = read_trace(file)
    passes = [e for e in events if e.kind == "verify"]
    names = ("ahead", "by turn", "rest")
    counts = [t["passes_ahead_n"], t["passes_by_turn_n"], t["passes_at_rest_n"]]
    assert [sum(e.stance == name for e in passes) for name in names] == counts
    assert sum(counts) == len(passes)
    assert all(e.n_branch <= 3 for e in passes)
    assert all(e.stance == "" for e in events if e.kind != "verify")


def test_a_trace_of_an_older_duo_and_one_that_a_viewer_saved_are_read(tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    event = Event("verify", "target", 5, 9, 0, 4, 1, 3, False, 2, n_branch=4, expected=2.0, stance="ahead")
    with TraceWriter(new, target="a", draft="b") as writer:
        writer.add([event])
    assert read_trace(new) == [event]
    records = json.loads(new.read_text())
    for r in records:
        for name in ("n_branch", "expected", "stance") if r["ph"] == "X" else ():
            del r["args"][name]
    old.write_text(json.dumps(records))
    (read,) = read_trace(old)
    assert (read.n_branch, read.expected, read.stance) == (0, 0.0, "")
    assert (read.n_drafted, read.depth) == (3, 2)
    new.write_text(new.read_text().replace("2.0", "2"))  # JavaScript writes it so
    assert read_trace(new) == [event]
    for wrong in ('"2"', "true", "null", "1" + "0" * 400):
        old.write_text(new.read_text().replace('"expected":2', f'"expected":{wrong}'))
        with pytest.raises(ValueError, match="no valid expected"):
            read_trace(old)
