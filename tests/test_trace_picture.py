"""The picture of a trace."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from sizes import mostly_daily
from traces import event, generation, write

from duo.cli.commands.trace import trace as trace_command
from duo.generation.trace_writer import Event

DRAWN = {
    "usual": generation(100),
    "several slots": generation(40, n_slots=3),
    "no draft": [e for e in generation(10) if e.lane == "target"],
    "only the draft": [e for e in generation(2) if e.lane == "draft"],
    "nothing yet": [event("wait", "draft", 7, 7)],
}


@pytest.mark.full
@pytest.mark.parametrize("name", mostly_daily(DRAWN, list(DRAWN)[1:2]))
def test_draw(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    from duo.benchmark.trace_picture import draw  # takes half a second

    events = DRAWN[name]
    draw(events, tmp_path / "t.svg", title="a <title> with $ in it")
    draw(events, tmp_path / "t.PNG")
    assert ElementTree.parse(tmp_path / "t.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert (tmp_path / "t.PNG").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_picture_distinguishes_hidden_from_exposed_work(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.colors import same_color

    from duo.benchmark.trace_picture import EXPOSED, HIDDEN, picture

    def has(events: list[Event], colour: str) -> bool:
        faces: Any = picture(events, (0, 100), None).axes[0].collections[0].get_facecolor()
        return any(same_color(face, colour) for face in faces)

    apart = [event("verify", "target", 0, 50), event("draft", "draft", 50, 100)]
    together = [event("verify", "target", 0, 100), event("draft", "draft", 20, 60)]
    assert (has(apart, HIDDEN), has(apart, EXPOSED)) == (False, True)
    assert has(together, HIDDEN)


def test_cli_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = write(tmp_path / "t.json", generation(100))
    result = CliRunner().invoke(trace_command, [str(path), "-o", str(tmp_path / "t.svg"), "--from", "500"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "t.svg").exists()
    result = CliRunner().invoke(trace_command, [str(path), "-o", str(tmp_path / "t.docx")])
    assert result.exit_code == 1 and "must end in" in str(result.exception)


def test_cli_without_matplotlib_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.json", generation(3))
    monkeypatch.setitem(__import__("sys").modules, "duo.benchmark.trace_picture", None)
    result = CliRunner().invoke(trace_command, [str(path), "-o", str(tmp_path / "t.svg")])
    assert result.exit_code == 1
    assert "duo-llama[bench]" in str(result.exception)
    assert CliRunner().invoke(trace_command, [str(path)]).exit_code == 0
