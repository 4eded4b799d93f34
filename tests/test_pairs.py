"""Pairs by name: the list that comes with duo, the user's own, and what is wrong with either."""

import json
from pathlib import Path

import pytest

from duo import DuoError
from duo.cli.main import main, program
from duo.models import pairs
from duo.models.demo import demo_pair
from duo.models.hub.repository import Hub

GOOD = """\
# mine
pairs:
  - name: small  # for the train
    target: {repo: me/Big-GGUF, quant: Q8_0}
    draft: {file: little.gguf}
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, which is not there yet."""
    monkeypatch.setattr("duo.models.pairs.user_config_path", lambda name: tmp_path / name)
    (tmp_path / "duo").mkdir()
    return tmp_path / "duo" / "models.yaml"


def written(own: Path, text: str) -> None:
    own.write_text(text, encoding="utf-8")


def error() -> str:
    with pytest.raises(DuoError) as e:
        pairs.entries()
    assert "\n" not in str(e.value)
    return str(e.value)


# ---- names


def test_a_wrong_name_gets_the_nearest_ones() -> None:
    with pytest.raises(DuoError) as e:
        pairs.find("qwen-3-32b")
    assert str(e.value).startswith("there is no pair qwen-3-32b; did you mean qwen3-32b")
    with pytest.raises(DuoError, match="there is no pair zzz; see duo pairs"):
        pairs.find("zzz")


# ---- the user's own


