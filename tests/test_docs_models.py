"""docs/models.md: its commands, and its list of pairs."""

import re
import shlex
from pathlib import Path

import pytest
from parsed_line import lines_of, parse

from duo.cli.main import main
from duo.models import pairs

PAGE = (Path(__file__).parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
COMMANDS = lines_of(PAGE)


@pytest.mark.parametrize("line", COMMANDS)
def test_command_lines_in_the_documents_are_understood(line: str) -> None:
    parse(line)


def test_documented_commands_with_the_demo_pair_run(capfd: pytest.CaptureFixture[str]) -> None:
    ran = [shlex.split(line)[1:] for line in COMMANDS if " demo" in line or line.endswith("duo pairs")]
    assert len(ran) >= 3 and all(main(args) == 0 for args in ran)


def test_the_list_in_the_documents_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duo.models.pairs.user_config_path", lambda _: tmp_path)
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    (tmp_path / "models.yaml").write_text(block, encoding="utf-8")
    assert pairs.find("local").own
