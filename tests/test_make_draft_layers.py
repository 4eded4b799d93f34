"""`duo make-draft`: which layers are left out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf_files import I32, rewrite
from made_drafts import ENGINE, PROMPTS, TARGET, asked, bench
from tiny_models import tiny
from waits import HANG_S

from duo import BadValueError, Duo
from duo.make_draft.layers import LayerSearch, Score, SilencedCopy, droppable, why_not
from duo.make_draft.make import make_draft
from duo.models.header import read_header


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo target; what layer 2 adds is zero."""
    to = tmp_path_factory.mktemp("identity") / "target.gguf"
    adds = ("blk.2.attn_output.weight", "blk.2.ffn_down.weight")
    return rewrite(TARGET, to, weights=lambda name, x: np.zeros_like(x) if name in adds else x)


def test_a_layer_that_does_nothing_is_left_out_first(identity: Path, tmp_path: Path) -> None:
    b = bench(identity)
    with Duo(identity, temperature=0.0, **{k: v for k, v in ENGINE.items() if "draft" not in k}) as d:
        for prompt in PROMPTS:
            given = d.tokenize(prompt, special=True)
            b.ends = [i for i in range(d.target.n_vocab) if d.target.is_end(i)]
            b.texts.append(([*given, *d.generate(prompt, max_tokens=32, ignore_eos=True).tokens], len(given)))
    copy = SilencedCopy(identity, tmp_path / "copy.gguf")

    def score(left_out: tuple[int, ...]) -> Score:
        copy.silence(left_out)
        return b.score(copy.path)

    whole = score(())
    assert whole.by_position[0] == 1.0  # the target is right about itself
    search = LayerSearch(
        droppable(read_header(identity), 4), score, lambda s, _: s.mean_length, ends=time.monotonic() + HANG_S
    )
    assert search.chosen(1) == (2,)
    alone = {t.left_out: t.score for t in search.trials}
    assert alone[(2,)] == whole  # leaving it out costs nothing
    assert alone[(1,)].mean_length < whole.mean_length


def test_layers_come_back_when_they_are_no_longer_silent(tmp_path: Path) -> None:
    copy = SilencedCopy(TARGET, tmp_path / "copy.gguf")
    whole = copy.path.read_bytes()
    copy.silence((1, 2))
    assert copy.path.read_bytes() != whole
    copy.silence((1,))
    one = copy.path.read_bytes()
    copy.silence((2,))
    copy.silence((1,))
    assert copy.path.read_bytes() == one != whole
    copy.silence(())
    assert copy.path.read_bytes() == whole


def fake_score(costs: dict[int, float]) -> Callable[[tuple[int, ...]], Score]:
    def score(left_out: tuple[int, ...]) -> Score:
        length = 5.0 - sum(costs[i] for i in left_out)
        return Score((length / 5,), length, 0.0)

    return score


COSTS = {1: 0.5, 2: 0.1, 3: 0.9, 4: 0.01, 5: 0.7, 6: 0.3}


@pytest.mark.parametrize("n, best", [(1, (4,)), (2, (2, 4)), (3, (2, 4, 6)), (6, (1, 2, 3, 4, 5, 6))])
def test_the_layers_that_cost_least_are_chosen(n: int, best: tuple[int, ...]) -> None:
    search = LayerSearch(tuple(COSTS), fake_score(COSTS), lambda s, _: 0.0, ends=time.monotonic() + HANG_S)
    assert search.chosen(n) == best


def test_auto_leaves_out_as_many_layers_as_pay() -> None:
    # A layer is worth 0.25 and costs what COSTS says.
    def worth(score: Score, left_out: Sequence[int]) -> float:
        return score.mean_length + 0.25 * len(left_out)

    search = LayerSearch(tuple(COSTS), fake_score(COSTS), worth, ends=time.monotonic() + HANG_S)
    assert search.chosen(None) == (2, 4)
    assert max(len(t.left_out) for t in search.trials) == 4  # it ends two rounds later
    assert search.spread(None) == (2, 4, 6)
    assert search.spread(2) == (2, 5)


def test_without_time_nothing_is_tried() -> None:
    search = LayerSearch(tuple(COSTS), fake_score(COSTS), lambda s, _: 0.0, ends=time.monotonic())
    assert search.chosen(None) is None and search.spread(None) is None and search.trials == []
    assert search.spread(3) == (2, 4, 6)


@pytest.mark.parametrize("name, why", [("nemotron_h", "a value for each layer"), ("qwen3next", "2 layers")])
def test_layers_stay_where_their_order_means_something(tmp_path: Path, name: str, why: str) -> None:
    h = read_header(tiny(name, TARGET, tmp_path / "model.gguf"))
    assert why in why_not(h, h.n_trunk)


def test_layers_stay_that_a_header_lists(tmp_path: Path) -> None:
    listed = rewrite(TARGET, tmp_path / "listed.gguf", put={"llama.feed_forward_length": (I32, [896] * 4)})
    assert "llama.feed_forward_length" in why_not(read_header(listed), 4)
    assert why_not(read_header(TARGET), 4) == ""
    with pytest.raises(BadValueError, match="--keep-layers 3 is not possible: its header has a value for each layer"):
        make_draft(asked(tmp_path / "draft.gguf", listed, n_layers=3, tries_layers=True))


@pytest.mark.parametrize("name", ["smollm3", "smallthinker", "nanbeige"])
def test_layers_stay_whose_number_means_something(name: str) -> None:
    assert why_not(replace(read_header(TARGET), architecture=name), 4).endswith("depends on its number")