def test_the_users_own_list_adds_and_wins(own: Path) -> None:
    written(own, GOOD + "  - {name: demo, target: {file: a.gguf}, draft: {file: /b.gguf}}\n")
    known = pairs.entries()
    assert known["small"].own and known["demo"].own and not known["qwen3-32b"].own
    assert pairs.paths("demo", Hub(endpoint="http://127.0.0.1:9").fetch) == (own.parent / "a.gguf", Path("/b.gguf"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("me/Big-GGUF", "Big-GGUF", "line 4: pairs[0].target.repo is 'Big-GGUF', but string should match pattern"),
        ("quant: Q8_0", "quant: 8", "line 4: pairs[0].target.quant is 8, but input should be a valid string"),
        ("{file: little.gguf}", "{}", "line 5: pairs[0].draft: give repo (user/repo), or file with a path"),
        ("{file: little.gguf}", "{file: a, quant: Q8_0}", "line 5: pairs[0].draft: quant needs repo, and excludes"),
        ("    draft:", "    darft:", "line 5: pairs[0].darft: extra inputs are not permitted"),
        ("    draft: {file: little.gguf}", "", "line 3: pairs[0]: give draft, head: mtp (the target's own MTP layers)"),
        ("    draft: {file: little.gguf}", "    head: eagle3", "a head of the kind eagle3 is a file; give it as draft"),
        ("    draft: {file: little.gguf}", "    head: mpt", "line 5: pairs[0].head is 'mpt', but input should be"),
        ("quant: Q8_0}", "dense_gb: 3}", "line 4: pairs[0].target: dense_gb is a part of memory_gb; give both"),
        ("{file: little.gguf}", "{file: a}\n    colour: red", "line 6: pairs[0].colour is 'red', but extra inputs are"),
        ("name: small", "name: -ngl", "line 3: pairs[0].name is '-ngl', but string should match pattern"),
        ("pairs:", "couples:", "line 2: pairs: field required"),
        ("{file: little.gguf}", "{file: a}\n    memory_gb: [", "this is not YAML"),
        ("name: small", "name: *small", "line 3: this is not YAML"),
        ("{file: little.gguf}", "{file: a, memory_gb: -1}", "line 5: pairs[0].draft.memory_gb is -1, but input should"),
    ],
)
def test_mistakes_are_reported_with_line_and_field(own: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    written(own, GOOD.replace(old, new))
    text = error()
    assert text.startswith(f"{own}, line ")
    assert message in text


def test_two_pairs_of_one_name_are_refused(own: Path) -> None:
    written(own, GOOD + GOOD.split("pairs:\n")[1])
    assert error() == f"{own}, line 6: pairs[1].name is 'small', which is already in use; choose another name"


@pytest.mark.parametrize(
    "text",
    [
        "- a\n",
        "7\n",
        "pairs: {a: b}\n",
        "pairs:\n  - 3\n",
        "\x00",
        pytest.param("{" * 2000, marks=pytest.mark.daily),
        "!!bool foo",
        '!!int ""',
        "!!timestamp x",
    ],
)
def test_a_file_that_is_not_a_list_is_refused(own: Path, text: str) -> None:
    written(own, text)
    assert str(own) in error()


def test_a_file_that_is_not_utf8_is_refused(own: Path, capfd: pytest.CaptureFixture[str]) -> None:
    own.write_bytes(b"pairs: [\xff]")
    assert "is not UTF-8 (byte 8); convert it" in error()
    assert main(["pairs", "add", "x", "-m", "a", "-md", "b"]) == 1
    assert "is not UTF-8 (byte 8); convert it" in capfd.readouterr().err
    assert own.read_bytes() == b"pairs: [\xff]"


def test_a_folder_in_the_lists_place_is_named(own: Path, capfd: pytest.CaptureFixture[str]) -> None:
    own.mkdir()
    assert error() == f"the list of pairs {own} is a folder; move it away"
    assert main(["pairs", "add", "x", "-m", "a", "-md", "b"]) == 1
    assert "is a folder; move it away" in capfd.readouterr().err


def test_an_unknown_home_folder_is_named(own: Path) -> None:
    written(own, "pairs: [{name: small, target: {file: b}, draft: {file: ~no-such-user/a.gguf}}]")
    with pytest.raises(DuoError, match=r"~no-such-user/a\.gguf begins with an unknown home folder"):
        pairs.paths("small", lambda _: own)


def test_an_empty_list_counts_as_no_list(own: Path) -> None:
    for text in ("", "# nothing yet\n", "pairs: []\n"):
        written(own, text)
        assert not any(e.own for e in pairs.entries().values())


# ---- the commands


def test_add_writes_a_pair_that_runs(own: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target, draft = map(str, demo_pair())
    assert main(["pairs", "add", "tales", "-m", target, "-md", draft, "--notes", "for tests"]) == 0
    assert capfd.readouterr().out == f"added tales to {own}\n"
    assert main(["--pair", "tales", "-p", "Once", "-n", "2", "-c", "256"]) == 0
    assert "duo-demo-target" in capfd.readouterr().err


def test_add_keeps_what_is_there_and_its_comments(own: Path, capfd: pytest.CaptureFixture[str]) -> None:
    written(own, GOOD)
    more = ["-hf", "a/B-GGUF:Q6_K", "-hfd", "a/C-GGUF", "--hf-file-draft", "c.gguf", "--options", "-ngl 11"]
    assert main(["pairs", "add", "two", *more]) == 0
    assert own.read_text().startswith(GOOD)
    two = pairs.find("two").pair
    assert (two.target.quant, two.draft.file, two.placement) == ("Q6_K", "c.gguf", {"this machine": "-ngl 11"})
    assert main(["pairs", "add", "two", *more]) == 1
    assert "already has a pair two; use --replace, or another name" in capfd.readouterr().err
    assert main(["pairs", "add", "two", "-hf", "x/y", "-hfd", "x/z", "--replace"]) == 0
    assert pairs.find("two").pair.target.repo == "x/y"
    assert [e.pair.name for e in pairs.entries().values() if e.own] == ["small", "two"]


def test_a_list_with_all_fields_is_rewritten(own: Path) -> None:
    written(
        own,
        GOOD + "    head: mtp\n    ngrams: often\n    gain: '2'\n    sources: [a, b]\n    placement: {box: -ngl 0}\n",
    )
    small = pairs.find("small").pair
    for more in ([], ["--replace"]):
        assert main(["pairs", "add", "two", "-m", "t.gguf", "-md", "d.gguf", *more]) == 0
        assert pairs.find("small").pair == small


def test_a_list_that_is_rewritten_is_kept_beside_it_and_a_link_stays_one(own: Path) -> None:
    real = own.parents[1] / "mine.yaml"
    real.write_text(GOOD)
    own.symlink_to(real)
    models = ["-m", "t.gguf", "-md", "d.gguf"]
    assert main(["pairs", "add", "two", *models]) == 0
    longer, copy = real.read_text(), real.with_name("mine.yaml.bak")
    assert longer.startswith(GOOD) and own.is_symlink() and not copy.exists()
    for _ in range(2):
        assert main(["pairs", "add", "two", *models, "--replace"]) == 0
        assert copy.read_text() == longer
    assert own.is_symlink() and [p.name for p in pairs.read(real)] == ["small", "two"]


def test_add_keeps_the_names_of_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the hub's cache what they lead to has no name that says anything."""
    link = tmp_path / "m-00001-of-00002.gguf"
    link.symlink_to(tmp_path / "0123")
    assert main(["pairs", "add", "mine", "-m", str(link), "-md", "d.gguf"]) == 0
    assert pairs.find("mine").pair.target.file == str(link)
    assert main(["pairs", "add", "url", "-m", "https://example.org/x.gguf", "-md", "d.gguf"]) == 1
    assert "-m https://example.org/x.gguf is a URL, and a pair has files" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["pairs: []\n", "", "pairs: [{name: a, target: {file: x}, draft: {file: y}}]\n"])
def test_add_takes_lists_of_any_shape(own: Path, text: str) -> None:
    written(own, text)
    assert main(["pairs", "add", "b", "-m", "t.gguf", "-md", "d.gguf"]) == 0
    assert pairs.find("b").pair.target.file == str(Path("t.gguf").absolute())
    assert ("a" in pairs.entries()) == ("name: a" in text)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["x", "-m", "a"], "a pair needs one draft; give it with -md or -hfd"),
        (["x", "-m", "a", "-hf", "b/c", "-md", "d"], "a pair needs one target; give it with -m or -hf"),
        (["-x-", "-m", "a", "-md", "b"], ""),
        (["1x", "-m", "a", "-md", "b"], "name is '1x', but string should match pattern"),
        (["x", "-m", "~no-such-user/a", "-md", "b"], "~no-such-user/a begins with an unknown home folder"),
        (["x", "-m", "a", "-md", "b", "--options", "'-ngl"], "(No closing quotation); correct the quotes"),
        (
            ["x", "-m", "a", "-md", "b", "--hf-file-draft", "c"],
            "--hf-file-draft needs -hfd; leave it out",
        ),
        (["x", "-hf", "nonsense", "-md", "b"], "'nonsense' (-hf) is not a repository; write it as user/repo"),
    ],
)
def test_add_refuses_an_invalid_pair(
    own: Path, args: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["pairs", "add", *args]) == 1
    err = capfd.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not own.exists()


