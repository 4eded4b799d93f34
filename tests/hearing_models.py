"""Projectors with random weights that hear, for the shapes that libmtmd reads (clip.cpp), and sound."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from gguf_files import BOOL, F32, STR, U32, Array, Value, write

N_EMBD, N_FF, N_LAYER, N_MEL, N_FRAMES = 32, 64, 1, 80, 1500  # frames of 30 seconds, as whisper's
RATE = 16_000
STACK = {"ultravox": 4, "voxtral": 2, "qwen2a": 1}  # frames side by side in a row; the last two take means of two first
ROWS = {"ultravox": 375, "voxtral": 375, "qwen2a": 750}  # of any sound up to 30 seconds


def hearing_projector(to: Path, kind: str, n_text: int, *, seed: int = 0) -> Path:
    """Writes a projector of libmtmd's `kind` for a model with embeddings of n_text numbers."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, Array] = {}

    def add(name: str, *shape: int, bias: bool = False) -> None:
        tensors[f"{name}.weight"] = rng.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)
        if bias:
            tensors[f"{name}.bias"] = rng.standard_normal(shape[0], np.float32) / 8

    def norm(name: str, n: int = N_EMBD, bias: bool = True) -> None:
        tensors[f"{name}.weight"] = np.ones(n, np.float32)
        if bias:
            tensors[f"{name}.bias"] = np.zeros(n, np.float32)

    for i, n in ((1, N_MEL), (2, N_EMBD)):
        tensors[f"a.conv1d.{i}.weight"] = (rng.standard_normal((N_EMBD, n, 3)) / 4).astype(np.float16)
        tensors[f"a.conv1d.{i}.bias"] = rng.standard_normal((N_EMBD, 1), np.float32) / 8
    tensors["a.position_embd.weight"] = rng.standard_normal((N_FRAMES, N_EMBD), np.float32) / 8
    for i in range(N_LAYER):
        norm(f"a.blk.{i}.ln1")
        norm(f"a.blk.{i}.ln2")
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            add(f"a.blk.{i}.{name}", N_EMBD, N_EMBD, bias=name != "attn_k")
        add(f"a.blk.{i}.ffn_up", N_FF, N_EMBD, bias=True)
        add(f"a.blk.{i}.ffn_down", N_EMBD, N_FF, bias=True)
    norm("a.post_ln")
    n_stacked = N_EMBD * STACK[kind]
    if kind == "ultravox":
        add("mm.a.mlp.1", 2 * N_FF, n_stacked)
        add("mm.a.mlp.2", n_text, N_FF)
        norm("mm.a.norm_pre", n_stacked, bias=False)
        norm("mm.a.norm_mid", N_FF, bias=False)
    elif kind == "voxtral":
        add("mm.a.mlp.1", n_text, n_stacked)
        add("mm.a.mlp.2", n_text, n_text)
    else:
        add("mm.a.fc", n_text, N_EMBD, bias=True)
    sizes = {
        "embedding_length": N_EMBD, "feed_forward_length": N_FF, "block_count": N_LAYER, "attention.head_count": 2,
        "projection_dim": n_text, "num_mel_bins": N_MEL, "projector.stack_factor": STACK[kind],
    }  # fmt: skip
    header: dict[str, Value] = {
        "general.architecture": (STR, "clip"),
        "clip.has_audio_encoder": (BOOL, True),
        "clip.projector_type": (STR, kind),
        "clip.audio.attention.layer_norm_epsilon": (F32, 1e-5),
        **{f"clip.audio.{name}": (U32, n) for name, n in sizes.items()},
    }
    return write(to, header, [(n, t, None) for n, t in tensors.items()])


def wav(seconds: float = 0.5, hertz: float = 440.0, rate: int = RATE) -> bytes:
    """A tone."""
    at = np.arange(int(seconds * rate)) / rate
    return wav_of((np.sin(2 * np.pi * hertz * at) * 20_000).astype("<i2").tobytes(), rate)


def wav_of(samples: bytes, rate: int = RATE, kind: int = 1, bits: int = 16, n_said: int | None = None) -> bytes:
    """A file of one channel. kind: 1 for integers, 3 for floats. n_said: bytes that the header says it has."""
    n = len(samples) if n_said is None else n_said
    form = struct.pack("<HHIIHH", kind, 1, rate, rate * bits // 8, bits // 8, bits)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + len(samples))
        + b"WAVEfmt \x10\0\0\0"
        + form
        + b"data"
        + struct.pack("<I", n)
        + samples
    )
