"""`duo -m X` alone: what the target brings along drafts, its MTP layers or a file beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_files import STR, rewrite
from hosts import KERNELS
from mtp_models import foreseeing
from other_vocabularies import shuffled
from tiny_models import tiny

from duo import _core
from duo.errors import BadValueError, DoesNotFitError, DuoError
from duo.models.beside import find
from duo.models.demo import demo_head, demo_pair
from duo.models.file_name import base_name

pytestmark = pytest.mark.usefixtures("empty_lists")
TARGET, DRAFT = demo_pair()
LINE = ("-p", "once upon a time", "-n", "12", "--temp", "0", "--ignore-eos", "-c", "256")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A target in a folder of its own."""
    return Path(shutil.copy(TARGET, tmp_path / "Some-Model-8B-UD-Q4_K_XL.gguf"))


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("GLM-4.5-Air-UD-Q4_K_XL-00001-of-00002.gguf", "glm-4.5-air"),
        ("Qwen3.6-35B-A3B-Q8_0.gguf", "qwen3.6-35b-a3b"),
        ("gpt-oss-20b-mxfp4.gguf", "gpt-oss-20b"),
        ("Model.i1-IQ2_XXS.gguf", "model"),
        ("model-bf16.gguf", "model"),
        ("model.gguf", "model"),
        ("Qwen3-8B-Q4_K_M.packed.gguf", "qwen3-8b"),
    ],
)
def test_the_name_of_a_model(name: str, base: str) -> None:
    assert base_name(Path(name)) == base


@pytest.mark.parametrize(
    "name",
    ["draft-any.gguf", "mtp-some-model-8b-Q8_0.gguf", "Some-Model-8B-draft-Q4_0.gguf", "some-model-8b.eagle3.gguf"],
)
def test_a_file_beside_the_target_is_found(name: str, target: Path) -> None:
    assert (found := find(str(target))).path is None and not found.own and not found.why_not
    shutil.copy(DRAFT, target.with_name(name))
    shutil.copy(TARGET, target.with_name("mmproj-x.gguf"))  # is no model
    assert find(str(target)).path == str(target.with_name(name))


@pytest.mark.parametrize(
    "name", ["mtp-other-Q8_0.gguf", "draft-x.gguf", "Some-Model-8B-Q8_0.gguf", "Some-Model-8Bx.gguf"]
)
def test_where_other_models_lie_a_draft_names_its_target(name: str, target: Path) -> None:
    shutil.copy(TARGET, target.with_name("Another-3B-imatrix-Q4_0.gguf"))  # made with one
    shutil.copy(DRAFT, target.with_name(name))
    assert find(str(target)).path is None
    shutil.copy(DRAFT, target.with_name("mtp-Some-Model-8B-F16.gguf"))
    assert find(str(target)).path == str(target.with_name("mtp-Some-Model-8B-F16.gguf"))


def test_of_several_a_head_comes_first_and_then_the_smallest(target: Path) -> None:
    for n, name in enumerate(("draft-b-Q8_0.gguf", "draft-a-Q4_0.gguf", "Some-Model-8B-imatrix.gguf")):
        shutil.copy(DRAFT, target.with_name(name))
        os.truncate(target.with_name(name), DRAFT.stat().st_size + 8 * n)
    (target.parent / "draft-folder.gguf").mkdir()
    (target.parent / "locked").mkdir(mode=0)
    target.with_name("draft-locked.gguf").symlink_to(target.parent / "locked" / "draft.gguf")
    target.with_name("eagle3-nowhere.gguf").symlink_to("nowhere")
    assert find(str(target)).path == str(target.with_name("draft-b-Q8_0.gguf"))
    head = Path(shutil.copy(demo_head(), target.with_name("some-model-8b-eagle3.gguf")))
    assert find(str(target)).path == str(head)


def test_one_that_needs_no_translation_comes_first(target: Path) -> None:
    shuffled(DRAFT, target.with_name("draft-a.gguf"))
    assert find(str(target)).path == str(target.with_name("draft-a.gguf"))
    shutil.copy(DRAFT, target.with_name("draft-b.gguf"))
    assert find(str(target)).path == str(target.with_name("draft-b.gguf"))