def test_pairs_are_listed_and_shown(own: Path, capfd: pytest.CaptureFixture[str]) -> None:
    written(own, GOOD)
    assert main(["pairs"]) == 0
    out = capfd.readouterr().out
    assert all(name in out for name in pairs.entries())
    assert next(line for line in out.splitlines() if line.startswith("small")).rstrip().endswith("yours")
    assert main(["pairs", "--json"]) == 0
    listed = json.loads(capfd.readouterr().out)
    assert {p["name"]: p["own"] for p in listed} == {n: e.own for n, e in pairs.entries().items()}
    assert main(["pairs", "show", "llama-3-70b"]) == 0
    shown = capfd.readouterr().out
    assert "duo --pair llama-3-70b -ngl auto -ngld 99" in shown
    assert "licence: Llama 3 Community License" in shown
    assert "expected gain: computed from sizes, not measured: if 60% to 90%" in shown
    assert main(["pairs", "show", "qwen2.5-coder-1.5b"]) == 0
    assert "not measured" not in capfd.readouterr().out  # somebody has
    assert main(["pairs", "show", "lama-3-70b"]) == 1
    assert "did you mean llama-3-70b" in capfd.readouterr().err


def test_pairs_can_be_named_wherever_models_can() -> None:
    for name in ("run", "bench", "tune"):
        command = program.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        options = {o for p in command.params for o in p.opts}
        assert {"--pair", "-m", "-md", "-hf", "-hfd", "--hf-file", "--hf-file-draft", "--offline"} <= options, name
