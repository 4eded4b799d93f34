"""Projectors with random weights, for the shapes that libmtmd reads (clip.cpp in llama.cpp), and pictures."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from gguf_files import BOOL, F32, I32, STR, U32, Array, Value, header_of, rewrite, write
from model_files import Shape, random_model

N_EMBD, N_FF, N_LAYER, PATCH, SIZE = 32, 64, 2, 14, 56
KINDS = ("mlp", "gemma3", "qwen2vl_merger", "lightonocr", "internvl")


def projector(to: Path, kind: str, n_text: int, *, seed: int = 0) -> Path:
    """Writes a projector of libmtmd's `kind` for a model with embeddings of n_text numbers."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, Array] = {}

    def add(name: str, *shape: int, bias: bool = True) -> None:
        tensors[f"{name}.weight"] = rng.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)
        if bias:
            tensors[f"{name}.bias"] = rng.standard_normal(shape[0], np.float32) / 8

    def norm(name: str, n: int = N_EMBD) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = np.ones(n, np.float32), np.zeros(n, np.float32)

    n_patches = (SIZE // PATCH) ** 2
    patches = (N_EMBD, 3, PATCH, PATCH)
    tensors["v.patch_embd.weight"] = rng.standard_normal(patches, np.float32) / 16
    for i in range(N_LAYER):
        norm(f"v.blk.{i}.ln1")
        norm(f"v.blk.{i}.ln2")
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            add(f"v.blk.{i}.{name}", N_EMBD, N_EMBD)
        add(f"v.blk.{i}.ffn_up", N_FF, N_EMBD)
        add(f"v.blk.{i}.ffn_down", N_EMBD, N_FF)
    norm("v.post_ln")
    if kind == "mlp":  # LLaVA
        norm("v.pre_ln")
        tensors["v.class_embd"] = rng.standard_normal(N_EMBD, np.float32)
        tensors["v.position_embd.weight"] = rng.standard_normal((n_patches + 1, N_EMBD), np.float32)
        add("mm.0", n_text, N_EMBD)
        add("mm.2", n_text, n_text)
    elif kind == "gemma3":
        tensors["v.position_embd.weight"] = rng.standard_normal((n_patches, N_EMBD), np.float32)
        tensors["mm.input_projection.weight"] = rng.standard_normal((N_EMBD, n_text), np.float32) / 4
        tensors["mm.soft_emb_norm.weight"] = np.ones(N_EMBD, np.float32)
    elif kind == "lightonocr":  # as many rows as the picture has patches. Pixtral's is the same with a row after each
        # line of them, which libmtmd makes of memory that nobody has written, times 0: now and then it is NaN.
        add("mm.1", n_text, N_EMBD)
        add("mm.2", n_text, n_text)
    elif kind == "internvl":  # divides a picture into tiles
        tensors["v.class_embd"] = rng.standard_normal(N_EMBD, np.float32)
        tensors["v.position_embd.weight"] = rng.standard_normal((n_patches + 1, N_EMBD), np.float32)
        norm("mm.model.mlp.0", 4 * N_EMBD)
        add("mm.model.mlp.1", N_FF, 4 * N_EMBD)
        add("mm.model.mlp.3", n_text, N_FF)
    else:
        tensors["v.patch_embd.weight.1"] = rng.standard_normal(patches, np.float32) / 16
        add("mm.0", 4 * N_EMBD, 4 * N_EMBD)
        add("mm.2", n_text, 4 * N_EMBD)
    header: dict[str, Value] = {
        "general.architecture": (STR, "clip"),
        "clip.has_vision_encoder": (BOOL, True),
        "clip.projector_type": (STR, kind),
        "clip.use_gelu": (BOOL, True),
        "clip.vision.image_size": (U32, SIZE),
        "clip.vision.patch_size": (U32, PATCH),
        "clip.vision.embedding_length": (U32, N_EMBD),
        "clip.vision.feed_forward_length": (U32, N_FF),
        "clip.vision.block_count": (U32, N_LAYER),
        "clip.vision.attention.head_count": (U32, 2),
        "clip.vision.attention.layer_norm_epsilon": (F32, 1e-6),
        "clip.vision.projection_dim": (U32, n_text),
        "clip.vision.projector.scale_factor": (U32, 2),
        "clip.vision.preproc_max_tiles": (U32, 4),
        "clip.vision.image_mean": (F32, [0.5, 0.5, 0.5]),
        "clip.vision.image_std": (F32, [0.5, 0.5, 0.5]),
    }
    return write(to, header, [(n, t, None) for n, t in tensors.items()])


def mrope_model(to: Path) -> Path:
    """A model of random weights whose positions have several parts, as Qwen2-VL's."""
    plain = random_model(to.with_suffix(".plain"), "qwen2", "q8_0", Shape())
    header = {n.replace("qwen2.", "qwen2vl."): v for n, v in header_of(plain).items() if n.startswith("qwen2.")}
    header |= {"general.architecture": (STR, "qwen2vl"), "qwen2vl.rope.dimension_sections": (I32, [8, 12, 12, 0])}
    return rewrite(plain, to, put=header)


def png(width: int = 60, height: int = 40, seed: int = 0) -> bytes:
    """A picture of random colours."""
    rows = np.random.default_rng(seed).integers(0, 256, (height, width * 3), np.uint8)
    return png_of(width, height, b"".join(b"\0" + row.tobytes() for row in rows))


def png_of(width: int, height: int, raw: bytes, depth: int = 8, colour: int = 2, interlaced: bool = False) -> bytes:
    """A PNG file whose header says this size, with this data before compression."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
