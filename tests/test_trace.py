"""The trace: what is written is read back, cut files too, and the figures drawn from it are right."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import size
from traces import event, generation, write

from duo.benchmark.trace import between, clip, overlap, read_models, read_trace, window
from duo.cli.commands.trace import trace as trace_command
from duo.errors import DuoError
from duo.generation.trace_writer import LANES, Event, TraceWriter

times = st.integers(0, 60)
event_lists = st.lists(
    st.builds(
        lambda kind, lane, t0, length, slot, drafted, accepted: event(
            kind, lane, t0, t0 + length, slot=slot, drafted=drafted, accepted=min(accepted, drafted)
        ),
        st.sampled_from(["prompt", "verify", "draft", "wait"]),
        st.sampled_from(LANES),
        times,
        times,
        st.integers(0, 2),
        st.integers(0, 16),
        st.integers(0, 16),
    ),
    max_size=20,
)


@settings(max_examples=size(30, 300))
@given(parts=st.lists(event_lists, max_size=3))
def test_a_written_trace_is_read_back(tmp_path_factory: pytest.TempPathFactory, parts: list[list[Event]]) -> None:
    path = tmp_path_factory.mktemp("trace") / "t.json"
    with TraceWriter(path, target="größe.gguf", draft=None) as writer:
        for part in parts:
            writer.add(part)
    assert read_trace(path) == [event for part in parts for event in part]
    assert read_models(path) == ("größe.gguf", None)


def test_the_file_is_json_that_viewers_understand(tmp_path: Path) -> None:
    text = write(tmp_path / "t.json", generation(3)).read_text()
    records = json.loads(text)
    assert text.endswith("]"), "a newline after the list could be taken for a second document"
    lanes = {r["tid"]: r["args"]["name"] for r in records if r["name"] == "thread_name"}
    assert lanes == {1: "target", 2: "draft"}
    verify = next(r for r in records if r["name"] == "verify")
    assert (verify["ph"], verify["tid"], verify["ts"], verify["dur"]) == ("X", 1, 1_100_000, 20_000)
    outcomes = [(r["name"], r["tid"], r["ts"]) for r in records if r["ph"] == "i"]
    assert outcomes == [("miss", 1, 1_120_000), ("miss", 1, 1_145_000), ("miss", 1, 1_170_000)]


def test_events_are_in_the_file_before_it_is_closed(tmp_path: Path) -> None:
    events = generation(2)
    with TraceWriter(tmp_path / "t.json", target="big.gguf", draft="small.gguf") as writer:
        writer.add(events)
        assert read_trace(tmp_path / "t.json") == events


@pytest.mark.daily
@pytest.mark.slow
def test_a_file_cut_anywhere_gives_its_first_events_or_one_sentence(tmp_path: Path) -> None:
    events = generation(2)
    whole = write(tmp_path / "t.json", events).read_bytes()
    cut, n_read = tmp_path / "cut.json", 0
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        try:
            read = read_trace(cut)
        except ValueError as error:
            assert n_read == 0
            assert str(error).startswith(str(cut))
            assert "\n" not in str(error)
        else:
            assert read == events[: len(read)]
            assert len(read) >= n_read
            n_read = len(read)
    assert n_read == len(events)


def test_a_trace_saved_by_a_viewer_as_an_object_is_read(tmp_path: Path) -> None:
    events = generation(2)
    records = json.loads(write(tmp_path / "t.json", events).read_text())
    (tmp_path / "saved.json").write_text(json.dumps({"traceEvents": records, "displayTimeUnit": "ms"}, indent=1))
    assert read_trace(tmp_path / "saved.json") == events


HEADER = '[{"name":"process_name","ph":"M","args":{"target":"big.gguf"}},\n'
EVENT = '{"name":"verify","ph":"X","cat":"duo","tid":%s,"ts":%s,"dur":1,"args":%s}'
ARGS = '{"slot":0,"n_rows":1,"n_accepted":0,"n_drafted":0,"hit":false,"depth":0}'


def test_the_samples_below_differ_from_a_trace_only_by_their_fault(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(HEADER + EVENT % (1, 5, ARGS))
    assert read_trace(tmp_path / "t.json") == [Event("verify", "target", 5, 6, 0, 1, 0, 0, False, 0)]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "hello",
        "GGUF\0\x80",
        "{}",
        "[]",
        "[1, 2]",
        "[" * 100_000,
        '{"traceEvents": 3}',
        '[{"name":"process_name","ph":"M","pid":1,"args":{"name":"Browser"}}]',
        '[{"name":"process_name","args":{"target":3}}]',
        HEADER + "{broken\n" + EVENT % (1, 5, ARGS),
        HEADER + '{"a":' * 100_000 + "\n",
        HEADER + EVENT % (3, 5, ARGS),
        HEADER + EVENT % ("true", 5, ARGS),
        HEADER + EVENT % ("[]", 5, ARGS),
        HEADER + EVENT % (1, '"5"', ARGS),
        HEADER + EVENT % (1, "NaN", ARGS),
        HEADER + EVENT % (1, 10**30, ARGS),
        HEADER + EVENT % (1, 5, "[]"),
        HEADER + EVENT % (1, 5, '{"slot":0}'),
        HEADER + EVENT % (1, 5, ARGS.replace("false", "0")),
    ],
)
def test_an_invalid_trace_is_refused_in_one_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=r"t\.json (is not a trace|is damaged)") as caught:
        read_trace(path)
    result = CliRunner().invoke(trace_command, [str(path)])
    assert result.exit_code == 1
    assert str(result.exception) == str(caught.value)


@settings(max_examples=size(40, 300))
@given(events=event_lists)
def test_overlap_agrees_with_counting_every_microsecond(events: list[Event]) -> None:
    busy = {
        lane: {t for e in events if e.lane == lane and e.kind != "wait" for t in range(e.t0_us, e.t1_us)}
        for lane in LANES
    }
    figures = overlap(events)
    assert figures.target_busy_us == len(busy["target"])
    assert figures.draft_busy_us == len(busy["draft"])
    assert figures.both_busy_us == len(busy["target"] & busy["draft"])
    assert figures.wall_us == (max(e.t1_us for e in events) - min(e.t0_us for e in events) if events else 0)
    assert figures.target_busy_share == len(busy["target"]) / max(figures.wall_us, 1)
    assert figures.draft_busy_share == len(busy["draft"]) / max(figures.wall_us, 1)
    assert figures.hidden_share == len(busy["target"] & busy["draft"]) / max(len(busy["draft"]), 1)


@given(events=event_lists, t0_us=times, length=st.integers(1, 60))
def test_a_clipped_trace_has_the_work_between_its_ends(events: list[Event], t0_us: int, length: int) -> None:
    span = range(t0_us, t0_us + length)
    work = {t for e in events if e.lane == "target" and e.kind != "wait" for t in range(e.t0_us, e.t1_us) if t in span}
    assert overlap(clip(events, t0_us, t0_us + length)).target_busy_us == len(work)


def test_a_long_trace_is_drawn_in_part() -> None:
    events = generation(100)

    def n_verifications(start_ms: float | None, end_ms: float | None) -> tuple[int, int]:
        span = window(events, start_ms, end_ms)
        shown = [e for e in events if e.kind == "verify" and span[0] <= e.t0_us and e.t1_us <= span[1]]
        return len(shown), events.index(shown[0]) // 6

    assert n_verifications(None, None) == (30, 35)
    assert n_verifications(100, None) == (30, 0)
    assert n_verifications(None, 100 + 25 * 100) == (30, 70)
    assert n_verifications(0, 100 + 25 * 100) == (100, 0)
    assert window(generation(5), None, None) == between(generation(5), -1.0, 1e9) == (1_000_000, 1_225_000)
    for start_ms, end_ms in ((5.0, 5.0), (1e6, None), (None, -1.0), (float("nan"), None), (None, float("inf")),
                             (1e306, None)):  # fmt: skip
        with pytest.raises(ValueError, match="ms"):
            between(events, start_ms, end_ms)


def test_cli_prints_figures(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", generation(100))
    result = CliRunner().invoke(trace_command, [str(path)])
    assert result.exit_code == 0, result.output
    assert "target busy" in result.output
    assert "80.8%" in result.output
    result = CliRunner().invoke(trace_command, [str(path), "--json"])
    figures = json.loads(result.stdout)
    assert figures["wall_us"] == 2_600_000
    assert figures["target_busy_us"] == 2_100_000
    assert figures["both_busy_us"] == 30_000 + 100 * 20_000
    assert (figures["n_verifications"], figures["n_drafted"], figures["n_accepted"]) == (100, 200, 80)
    result = CliRunner().invoke(trace_command, [str(path), "--json", "--from", "100", "--to", "200"])
    assert json.loads(result.stdout)["n_verifications"] == 4


def test_without_a_draft_there_is_nothing_to_hit_or_miss(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [e for e in generation(3) if e.lane == "target"], draft=None)
    records = json.loads(path.read_text())
    assert not [r for r in records if r["ph"] == "i"]
    assert [r["args"]["name"] for r in records if r["name"] == "thread_name"] == ["target"]
    result = CliRunner().invoke(trace_command, [str(path)])
    assert result.exit_code == 0, result.output
    assert "draft" not in result.output
    assert "hits" not in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["missing.json"], "missing.json: No such file"),
        (["t.json", "--from", "9", "--to", "3"], "empty"),
        (["t.json", "--from", "inf"], "not a time"),
        pytest.param(["t.json", "-o", "t.docx"], "must end in", marks=pytest.mark.daily),  # imports matplotlib
        pytest.param(["empty.json", "-o", "t.svg"], "no events", marks=pytest.mark.daily),
        pytest.param(["t.json", "-o", "none/t.svg"], "No such file", marks=pytest.mark.daily),
    ],
)
def test_cli_errors_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], message: str
) -> None:
    if "none/t.svg" in args:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    write(Path("t.json"), generation(3))
    write(Path("empty.json"), [])
    result = CliRunner().invoke(trace_command, args)
    assert result.exit_code == 1
    assert isinstance(result.exception, DuoError) and "\n" not in str(result.exception)
    assert message in str(result.exception)
