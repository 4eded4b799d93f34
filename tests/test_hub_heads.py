"""Draft heads in repositories: which file is taken, as llama.cpp takes it (common/arg.cpp, common/download.cpp)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hub_server import REPO, FakeHub

from duo import Duo, DuoError
from duo.models.demo import demo_pair
from duo.models.hub.head_files import KINDS, find, kinds_of
from duo.models.hub.repository import Hub, parse
from duo.models.pairs import find as pair

HEAD = (pair("demo-eagle3").folder / "duo-demo-eagle3-q8_0.gguf").read_bytes()
HEADS = "someone/Tales-Heads"
Run = Callable[..., tuple[int, str, str]]
LINE = ("-p", "Once", "-n", "3", "-c", "256", "--temp", "0")


@pytest.fixture(autouse=True)
def repositories(fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    fake.repos[HEADS] = {"README.md": b"heads", "eagle3-tales-Q8_0.gguf": HEAD}
    fake.repos[REPO]["eagle3-tales-Q8_0.gguf"] = HEAD


@pytest.mark.parametrize(
    ("names", "model", "quant", "best"),
    [
        (["mtp-x-Q8_0.gguf", "mtp-x-Q4_K_M.gguf", "x-Q4_K_M.gguf"], "x-Q4_K_M.gguf", None, 1),  # by bits
        (["mtp-x-Q8_0.gguf", "mtp-x-BF16.gguf"], "x-Q6_K.gguf", None, 0),
        (["mtp-x-Q4_0.gguf", "mtp-x-Q4_K_M.gguf"], "", "q4_k_m", 1),  # by name
        (["mtp-x.gguf", "Q8_0/mtp-x.gguf"], "Q8_0/x-Q8_0-00001-of-00002.gguf", None, 1),  # the nearest folder
        (["mtp-x.gguf", "Q8_0/mtp-x.gguf"], "x-Q8_0.gguf", None, 0),
        (["Q8_0/mtp-x.gguf"], "", None, None),
        (["mtp-x-Q8_0-00002-of-00002.gguf", "mtp-x-Q8_0-00001-of-00002.gguf"], "", None, 1),
        (["eagle3-x.gguf", "dflash-x.gguf", "dspark-x.gguf"], "x.gguf", None, 2),  # the order of kinds
        (["x-Q8_0.gguf", "mmproj-x.gguf", "mtp-x.txt"], "x-Q8_0.gguf", None, None),
        (["x-MTP-Q8_0.gguf", "x-mtp-Q8_0.gguf"], "", None, 1),  # anywhere in the name
        (["mtp-files/x.gguf"], "", None, None),  # above nothing
        (["mtp-files/x.gguf"], "mtp-files/y.gguf", None, 0),
    ],
)
def test_which_file_is_the_head(names: list[str], model: str, quant: str | None, best: int | None) -> None:
    assert find(names, KINDS, model, quant) == (None if best is None else names[best])


def test_a_model_with_a_heads_name_is_found_by_its_whole_name(fake: FakeHub) -> None:
    name = "tales-mtp-q4_k_m.gguf"
    fake.repos["someone/Tales-MTP"] = {name: fake.repos[REPO]["tales-Q2_K.gguf"]}
    with pytest.raises(DuoError) as e:
        Hub().fetch(parse("someone/Tales-MTP"))
    assert str(e.value) == f"{fake.url}/someone/Tales-MTP has no GGUF model; name a file of it ({name})"
    assert Hub().fetch(parse("someone/Tales-MTP", name)).name == name


def test_what_spec_type_asks_for() -> None:
    assert kinds_of(None) == ("mtp-", "dspark-", "dflash-", "eagle3-")
    assert kinds_of("draft-eagle3,ngram-map-k") == kinds_of(["draft-eagle3"]) == ("eagle3-",)
    assert kinds_of("draft-simple") == kinds_of("none") == kinds_of("ngram-mod") == ()
    with pytest.raises(DuoError, match="draft-eagle"):
        kinds_of("draft-eagle")


def test_a_repository_of_heads_alone_is_a_draft(run: Run, fake: FakeHub) -> None:
    target = str(demo_pair()[0])
    args = ("-m", target, "-hfd", HEADS, *LINE)
    code, text, err = run(*args)
    assert code == 0 and "+ draft eagle3-tales-Q8_0.gguf" in err
    n = fake.requests.total()
    assert run(*args, "--offline")[:2] == (0, text) and fake.requests.total() == n
    assert run("check", target, HEADS, "--offline")[0] == 0
    n = fake.requests.total()
    code, _, err = run("-hf", REPO, "-hfd", "no repository", *LINE)
    assert code == 1 and "is not a repository" in err and fake.requests.total() == n, "before any download"
    code, _, err = run("-m", target, "-hfd", HEADS, *LINE, "--spec-type", "draft-mtp")
    assert code == 1 and "has no GGUF model" in err


def test_a_head_beside_a_model_comes_before_it(run: Run) -> None:
    args = ("-hf", f"{REPO}:Q4_K_M", "-hfd", f"{REPO}:Q2_K", *LINE)
    assert "+ draft eagle3-tales-Q8_0.gguf" in run(*args)[2]
    assert "+ draft tales-Q2_K.gguf" in run(*args, "--spec-type", "draft-simple")[2]
    assert "+ draft tales-Q2_K.gguf" in run(*args, "--hf-file-draft", "tales-Q2_K.gguf")[2]


def test_the_targets_repository_has_the_head_that_spec_type_names(run: Run, fake: FakeHub) -> None:
    code, _, err = run("-hf", REPO, *LINE, "-md", "none")
    assert code == 0 and "eagle3" not in err
    n_sent = fake.n_sent
    code, _, err = run("-hf", REPO, *LINE, "--spec-type", "draft-eagle3")
    assert code == 0 and "+ draft eagle3-tales-Q8_0.gguf" in err and fake.n_sent == n_sent + len(HEAD)
    code, _, err = run("-hf", REPO, *LINE, "--spec-type", "draft-mtp")
    assert code == 1 and "MTP" in err, "neither the repository nor the file has any"


@pytest.mark.parametrize(
    ("args", "repos"),
    [
        (("-hf", REPO, "--spec-type", "draft-eagle3", *LINE), 1),
        (("bench", "-hf", REPO, "-md", "none", "-n", "2", "-c", "256", "--slots", "1,2", "--modes", "plain",
          "--questions", "1", "--repetitions", "1", "--warm-up", "0"), 1),
        (("race", "-hf", REPO, "-hfd", HEADS, *LINE), 2),
    ],
    ids=["run", "bench", "race"],
)  # fmt: skip
def test_a_command_asks_for_the_files_of_a_repository_once(
    run: Run, fake: FakeHub, args: tuple[str, ...], repos: int
) -> None:
    code, _, err = run(*args)
    assert (code, fake.requests["list"]) == (0, repos), err


def test_heads_without_a_network(fake: FakeHub, tmp_path: Path) -> None:
    said: list[str] = []
    hub = Hub(cache=tmp_path / "cache", offline=False, note=said.append)
    target = hub.fetch(parse(REPO))
    assert hub.fetch_head(parse(REPO), ("mtp",)) is None
    assert hub.fetch_head(parse(REPO), ("mtp", "eagle3")) == target.with_name("eagle3-tales-Q8_0.gguf")
    away = replace(hub, endpoint="http://127.0.0.1:9")
    assert away.fetch_head(parse(REPO), ("eagle3",)) == target.with_name("eagle3-tales-Q8_0.gguf")
    assert said == [], "the target's download tells it"


def test_from_pretrained_takes_heads_too() -> None:
    with Duo.from_pretrained(REPO, None, HEADS, n_ctx=128) as d:
        assert d.draft is not None and d.draft.head == "eagle3"
