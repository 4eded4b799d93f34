"""Files of slots: what a place of the caches holds is saved, restored and erased, with the draft's part.

And files of prompts.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Server, served

from duo import BadValueError
from duo.generation.state import read_heads
from duo.server.settings import ServerSettings

PROMPT = "It was a dark and stormy night, and the old man sat by the fire and told a tale of the sea and of a ship"
BODY = {"prompt": PROMPT, "n_predict": 12, "temperature": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with served({"slot_save_path": str(folder)}, n_parallel=2) as s:
        yield s


def act(server: Server, slot: object, action: str, filename: object = "a.bin") -> tuple[int, dict[str, object]]:
    answer = server.post(f"/slots/{slot}?action={action}", {"filename": filename})
    return answer.status_code, answer.json()


def test_a_slot_goes_to_a_file_and_comes_back(server: Server, folder: Path) -> None:
    first = server.post("/completion", {**BODY, "id_slot": 0}).json()
    n = len(server.duo.tokenize(PROMPT, special=True))
    code, saved = act(server, 0, "save")
    assert code == 200 and saved["id_slot"] == 0 and saved["filename"] == "a.bin"
    assert n <= int(str(saved["n_saved"])) <= n + 12
    assert saved["n_written"] == (folder / "a.bin").stat().st_size and saved["timings"]["save_ms"] > 0  # type: ignore[index]
    with (folder / "a.bin").open("rb") as file:
        heads = read_heads(file, int(str(saved["n_written"])))
    assert heads[0].role == "target" and len(heads[0].tokens) == saved["n_saved"]

    code, erased = act(server, 0, "erase")
    assert code == 200 and erased == {"id_slot": 0, "n_erased": saved["n_saved"]}
    assert act(server, 0, "erase")[1]["n_erased"] == 0
    cold = server.post("/completion", {**BODY, "id_slot": 0}).json()
    assert cold["content"] == first["content"] and cold["timings"]["cache_n"] == 0

    for slot in (1, 0):  # into another place, too
        act(server, slot, "erase")
        code, restored = act(server, slot, "restore")
        assert code == 200 and restored["n_restored"] == saved["n_saved"] and restored["n_read"] == saved["n_written"]
        again = server.post("/completion", {**BODY, "id_slot": slot}).json()
        assert again["content"] == first["content"] and again["timings"]["cache_n"] == n - 1
        assert again["id_slot"] == slot


def test_it_comes_back_in_another_server(server: Server, folder: Path) -> None:
    first = server.post("/completion", {**BODY, "id_slot": 0}).json()
    act(server, 0, "save", "kept.bin")
    with served({"slot_save_path": str(folder)}, n_parallel=2) as other:
        assert act(other, 1, "restore", "kept.bin")[0] == 200
        again = other.post("/completion", BODY).json()
        assert again["content"] == first["content"] and again["timings"]["cache_n"] > 10 and again["id_slot"] == 1


@pytest.mark.parametrize(
    ("slot", "action", "name", "words"),
    [
        (0, "save", "../a.bin", "without a folder"),
        (0, "save", "/tmp/a.bin", "without a folder"),
        (0, "save", "a\\b", "without a folder"),
        (0, "save", "..", "without a folder"),
        (0, "save", "", "without a folder"),
        (0, "save", None, "without a folder"),
        (0, "save", "x" * 300, "without a folder"),
        (0, "save", "a\nb", "without a folder"),
        (0, "save", 5, "filename"),
        (0, "restore", "none.bin", "there is no file none.bin"),
        (0, "fetch", "a.bin", "action is 'fetch'"),
        (2, "save", "a.bin", "there are 2 slots"),
        ("-1", "save", "a.bin", "there are 2 slots"),
        ("x", "erase", "a.bin", "there are 2 slots"),
    ],
)
def test_mistakes_are_sentences(server: Server, slot: object, action: str, name: object, words: str) -> None:
    code, answer = act(server, slot, action, name)
    assert code == 400 and words in answer["error"]["message"]  # type: ignore[index]


def test_a_bad_file_changes_nothing(server: Server, folder: Path) -> None:
    server.post("/completion", {**BODY, "id_slot": 0})
    act(server, 0, "save", "good.bin")
    data = (folder / "good.bin").read_bytes()
    (folder / "none.txt").write_text("hello")
    (folder / "short.bin").write_bytes(data[:-5])
    (folder / "wrong.bin").write_bytes(data[:-5] + bytes(x ^ 255 for x in data[-5:]))
    for name, words in (("none.txt", "is not a prompt cache"), ("short.bin", "truncated"), ("wrong.bin", "damaged")):
        code, answer = act(server, 0, "restore", name)
        assert code == 400 and words in answer["error"]["message"]  # type: ignore[index]
    assert server.post("/completion", {**BODY, "id_slot": 0}).json()["timings"]["cache_n"] > 10
    (folder / "a folder").mkdir()
    code, answer = act(server, 0, "save", "a folder")
    assert code == 400 and "cannot be used" in answer["error"]["message"]  # type: ignore[index]
    shutil.rmtree(folder / "a folder")


def test_without_a_folder_it_says_how() -> None:
    with served() as s:
        answer = s.post("/slots/0?action=save", {"filename": "a.bin"})
        assert answer.status_code == 501 and "--slot-save-path" in answer.json()["error"]["message"]


def test_prompts_are_kept_in_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "new" / "prompts"
    with served({"log_prompts_dir": str(folder), "queue": 8}, n_parallel=2) as s:
        short = {"n_predict": 1, "max_tokens": 1}
        assert s.post("/completion", {**short, "prompt": "Once", "n_cmpl": 2}).status_code == 200
        assert s.post("/completion", {**short, "prompt": ["Es war", "einmal ä"]}).status_code == 200
        assert s.post("/completion", {**short, "prompt": [5, 6]}).status_code == 200
        chat = {**short, "messages": [{"role": "user", "content": "A tale!"}]}
        assert s.post("/v1/chat/completions", chat).status_code == 200
        assert s.post("/completion", {**short, "prompt": "Once", "temperature": "hot"}).status_code == 400
        files = sorted(folder.iterdir())
        assert [f.stat().st_mode & 0o77 for f in (*files, folder)] == [0] * 5  # they are nobody else's business
        once, two, ids, of_chat = (f.read_text("utf-8") for f in files)
        assert (once, json.loads(two), json.loads(ids)) == ("Once", ["Es war", "einmal ä"], [5, 6])
        assert "A tale!" in of_chat and of_chat != "A tale!"  # with its template
        shutil.rmtree(folder)
        assert s.post("/completion", {**short, "prompt": "Once"}).status_code == 200
    assert f"a prompt cannot be kept in {folder} (No such file or directory)" in caplog.text
    (tmp_path / "file").touch()
    with pytest.raises(BadValueError, match=r"\(--log-prompts-dir\) cannot be made"):
        ServerSettings.of({"log_prompts_dir": str(tmp_path / "file" / "x")}, "m")
