"""/lora-adapters, and `lora` in requests: the scales are those that the server was started with."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Server, served

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from server_stand_ins import lora_for

from duo.models.demo import demo_pair


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lora_for(demo_pair()[0], tmp_path_factory.mktemp("lora") / "a.gguf")


@pytest.fixture(scope="module")
def server(adapter: Path) -> Iterator[Server]:
    with served(model=demo_pair()[0], lora_scaled={str(adapter): 0.5}, n_parallel=1) as s:
        yield s


def test_adapters_are_listed(server: Server, adapter: Path) -> None:
    one = {"id": 0, "path": str(adapter), "scale": 0.5, "task_name": "", "prompt_prefix": ""}
    assert server.get("/lora-adapters").json() == [one]


@pytest.mark.parametrize(
    ("asked", "status", "why"),
    [
        ([{"id": 0, "scale": 0.5}], 200, ""),
        ([{"id": 0, "scale": 0.5}, {"id": 7, "scale": 0}], 200, ""),
        ([{"id": 0, "scale": 0}], 501, "have the scales [0.5], not [0.0]"),
        ([], 501, "have the scales [0.5], not [0.0]"),
        ([{"id": 1, "scale": 1}], 501, "names adapter 1, and there are 1"),
        ([3], 501, "lora has 3"),
        ({"id": 0}, 400, "the body is not a list"),
    ],
    ids=str,
)
def test_only_the_scales_that_they_have(server: Server, asked: Any, status: int, why: str) -> None:
    answer = server.post("/lora-adapters", asked)
    assert answer.status_code == status and why in answer.text
    if not isinstance(asked, list):
        return
    text = server.post("/completion", {"prompt": "Once", "n_predict": 2, "lora": asked})
    # No list, or an empty one: as the server is.
    assert text.status_code == (400 if status == 501 and asked else 200) and (not asked or why in text.text)
