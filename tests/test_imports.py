"""What is loaded when: `import duo`, the help and shell completion must not wait for libllama."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import get_type_hints

import pytest
from conftest import run_python
from sizes import mostly_daily

from duo import _core
from duo.cli.main import COMMANDS, command_named
from duo.options import option
from duo.options.generate import GenerateOptions

HEAVY = ("duo._core", "duo.model", "numpy", "jinja2", "rich", "gguf", "grpc", "pydantic", "prompt_toolkit")
LOADED = f"print(*(m for m in {HEAVY!r} if m in sys.modules))"


def loaded_by(code: str, **environment: str) -> list[str]:
    """Those heavy modules that the code has imported."""
    done = run_python(f"import sys\n{code}\n{LOADED}", env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


def test_import_duo_loads_nothing_heavy() -> None:
    assert loaded_by("import duo") == []


def test_import_duo_changes_nothing() -> None:
    code = (
        "import os, sys\n"
        "for name in ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT'):\n    os.environ.pop(name, None)\n"
        "before = dict(os.environ)\n"
        "sys.argv = ['duo']\n"
        "import duo\n"
        "assert dict(os.environ) == before and 'click' not in sys.modules\n"
    )
    assert loaded_by(code) == []
    assert "duo._core" in loaded_by(f"{code}duo._core\nassert 'GOMP_SPINCOUNT' in os.environ")


# What only some uses need. Those who start duo for another use must not wait for its import.
LATE = (
    "asyncio", "fastapi", "gguf", "grpc", "httpx2", "huggingface_hub", "jinja2", "llama_cpp", "logging", "numpy",
    "prometheus_client", "pydantic", "rich", "yaml", "duo.generation.state",
)  # fmt: skip
OF_COMMANDS = ("duo.options.serve", "duo.options.train")
# Of the user's cache, and of what is tried once on a machine.
OF_CACHE = ("platformdirs", "shutil", "subprocess", "tempfile")
OF_SERVER = (
    "fastapi", "gguf", "grpc", "httpx2", "huggingface_hub", "jinja2", "llama_cpp", "numpy", "prometheus_client", "rich",
    "starlette.staticfiles", "yaml",
)  # fmt: skip


def late(code: str, names: Sequence[str]) -> list[list[str]]:
    """Those of the modules that were there at each call of `look`, which the code makes."""
    look = f"import sys\ndef look():\n    print(*(m for m in {names!r} if m in sys.modules), file=sys.__stdout__)\n"
    done = run_python(look + code)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_a_duo_and_its_first_text_load_only_what_they_need() -> None:
    text = "with duo.Duo() as d:\n    d.generate('Once', max_tokens=1, temperature=0)\n"
    code = f"import duo\nduo.Duo\nlook()\n{text}look()\n"
    before, behind = late(code, (*LATE, "pydantic_core", *OF_COMMANDS, *OF_CACHE))
    assert before == []
    assert {*behind} <= {*OF_CACHE}


def test_a_server_that_waits_for_requests_has_loaded_only_what_it_needs() -> None:
    code = (
        "import io, os, signal\n"
        "from duo.cli.main import main\n"
        "class Out(io.StringIO):\n"
        "    def write(self, text):\n"
        "        if text.startswith('duo serve: '):\n            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        return len(text)\n"
        "sys.stdout = Out()\n"
        "assert main(['serve', '--port', '0', '--drain', '0']) == 0\n"
        "look()\n"
    )
    assert late(code, OF_SERVER) == [[]]


def test_one_token_on_the_command_line_loads_only_what_it_needs() -> None:
    code = "from duo.cli.main import main\nassert main(['-p', 'Once', '-n', '1', '--temp', '0']) == 0\nlook()\n"
    assert late(code, LATE)[-1] == []


def test_help_loads_nothing_heavy() -> None:
    lines = [["--help"], [], ["--help-all"], *([name, "--help"] for name in COMMANDS)]
    code = (
        "from contextlib import redirect_stdout\n"
        "from io import StringIO\n"
        "from duo.cli.main import main\n"
        "sys.stdin = None\n"  # without it, `duo` alone would wait for a prompt
        f"for args in {lines!r}:\n"
        "    with redirect_stdout(StringIO()):\n        assert main(args) == 0\n"
        "    look()\n"
    )
    assert dict(zip(map(tuple, lines), late(code, HEAVY), strict=True)) == {tuple(x): [] for x in lines}


COMPLETED = [
    ("duo ch", "chat"),
    ("duo ", "verify-host"),
    ("duo dev w", "widen"),
    ("duo --sp", "--spec-type"),
    ("duo bench --mo", "--modes"),
    ("duo tune --cpu-kernels st", "stock"),
]


@pytest.mark.parametrize(("line", "offered"), mostly_daily(COMPLETED, [COMPLETED[0], COMPLETED[5]]))
def test_completion_loads_nothing_heavy(line: str, offered: str) -> None:
    words = line.split(" ")
    code = (
        "from duo.cli.main import program\n"
        "try:\n    program.main(prog_name='duo')\nexcept SystemExit as e:\n    assert not e.code\n"
    )
    environment = {"_DUO_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = run_python(f"import sys\n{code}\n{LOADED}", env={**os.environ, **environment})
    *found, heavy = done.stdout.splitlines()
    assert f"plain,{offered}" in found, done.stderr
    assert heavy == ""


def test_the_list_of_commands_has_each_commands_own_words() -> None:
    for name, (_, text) in COMMANDS.items():
        command = command_named(name)
        assert command is not None and command.name == name
        assert text.endswith(".") and "\n" not in text and len(text) < 80


def test_names_are_the_same_whenever_they_are_asked_for() -> None:
    code = "import duo\nfrom duo.model import Duo\nassert duo.Duo is Duo and 'generate' in dir(duo)\n"
    assert "duo._core" in loaded_by(code)
    done = run_python("import duo\nduo.nothing")
    assert done.returncode == 1 and "module 'duo' has no attribute 'nothing'" in done.stderr


def test_libraries_that_do_not_fit_are_refused_every_time() -> None:
    code = (
        "import types\nfrom importlib import import_module\nfrom duo import _libs\n"
        "other = types.SimpleNamespace(check_llama=lambda release: (False, 'a', 'b'))\n"
        "_libs.import_module = lambda name: import_module(name) and other\n"
        "for _ in range(2):\n"
        "    try:\n        from duo import _core\n    except ImportError as e:\n        print(e)\n"
    )
    done = run_python(code)
    assert [line.startswith("duo was built for another llama.cpp") for line in done.stdout.splitlines()] == [True, True]


def test_the_limits_of_the_options_are_the_cores() -> None:
    assert (option.N_DRAFT_MAX, option.N_STEP_MAX) == (_core.N_DRAFT_MAX, _core.N_STEP_MAX)
    assert "duo._core" in sys.modules


def test_a_host_accepts_whatever_an_option_allows() -> None:
    limits = {**_core.LIMITS["sampling"], **_core.LIMITS["plan"]}
    # No option; or auto or a number, which options.validate bounds.
    for name in ("n_prompt", "n_left_out", "n_draft", "n_branch"):
        del limits[name]
    names = {"temp": "temperature", "p_min": "draft_p_min", "n_window": "draft_window"}
    hints = get_type_hints(GenerateOptions, include_extras=True)
    for name, (least, most) in limits.items():
        found = re.findall(r"Field\(ge=([^,]+), le=([^,]+),", str(hints[names.get(name, name)]))
        assert found, name
        assert all(least <= float(low) and float(high) <= most for low, high in found), (name, found)
