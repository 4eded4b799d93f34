"""The examples of docs/server.md, against a server on another port."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from conftest import HANG_S
from needs import need_program
from served import Server, parsed, served
from sizes import mostly_daily

from duo.server.counts import SUMS

pytestmark = pytest.mark.full

TEXT = (Path(__file__).parents[1] / "docs" / "server.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(sh|python|json|toml)\n(.*?)^```", TEXT, re.M | re.S)
CURLS = [line for kind, code in BLOCKS if kind == "sh" for line in code.splitlines() if line.startswith("curl ")]
PROGRAMS = [code for kind, code in BLOCKS if kind == "python"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as s:
        yield s


@pytest.mark.parametrize("i", range(len(CURLS)))
def test_commands(server: Server, i: int) -> None:
    need_program("curl", "curl")
    command = CURLS[i].replace("http://127.0.0.1:8080", server.url).replace("curl ", "curl -sSf ", 1)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("{", "data: "))


@pytest.mark.parametrize("i", mostly_daily(range(len(PROGRAMS)), []))
def test_programs(server: Server, i: int) -> None:
    code = PROGRAMS[i].replace("http://127.0.0.1:8080", server.url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_every_route_and_option_is_described(server: Server) -> None:
    for path in server.get("/openapi.json").json()["paths"]:
        if path != "/v1/models/{name}":
            assert any(f"{path}{end}" in TEXT for end in "`,?"), path


# ---- programs that cannot be run here, with the fields that they send


def address(server: Server, url: str) -> str:
    assert url.startswith("http://127.0.0.1:8080")
    return url.replace("http://127.0.0.1:8080", server.url)


def test_settings_of_zed(server: Server) -> None:
    (text,) = [code for kind, code in BLOCKS if kind == "json"]
    duo = json.loads(text)["language_models"]["openai_compatible"]["duo"]
    (model,) = duo["available_models"]
    body = {"model": model["name"], "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
            "stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 8, "tools": [],
            "parallel_tool_calls": False}  # fmt: skip
    answer = httpx.post(address(server, duo["api_url"]) + "/chat/completions", json=body, timeout=HANG_S)
    lines = [line for line in answer.text.split("\n") if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"  # it cuts exactly that
    assert json.loads(lines[-2][6:])["usage"]["completion_tokens"] <= 8


def test_settings_of_codex(server: Server) -> None:
    toml = pytest.importorskip("tomllib")  # Python 3.11
    (text,) = [code for kind, code in BLOCKS if kind == "toml"]
    config = toml.loads(text)
    provider = config["model_providers"][config["model_provider"]]
    assert provider["wire_api"] == "responses"
    shell = {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}}
    body = {
        "model": config["model"],
        "instructions": "You are a coding agent.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
            {"type": "reasoning", "summary": [], "content": None, "encrypted_content": ""},
            {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "call_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": "a.py"},
        ],
        "tools": [
            {"type": "function", "name": "shell", "description": "Runs.", "strict": False, "parameters": shell},
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark"}},
            {"type": "web_search"},
        ],
        "tool_choice": "auto", "parallel_tool_calls": False, "store": False, "stream": True, "max_output_tokens": 8,
        "reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0", "text": {"verbosity": "medium"},
    }  # fmt: skip
    url = address(server, provider["base_url"]) + "/responses"
    # A program that embeds Codex gives its own name, and a gateway may leave only the tools.
    for headers in (
        {"User-Agent": "codex_cli_rs/0.147.0 (Debian 12)"},
        {"User-Agent": "Some-IDE/1", "originator": "ide"},
        {},
    ):
        answer = httpx.post(url, json=body, headers=headers, timeout=HANG_S)
        assert answer.status_code == 200, answer.text
        names = [name for name, _ in parsed(answer.text)]
        assert names[0] == "response.created" and names[-1] in ("response.completed", "response.incomplete")
    function, _, searches = body["tools"]
    for tools, code in (
        ([function, {"type": "local_shell"}], 200),
        ([function, searches], 400),
        ([{"type": "x"}], 400),
    ):
        assert httpx.post(url, json={**body, "tools": tools}, timeout=HANG_S).status_code == code


def test_settings_of_claude_code(server: Server) -> None:
    (line,) = [x for kind, code in BLOCKS if kind == "sh" for x in code.splitlines() if x.endswith(" claude")]
    env = dict(x.split("=", 1) for x in line.split()[:-1])
    kept = {"type": "ephemeral"}
    read = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    body = {
        "model": env["ANTHROPIC_MODEL"],
        "system": [{"type": "text", "text": "You are a coding agent.", "cache_control": kept}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Read a.py.", "cache_control": kept}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "A file.", "signature": ""},
                {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a.py"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "pass", "is_error": False}]},
        ],
        "tools": [{"name": "Read", "description": "Reads.", "input_schema": read}],
        "metadata": {"user_id": "u"}, "max_tokens": 8, "temperature": 1, "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }  # fmt: skip
    headers = {"Authorization": f"Bearer {env['ANTHROPIC_AUTH_TOKEN']}", "anthropic-version": "2023-06-01"}
    url = address(server, env["ANTHROPIC_BASE_URL"]) + "/v1/messages"
    answer = httpx.post(url + "?beta=true", json=body, headers=headers, timeout=HANG_S)
    assert answer.status_code == 200, answer.text
    names = [name for name, _ in parsed(answer.text)]
    assert names[0] == "message_start" and names[-1] == "message_stop"
    counted = {k: body[k] for k in ("model", "system", "messages", "tools")}
    found = httpx.post(url + "/count_tokens", json=counted, headers=headers, timeout=HANG_S).json()
    assert found["input_tokens"] > 5


def test_every_figure_is_described(server: Server) -> None:
    server.post("/completion", {"prompt": "a", "n_predict": 2})
    lines = server.get("/metrics").text.splitlines()
    names = {
        line.split(" ")[2] for line in lines if line.startswith("# TYPE ") and not line.split()[2].endswith("_created")
    }
    told = set(re.findall(r"`(duo_\w+)", TEXT))
    sums = {f"duo_{name}_total" for name in SUMS}
    assert names - sums - {"duo_start_time_seconds", "duo_ready"} <= told
    assert told <= names
