"""Small local models in place of those that llama-server's tests download: a cache of the hub under the same names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFWriter

from duo.models.demo import demo_pair

COMMIT = "0" * 40
# Repository and file, as the tests or llama.cpp's cache name them. All of these become the demo target.
WRITERS = (
    ("ggml-org/test-model-stories260K", "stories260K-F32.gguf"),
    ("ggml-org/test-model-stories260K-infill", "stories260K-infill-F32.gguf"),
    ("ggml-org/stories15M_MOE", "stories15M_MOE-F16.gguf"),
    ("ggml-org/tinygemma3-GGUF", "tinygemma3-Q8_0.gguf"),
    ("ggml-org/models", "tinyllamas/stories260K.gguf"),
)
SPLIT = ("ggml-org/models", "tinyllamas/split/stories15M-q8_0.gguf")
N_PARTS = 3
PROJECTOR = ("ggml-org/tinygemma3-GGUF", "mmproj-tinygemma3.gguf")
ENCODER = ("ggml-org/models", "bert-bge-small/ggml-model-f16.gguf")
RERANKER = ("ggml-org/models", "jina-reranker-v1-tiny-en/ggml-model-f16.gguf")
ENCODER_VOCABULARY = "ggml-vocab-bert-bge.gguf"  # in llama.cpp's folder models
N_EMBD, N_FF, N_CTX = 64, 128, 512
# Between these the demo target has code to fill in, as the model for /infill has. It was not trained for that.
FIM = {"prefix": 5, "suffix": 6, "middle": 7}


def write_cache(to: Path, llama_models: Path) -> None:
    """A cache of the hub in the folder `to`. llama_models: llama.cpp's folder models, for a vocabulary."""
    target, _ = demo_pair()
    for repo, file in WRITERS:
        if repo.endswith("infill"):
            _with_fim_tokens(target, _place(to, repo, file))
        else:
            shutil.copyfile(target, _place(to, repo, file))
    _split(target, _place(to, *SPLIT))
    projector_for(target, _place(to, *PROJECTOR))
    for (repo, file), reranks in ((ENCODER, False), (RERANKER, True)):
        _encoder(llama_models / ENCODER_VOCABULARY, _place(to, repo, file), reranks=reranks)


def _place(cache: Path, repo: str, file: str) -> Path:
    folder = cache / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    path = folder / "snapshots" / COMMIT / file
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def lora_for(target: Path, to: Path) -> Path:
    """A LoRA with small random weights for one matrix of the target."""
    tensor = next(t for t in GGUFReader(target).tensors if t.name == "blk.0.attn_q.weight")
    n_in, n_out = (int(n) for n in tensor.shape)
    rng = np.random.default_rng(1)
    w = GGUFWriter(to, "llama")
    w.add_string("general.type", "adapter")
    w.add_string("adapter.type", "lora")
    w.add_float32("adapter.lora.alpha", 8.0)
    w.add_tensor(f"{tensor.name}.lora_a", rng.normal(0, 0.2, (4, n_in)).astype(np.float32))
    w.add_tensor(f"{tensor.name}.lora_b", rng.normal(0, 0.2, (n_out, 4)).astype(np.float32))
    return _written(w, to)


def _with_fim_tokens(source: Path, to: Path) -> Path:
    reader = GGUFReader(source)
    w = GGUFWriter(to, "llama")
    _copy_header(reader, w)
    for name, token in FIM.items():
        w.add_uint32(f"tokenizer.ggml.fim_{name[:3]}_token_id", token)
    for t in reader.tensors:
        w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    return _written(w, to)


