"""tools/llama_server_tests.py: llama-server's own tests against `duo serve`, without running them."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from gguf import GGUFReader
from vision_models import png

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from forked_server import completed  # noqa: E402
from llama_server_tests import check_free, folder_of_tests  # noqa: E402
from server_cases import KINDS, REFERENCE, Case, Reasons, explained, fails_here, read_cases, table  # noqa: E402
from server_stand_ins import lora_for, projector_for  # noqa: E402

from duo import Duo  # noqa: E402
from duo.models.demo import demo_pair  # noqa: E402

REPORT = """<testsuites><testsuite>
<testcase name="test_one[4]"/>
<testcase name="test_two"><failure message="assert 1 == 2&#10;more"/></testcase>
<testcase name="test_three"><error message="no server"/></testcase>
<testcase name="test_four"><skipped message="slow"/></testcase>
</testsuite></testsuites>"""
REASONS = """{"lines": [{"file": "test_x", "kind": "model", "pattern": "assert .* == 7", "why": "other tokens"}],
 "cases": [{"pattern": "test_x::test_two", "kind": "choice", "why": "duo does it otherwise"}]}"""


@pytest.fixture
def reasons(tmp_path: Path) -> Reasons:
    (tmp_path / "reasons.json").write_text(REASONS)
    return Reasons.read(tmp_path / "reasons.json")


def test_cases_and_why_they_fail(tmp_path: Path, reasons: Reasons) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    cases = read_cases(tmp_path / "report.xml", "test_x", run="alone")
    assert [(c.name, c.outcome) for c in cases] == [
        ("test_one[4]", "passed"), ("test_two", "failed"), ("test_three", "failed"), ("test_four", "skipped"),
    ]  # fmt: skip
    assert cases[1].message == "assert 1 == 2" and cases[2].message == "no server"
    assert [bool(reasons.of(c)) for c in cases[1:3]] == [True, False]
    assert explained(cases, reasons).splitlines()[2:] == ["| duo does it otherwise | duo's choice | 1 |"]
    both = [*cases, Case("test_x", "test_one[4]", "draft", "passed", "")]
    assert table(both, reasons).splitlines()[2] == "| `test_x` | 4 | 1 | not run | 1 | 1 | 0 | 0 | 0 | 1 | 1 |"


def test_what_fails_with_llama_server_is_no_fault_of_duo(reasons: Reasons) -> None:
    outcomes = {"test_one": ("passed", "failed"), "test_two": ("failed", "failed"), "test_three": ("failed", "passed")}
    cases = [Case("test_x", name, REFERENCE, there, "") for name, (there, _) in outcomes.items()]
    cases += [Case("test_x", name, "draft", here, "") for name, (_, here) in outcomes.items()]
    assert [c.name for c in fails_here(cases)] == ["test_one"]
    assert table(cases, reasons).splitlines()[2] == "| `test_x` | 3 | 0 | 1 | not run | 1 | 1 | 0 | 0 | 0 | 1 |"
    assert not explained(cases, reasons).splitlines()[2:], "test_two fails there, too"


def test_lines_that_cannot_hold_do_nothing(reasons: Reasons) -> None:
    text = "def test_two():\n    assert n == 7\n    assert n == 8\n"
    namespace: dict[str, object] = {"n": 8}
    exec(reasons.without_lines("test_x", text, "alone") + "test_two()", namespace)
    assert reasons.without_lines("test_other", text, "alone") == text
    with pytest.raises(SystemExit, match="test_x has no line"):
        reasons.without_lines("test_x", "def test_two():\n    pass\n", "alone")


def test_llama_server_has_to_meet_what_duo_does_not_by_choice(tmp_path: Path) -> None:
    (tmp_path / "reasons.json").write_text(REASONS.replace('"model"', '"choice"'))
    reasons, line = Reasons.read(tmp_path / "reasons.json"), "    assert n == 7\n"
    assert reasons.without_lines("test_x", line, REFERENCE) == line != reasons.without_lines("test_x", line, "draft")


def test_the_projects_own_reasons_can_be_read() -> None:
    own = Reasons.read(ROOT / "tools" / "llama_server_cases.json")
    assert {kind for _, kind, _ in own.known} <= KINDS.keys() and own.lines


@pytest.mark.parametrize(
    ("args", "more"),
    [
        ("--hf-repo x", "--model-draft D"),
        ("--model x", "--model-draft D"),
        ("--model x --model-draft y", ""),
        ("--hf-repo x --embedding", ""),
        ("--port 8080", "--models-dir N"),
        ("--models-preset x", ""),
    ],
)
def test_what_the_servers_get_besides(args: str, more: str) -> None:
    assert completed(args.split(), "D", "N") == [*args.split(), *more.split()]
    assert completed(["--model", "x"], "", "N") == ["--model", "x"]


def test_a_lora_for_the_demo_target_changes_its_text(tmp_path: Path, target_alone: Duo) -> None:
    target = demo_pair()[0]
    lora = lora_for(target, tmp_path / "lora.gguf")
    assert [t.name for t in GGUFReader(lora).tensors] == ["blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"]
    with Duo(target, n_ctx=512, lora=[str(lora)], strict=True) as d:
        other = d.generate("Once upon a time", max_tokens=16, temperature=0).text
    assert other != target_alone.generate("Once upon a time", max_tokens=16, temperature=0).text


def test_a_projector_for_the_demo_target_shows_it_pictures(tmp_path: Path) -> None:
    file = projector_for(demo_pair()[0], tmp_path / "mmproj.gguf")
    with Duo(mmproj=str(file), n_ctx=512, strict=True) as d:
        found = [d.generate("<__media__> Once", images=[png(seed=i)], max_tokens=8, temperature=0) for i in (1, 2, 1)]
    assert found[0].prompt_tokens > 64 and found[0].text == found[2].text != found[1].text


def test_the_folder_of_the_tests_is_found(tmp_path: Path) -> None:
    inside = tmp_path / "vendor" / "llama.cpp" / "tools" / "server" / "tests"
    with pytest.raises(SystemExit, match="name an unpacked sdist"):
        folder_of_tests(tmp_path)
    inside.mkdir(parents=True)
    (inside / "utils.py").touch()
    assert folder_of_tests(tmp_path) == folder_of_tests(inside) == inside


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
        with pytest.raises(SystemExit, match=f"port {port}; give a free one"):
            check_free(port)
    check_free(port)
