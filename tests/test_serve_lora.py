"""/lora-adapters, and `lora` in requests: scales that change while the server runs."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from served import Server, served

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from server_stand_ins import lora_for

from duo import Duo
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
PROMPT = "Once upon a time there was a little girl called Lily, who lived in a house near the sea. One day"
TEXT: dict[str, Any] = {"n_predict": 24, "temperature": 0}
OPTIONS: dict[str, Any] = {"cpu_kernels": "stock", "strict": True, "n_ctx": 512}


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lora_for(TARGET, tmp_path_factory.mktemp("lora") / "a.gguf")


@pytest.fixture(scope="module")
def texts(adapter: Path) -> dict[float, str]:
    """The text of a target that was loaded with the scale."""
    found = {}
    for scale in (0.0, 0.5, 1.0):
        with Duo(TARGET, lora_scaled={str(adapter): scale}, **OPTIONS) as d:
            found[scale] = d.generate(PROMPT, max_tokens=24, temperature=0.0).text
    assert len(set(found.values())) == 3
    return found


@pytest.fixture(scope="module")
def server(adapter: Path) -> Iterator[Server]:
    with served(model=TARGET, draft=DRAFT, lora_scaled={str(adapter): 0.5}, n_parallel=3, **OPTIONS) as s:
        yield s


def text(server: Server, **fields: Any) -> str:
    return str(server.post("/completion", {"prompt": PROMPT, **TEXT, **fields}).json()["content"])


def test_the_scales_of_the_server_change(server: Server, adapter: Path, texts: dict[float, str]) -> None:
    one = {"id": 0, "path": str(adapter), "scale": 0.5, "task_name": "", "prompt_prefix": ""}
    assert server.get("/lora-adapters").json() == [one] and text(server) == texts[0.5]
    for asked, scale in (
        ([{"id": 0, "scale": 1}], 1.0),
        ([], 0.0),  # who is not named has scale 0
        ([{"id": 0, "scale": 0.5}, {"id": 7, "scale": 0}], 0.5),
    ):
        answer = server.post("/lora-adapters", asked)
        assert answer.status_code == 200 and answer.json() == {"success": True}
        assert server.get("/lora-adapters").json() == [{**one, "scale": scale}] and text(server) == texts[scale]


def test_requests_at_once_have_their_own(server: Server, texts: dict[float, str]) -> None:
    scales = (0.0, 1.0, 0.5, 1.0, 0.0, 0.5)
    with ThreadPoolExecutor(len(scales)) as pool:
        got = list(pool.map(lambda s: text(server, lora=[{"id": 0, "scale": s}], cache_prompt=False), scales))
    assert got == [texts[s] for s in scales]
    assert text(server) == text(server, lora=[]) == texts[0.5]  # nothing is said
    shown = server.post("/completion", {"prompt": PROMPT, **TEXT, "lora": [{"id": 0, "scale": 1}]}).json()
    assert shown["generation_settings"]["lora"] == [{"id": 0, "scale": 1.0}]
    chat = {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 16,
        "temperature": 0,
        "chat_template": "chatml",
    }
    said = {s: server.post("/v1/chat/completions", {**chat, "lora": [{"id": 0, "scale": s}]}).text for s in (0.0, 1.0)}
    assert all('"choices"' in x for x in said.values())


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ([{"id": 1, "scale": 1}], "names adapter 1, and there are 1"),
        ([3], "lora has 3"),
        ([{"id": 0, "scale": "x"}], "lora has"),
        ([{"id": True, "scale": 1}], "lora has"),
        ([{"scale": 1}], "lora has"),
    ],
    ids=str,
)
def test_bad_values_change_nothing(server: Server, asked: Any, why: str) -> None:
    answer = server.post("/lora-adapters", asked)
    assert answer.status_code == 400 and why in answer.text
    of_request = server.post("/completion", {"prompt": PROMPT, "n_predict": 2, "lora": asked})
    assert of_request.status_code == 400 and why in of_request.text
    assert server.post("/lora-adapters", {"id": 0}).status_code == 400
    assert server.get("/lora-adapters").json()[0]["scale"] == 0.5