def test_one_translation_is_enough(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled(DRAFT, target.with_name("draft-a.gguf"))
    rewrite(DRAFT, target.with_name("draft-b.gguf"), put={"tokenizer.ggml.pre": (STR, "qwen2")})
    tried: list[bytes] = []
    check = _core.vocab_check
    monkeypatch.setattr(_core, "vocab_check", lambda *a: (tried.append(a[1]), check(*a))[1])
    assert find(str(target)).path == str(target.with_name("draft-a.gguf"))
    assert [Path(os.fsdecode(x)).name for x in tried] == ["draft-a.gguf"]


def test_a_link_to_the_target_has_what_lies_beside_both(target: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "it.gguf"
    link.symlink_to(target)
    assert find(str(link)).path is None
    shutil.copy(DRAFT, target.with_name("draft-far.gguf"))
    assert find(str(link)).path == str(target.with_name("draft-far.gguf"))
    shutil.copy(DRAFT, link.with_name("draft-near.gguf"))
    assert find(str(link)).path == str(link.with_name("draft-near.gguf"))


def test_a_whole_model_with_mtp_layers_is_a_target(tmp_path: Path) -> None:
    target = tiny("hy_v3", DRAFT, tmp_path / "some-model-Q8_0.gguf")
    tiny("hy_v3", DRAFT, tmp_path / "some-model-mtp-Q8_0.gguf", n_mtp=1)
    assert "is a whole model with MTP layers, which draft for it if it is the target (-m)" in find(str(target)).why_not


def test_the_command_uses_it_and_says_so(target: Path, run: Run) -> None:
    alone = run("-m", target, *LINE)
    assert alone[0] == 0 and "+ draft" not in alone[2]
    shutil.copy(DRAFT, target.with_name("draft-small.gguf"))
    code, text, err = run("-m", target, *LINE)
    assert (code, text) == (0, alone[1])
    assert "+ draft draft-small.gguf" in err
    assert "draft-small.gguf lies beside the target and drafts for it; -md none does without it" in err
    assert "draft-small.gguf lies beside the target" in run("-m", target, "-md", "auto", *LINE)[2]
    for said in (("-md", "none"), ("--spec-type", "none"), ("--mode", "plain"), ("--spec-type", "ngram-map-k")):
        code, text, err = run("-m", target, *said, *LINE)
        assert (code, text) == (0, alone[1]) and "draft-small" not in err, said


def test_the_kind_of_head_that_is_asked_for(target: Path, run: Run) -> None:
    line = ("-m", target, "--spec-type", "draft-eagle3", *LINE)
    code, text, err = run(*line)
    assert code == 0 and "no draft was given" in err
    shutil.copy(DRAFT, target.with_name("draft-small.gguf"))
    shutil.copy(demo_head(), target.with_name("eagle3-any.gguf"))
    code, drafted, err = run(*line)
    assert (code, drafted) == (0, text) and "+ draft eagle3-any.gguf" in err
    assert "eagle3-any.gguf lies beside the target and is the head that --spec-type names" in err
    assert "eagle3-any" not in run("-m", target, "--spec-type", "draft-dflash", *LINE)[2]
    code, out, err = run("race", "-m", target, "--spec-type", "draft-eagle3", "-n", "8", "-c", "256", *KERNELS)
    assert code == 0 and "same text: yes" in out and err.count("eagle3-any.gguf lies") == 1


def test_check_takes_it_too(target: Path, run: Run) -> None:
    code, out, _ = run("check", target)
    assert code == 0 and "draft-small" not in out
    shutil.copy(DRAFT, target.with_name("draft-small.gguf"))
    code, out, err = run("check", target)
    assert code == 0 and "the draft fits the target" in out
    assert err == "duo: draft-small.gguf lies beside the target and is checked as its draft\n"
    assert "demo is the name of a pair, which has both models; give it alone" in run("check", "demo", target)[2]


def test_the_demo_target_alone(run: Run) -> None:
    code, _, err = run("-md", "none", *LINE)
    assert code == 0 and "no draft was given" in err and "duo-demo-draft" not in err
    assert "+ draft duo-demo-draft" in run("-md", "auto", *LINE)[2]


def test_a_file_that_does_not_fit_is_named(target: Path, run: Run) -> None:
    from test_pair_check import with_words

    strange = with_words(**{f"t{i}": f"x-{i}" for i in range(5, 4096)})
    rewrite(DRAFT, target.with_name("draft-small.gguf"), put=strange)
    code, _, err = run("-m", target, *LINE)
    assert code == 0 and "+ draft" not in err
    assert "a file beside the target has the name of a draft, but is not used: the draft does not fit the target" in err
    target.with_name("draft-small.gguf").write_bytes(b"GGUF, but no more")
    code, _, err = run("-m", target, *LINE)
    assert code == 0 and "but is not used" in err


def test_another_vocabulary_is_no_hindrance(target: Path, run: Run) -> None:
    shuffled(DRAFT, target.with_name("draft-small.gguf"))
    code, _, err = run("-m", target, *LINE)
    assert code == 0 and "with another vocabulary" in err and "lies beside the target" in err


def test_a_model_of_the_targets_size_is_no_draft(target: Path, run: Run) -> None:
    """Whole models with MTP layers have such names."""
    shutil.copy(TARGET, target.with_name("Some-Model-8B-MTP-Q4_K_M.gguf"))
    found = find(str(target))
    assert found.path is None and "more than half the target's size" in found.why_not
    assert run("-m", target, *LINE)[0] == 0


@pytest.mark.parametrize("error", [DoesNotFitError("both models need 9 GB"), BadValueError("put both on the CPU")])
def test_a_draft_that_cannot_be_loaded_is_left_out(
    error: DuoError, target: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from duo import loaded_pair

    shutil.copy(DRAFT, target.with_name("Draft-Small.gguf"))
    place = loaded_pair.place

    def refusing(*models: object, **more: object) -> object:
        if models[1] is not None:
            raise error
        return place(*models, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(loaded_pair, "place", refusing)
    code, text, err = run("-m", target, *LINE)
    assert code == 0 and text
    assert f"no draft is used: Draft-Small.gguf could draft for the target, but {error}" in err


def test_mtp_layers_of_the_target_draft(tmp_path: Path, run: Run) -> None:
    whole = foreseeing("hy_v3", DRAFT, tmp_path / "whole.gguf")
    assert find(os.fspath(whole)).own
    code, text, err = run("-m", whole, *LINE, "--strict")
    assert code == 0 and "+ its MTP layers" in err
    code, alone, err = run("-m", whole, *LINE, "--strict", "--spec-type", "none")
    assert (code, alone) == (0, text) and "MTP" not in err.splitlines()[0]
    code, alone, err = run("-m", whole, *LINE, "--strict", "-md", "none")
    assert (code, alone) == (0, text) and "no draft was given" in err


def test_layers_that_duo_cannot_run_are_named(tmp_path: Path, run: Run) -> None:
    whole = tiny("glm5-next", DRAFT, tmp_path / "whole.gguf", n_mtp=1)
    why = "the target has 1 MTP layer, but duo cannot run those of glm5-next models"
    code, text, err = run("-m", whole, *LINE)
    assert code == 0 and text and why in err and "+ its MTP layers" not in err
    code, out, _ = run("check", whole)
    assert code == 0 and why in out
    shutil.copy(DRAFT, whole.with_name("draft-small.gguf"))
    code, _, err = run("-m", whole, *LINE)
    assert code == 0 and why not in err and "draft-small.gguf lies beside the target" in err


@pytest.mark.daily
def test_race_bench_and_tune_take_it_too(target: Path, run: Run) -> None:
    shutil.copy(DRAFT, target.with_name("draft-small.gguf"))
    found = "draft-small.gguf lies beside the target and drafts for it"
    short = ("-m", target, "-c", "256", "--temp", "0")
    code, out, err = run("race", *short, "-n", "8", *KERNELS)
    assert code == 0 and found in err and "same text: yes" in out
    bench = ("bench", *short, "-n", "4", "--questions", "1", "--repetitions", "1", "--sync-lengths", "1")
    code, out, err = run(*bench)
    assert code == 0 and found in err and "draft-small.gguf" in out
    code, out, err = run("tune", *short)
    assert code == 0 and found in err
    for command in ("race", "tune"):
        code, out, err = run(command, *short, "-md", "none")
        assert code == 1 and "was given" in err and found not in err


def test_race_with_mtp_layers_of_the_target(tmp_path: Path, run: Run) -> None:
    whole = foreseeing("hy_v3", DRAFT, tmp_path / "whole.gguf")
    code, out, err = run("race", "-m", whole, "-c", "256", "--temp", "0", "-n", "12", "--strict")
    assert code == 0 and "+ its MTP layers" in err and "same text: yes" in out