def _split(source: Path, to: Path) -> None:
    """The model in N_PARTS files, which are called after `to`."""
    reader = GGUFReader(source)
    w = GGUFWriter(to, "llama", split_max_tensors=-(-len(reader.tensors) // N_PARTS))
    _copy_header(reader, w)
    for t in reader.tensors:
        w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    _written(w, to)


def _copy_header(reader: GGUFReader, w: GGUFWriter, prefix: str = "") -> None:
    for name, field in reader.fields.items():
        if name.startswith(prefix) and not name.startswith("GGUF.") and name != "general.architecture":
            w.add_key_value(name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)


def _encoder(vocabulary: Path, to: Path, *, reranks: bool) -> Path:
    """BERT with one layer of random weights and the vocabulary of bge-small."""
    reader = GGUFReader(vocabulary)
    w = GGUFWriter(to, "bert")
    _copy_header(reader, w, "tokenizer.")
    n_vocab = len(reader.fields["tokenizer.ggml.tokens"].data)
    w.add_context_length(N_CTX)
    w.add_embedding_length(N_EMBD)
    w.add_block_count(1)
    w.add_feed_forward_length(N_FF)
    w.add_head_count(4)
    w.add_layer_norm_eps(1e-12)
    w.add_causal_attention(False)
    w.add_uint32("bert.pooling_type", 4 if reranks else 2)
    rng = np.random.default_rng(1)

    def add(name: str, *shape: int, dtype: Any = np.float32) -> None:
        w.add_tensor(name, (rng.standard_normal(shape) * 0.3).astype(dtype))

    def norm(name: str) -> None:
        w.add_tensor(f"{name}.weight", np.ones(N_EMBD, np.float32))
        add(f"{name}.bias", N_EMBD)

    add("token_embd.weight", n_vocab, N_EMBD, dtype=np.float16)
    add("position_embd.weight", N_CTX, N_EMBD)
    add("token_types.weight", 2, N_EMBD)
    norm("token_embd_norm")
    matrices = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (N_EMBD, N_EMBD))
    for name, (n_out, n_in) in {**matrices, "ffn_up": (N_FF, N_EMBD), "ffn_down": (N_EMBD, N_FF)}.items():
        add(f"blk.0.{name}.weight", n_out, n_in, dtype=np.float16)
        add(f"blk.0.{name}.bias", n_out)
    norm("blk.0.attn_output_norm")
    norm("blk.0.layer_output_norm")
    if reranks:
        add("cls.weight", N_EMBD, N_EMBD)
        add("cls.bias", N_EMBD)
        add("cls.output.weight", 1, N_EMBD)
        add("cls.output.bias", 1)
    return _written(w, to)


def _written(w: GGUFWriter, to: Path) -> Path:
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return to


def projector_for(target: Path, to: Path) -> Path:
    """LLaVA's projector with one layer of random weights: a picture becomes 64 rows of the target's embeddings."""
    n_embd, patch, side = 32, 14, 8  # patches in a line of a picture
    n_text = next(int(t.shape[0]) for t in GGUFReader(target).tensors if t.name == "token_embd.weight")
    rng = np.random.default_rng(1)
    w = GGUFWriter(to, "clip")
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", "mlp")
    w.add_bool("clip.use_gelu", True)
    sizes = {"image_size": patch * side, "patch_size": patch, "embedding_length": n_embd, "feed_forward_length": n_embd,
             "block_count": 1, "projection_dim": n_text, "attention.head_count": 2}  # fmt: skip
    for name, n in sizes.items():
        w.add_uint32(f"clip.vision.{name}", n)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    for name in ("image_mean", "image_std"):
        w.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])

    def add(name: str, *shape: int) -> None:
        w.add_tensor(name, (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32))

    add("v.patch_embd.weight", n_embd, 3, patch, patch)
    add("v.class_embd", n_embd)
    add("v.position_embd.weight", side * side + 1, n_embd)
    for name in ("v.pre_ln", "v.post_ln", "v.blk.0.ln1", "v.blk.0.ln2"):
        w.add_tensor(f"{name}.weight", np.ones(n_embd, np.float32))
        w.add_tensor(f"{name}.bias", np.zeros(n_embd, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down"):
        add(f"v.blk.0.{name}.weight", n_embd, n_embd)
        add(f"v.blk.0.{name}.bias", n_embd)
    for name, n_in in (("mm.0", n_embd), ("mm.2", n_text)):
        add(f"{name}.weight", n_text, n_in)
        add(f"{name}.bias", n_text)
    return _written(w, to)
