"""The cache and the states of each kind of architecture, against what libllama says that it has made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bert_models import bert
from gguf_files import BOOL, U32, Value
from sizes import mostly_daily
from tiny_keys import keys_of
from tiny_models import KEPT, MTP, MTP_TIED, SNAPSHOTS, tiny

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.model import ModelOptions, with_mtp
from duo.placement.memory import need_of
from duo.placement.resolve_auto import needs

pytestmark = pytest.mark.full

DRAFT = demo_pair()[1]
N_CTX = 2040  # with spare cells for a tree of guesses it would be a step more than a state's one needs
# Half of their layers are recurrent, and have a matrix that others attend with.
ONE_MATRIX = ("qwen35", "qwen35moe", "qwen3next", "qwen4exp", "minimax-01")
INDEXED = ("deepseek32", "glm-dsa", "glm5-next", "qwen4exp", "minimax-m3", "hy_v4", "dots3note")
OTHERS = ("deepseek2", "deepseek4", "gpt-oss", "gemma2", "llama4", "minicpm3", "hrm_text", "mimo2", "falcon-h1")
_SIZE = re.compile(r"(?:llama_kv_cache|llama_memory_recurrent|llama_dsv4_comp_state): .*?size = +([\d.]+) MiB")


def made(log: Path) -> list[float]:
    """Sizes in MiB, of everything that a log says has been made; not those of buffers, which say it again."""
    lines = [line for line in log.read_text().splitlines() if "buffer size" not in line]
    return [float(m[1]) for line in lines if (m := _SIZE.match(line))]


def assert_exact(target: Path, log: Path, n_ctx: int = N_CTX) -> None:
    with Duo(target, n_ctx=n_ctx, log_file=log, mode="plain"):
        pass
    sizes = made(log)
    assert sizes
    n_bytes = need_of(read_header(target), n_ctx).total_cache
    assert n_bytes / 2**20 == pytest.approx(sum(sizes), abs=0.0051 * len(sizes))


@pytest.mark.parametrize(
    "name",
    mostly_daily(
        dict.fromkeys((*ONE_MATRIX, *INDEXED, *OTHERS, *SNAPSHOTS, *KEPT)),
        ("qwen35", "minimax-01", "deepseek32", "glm5-next", "deepseek4", "falcon-h1", "hrm_text"),
    ),
)
def test_a_cache_is_as_large_as_libllama_says(name: str, tmp_path: Path) -> None:
    mixture = name in ("minimax-m3", "hy_v4", "dots3note")
    n_trunk = 4 if name in ONE_MATRIX else 2
    target = tiny(name, DRAFT, tmp_path / "target.gguf", n_trunk=n_trunk, mixture=mixture)
    assert_exact(target, tmp_path / "log")
    if name in ONE_MATRIX:
        h = read_header(target)
        assert [bool(n) for n in h.n_head_kv] == [False, True] * (n_trunk // 2)


# Of Qwen3-Next a context is made twice, as it turns out that it has no snapshots.
@pytest.mark.parametrize("name", mostly_daily([n for n in (*MTP, *MTP_TIED) if n != "qwen3next"], ("bailingmoe3",)))
def test_caches_with_mtp_layers_are_as_large_as_libllama_says(name: str, tmp_path: Path) -> None:
    target, log = tiny(name, DRAFT, tmp_path / "target.gguf", n_mtp=1), tmp_path / "log"
    with Duo(target, n_ctx=N_CTX, log_file=log, spec_type="draft-mtp") as d:
        both = with_mtp(
            ModelOptions.of(d.options, "target", str(target)), ModelOptions.of(d.options, "draft", str(target))
        )
    n_bytes = sum(n.total_cache for n in needs(*both, [read_header(target)] * 2))
    sizes = made(log)
    assert n_bytes / 2**20 == pytest.approx(sum(sizes), abs=0.0051 * len(sizes))


# Gemma: layers with a sliding window have shorter heads, and the last ones use the cache of earlier ones. Nanbeige: all
# layers are computed twice.
KINDS: dict[str, tuple[int, dict[str, Value]]] = {
    "gemma4": (
        6,
        {
            "attention.key_length": (U32, 256),
            "attention.value_length": (U32, 256),
            "attention.key_length_swa": (U32, 128),
            "attention.value_length_swa": (U32, 128),
            "rope.dimension_count": (U32, 256),
            "rope.dimension_count_swa": (U32, 128),
            "attention.sliding_window_pattern": (BOOL, [i % 3 != 2 for i in range(6)]),
            "attention.shared_kv_layers": (U32, 3),
        },
    ),
    "gemma3n": (
        24,
        {
            "embedding_length_per_layer_input": (U32, 32),
            "altup.num_inputs": (U32, 4),
            "altup.active_idx": (U32, 0),
        },
    ),
    "nanbeige": (2, {"num_loops": (U32, 2)}),
}


@pytest.mark.parametrize("name", mostly_daily(KINDS, ("gemma4",)))
def test_layers_with_other_caches_are_as_large_as_libllama_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_trunk, more = KINDS[name]

    def keys(name: str, *args: int, **kwargs: bool) -> dict[str, Value]:
        return keys_of(name, *args, **kwargs) | {f"{name}.{key}": value for key, value in more.items()}

    monkeypatch.setattr("tiny_models.keys_of", keys)
    target = tiny(name, DRAFT, tmp_path / "target.gguf", seed=81, n_trunk=n_trunk, mixture=name == "gemma4")
    assert_exact(target, tmp_path / "log")


def test_states_of_several_texts_and_guesses_count(tmp_path: Path) -> None:
    """Of a compressed cache: cells and states of its own for each text, and a state for each guess."""
    target, log = tiny("deepseek4", DRAFT, tmp_path / "target.gguf"), tmp_path / "log"
    with SwitchedDuo(target, DRAFT, n_ctx=N_CTX, n_parallel=3, log_file=log):
        pass
    n_bytes = need_of(read_header(target), N_CTX, n_parallel=3, guesses=True).total_cache
    sizes = made(log)[:-1]  # the draft's is the last one
    assert n_bytes / 2**20 == pytest.approx(sum(sizes), abs=0.0051 * len(sizes))


def test_an_encoder_has_no_cache(tmp_path: Path) -> None:
    encoder, log = bert(tmp_path / "encoder.gguf"), tmp_path / "log"
    with Duo(encoder, embedding=True, log_file=log) as d:
        assert d.embed("a")
    assert made(log) == [] and need_of(read_header(encoder), N_CTX).total_cache == 0
