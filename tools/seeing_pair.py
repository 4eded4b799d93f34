"""Trains the tests' pair that sees: python tools/seeing_pair.py [--steps 1500] [--batch 64] [--out tests/data].

The target is a llama that reads a picture's rows from a projector of LLaVA's kind; both learn together to say what is
drawn (tests/drawn_scenes.py). The draft is a smaller llama that learns the captions alone. Every drawing is a new one.

The files of tests/data were not written by this script: a condensed copy of it trained them on a GPU (H100/H200, 16
cores) with 11,300 steps of 192 scenes, in about four minutes. The copy was not kept. On a CPU this script's loss was
0.05 after 300 steps of 64, which take minutes if nothing else runs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from drawn_scenes import ASKED, SIDE, drawn, scene, words
from gguf import GGUFValueType as Kind
from gguf_files import BOOL, F32, I32, STR, U32, Value, write
from torch import Tensor, nn

from duo.train.draft import tensors_of
from duo.train.gguf_out import write_model
from duo.train.layers import start_matrices
from duo.train.llama import Llama, LlamaShape
from duo.train.target_file import ModelFile

PATCH, N_SEEN, N_SEEN_FF, N_SEEN_LAYER, N_SEEN_HEAD = 8, 64, 128, 2, 2
EPS = 1e-6
END = "<|end|>"


class Vocabulary:
    """Byte-level BPE (GPT-2's) whose merges make each word one token: all beginnings of words are tokens, too."""

    def __init__(self) -> None:
        visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
        shown, n = {}, 0
        for byte in range(256):
            shown[byte] = chr(byte) if byte in visible else chr(256 + n)
            n += byte not in visible
        self.tokens, self.merges = [END, *shown.values()], []
        for word in words():
            for i in range(1, len(word) + 1):
                if (longer := shown[32] + word[:i]) not in self.tokens:
                    self.tokens.append(longer)
                    self.merges.append(f"{longer[:-1]} {word[i - 1]}")
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self._space = shown[32]

    def read(self, text: str) -> list[int]:
        """Words with a space before them, and . and : behind them."""
        ids = []
        for piece in text.replace(".", " .").replace(":", " :").split():
            ids.append(self.ids[piece if piece in ".:" else self._space + piece])
        return ids

    def tokenizer(self) -> list[tuple[str, Any, Kind, Kind | None]]:
        n = len(self.tokens)
        return [
            ("tokenizer.ggml.model", "gpt2", Kind.STRING, None),
            ("tokenizer.ggml.pre", "gpt-2", Kind.STRING, None),
            ("tokenizer.ggml.tokens", self.tokens, Kind.ARRAY, Kind.STRING),
            ("tokenizer.ggml.token_type", [3] + [1] * (n - 1), Kind.ARRAY, Kind.INT32),
            ("tokenizer.ggml.merges", self.merges, Kind.ARRAY, Kind.STRING),
            ("tokenizer.ggml.eos_token_id", 0, Kind.UINT32, None),
            ("tokenizer.ggml.add_bos_token", False, Kind.BOOL, None),
        ]


class SeeingLayer(nn.Module):
    """As clip.cpp's build in models/llava.cpp."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(N_SEEN, EPS), nn.LayerNorm(N_SEEN, EPS)
        self.attn_q, self.attn_k = nn.Linear(N_SEEN, N_SEEN), nn.Linear(N_SEEN, N_SEEN)
        self.attn_v, self.attn_out = nn.Linear(N_SEEN, N_SEEN), nn.Linear(N_SEEN, N_SEEN)
        self.ffn_up, self.ffn_down = nn.Linear(N_SEEN, N_SEEN_FF), nn.Linear(N_SEEN_FF, N_SEEN)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln1(x)
        q, k, v = (
            part(y).unflatten(-1, (N_SEEN_HEAD, -1)).transpose(1, 2) for part in (self.attn_q, self.attn_k, self.attn_v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        x = x + self.attn_out(mixed)
        return x + self.ffn_down(F.gelu(self.ffn_up(self.ln2(x)), approximate="tanh"))


class Projector(nn.Module):
    """Pictures [batch, 3, SIDE, SIDE] of -1 to 1 -> rows [batch, patches, n_text]."""

    def __init__(self, n_text: int) -> None:
        super().__init__()
        self.patch_embd = nn.Conv2d(3, N_SEEN, PATCH, PATCH, bias=False)
        self.position_embd = nn.Parameter(torch.randn((SIDE // PATCH) ** 2, N_SEEN) / 8)
        self.pre_ln, self.post_ln = nn.LayerNorm(N_SEEN, EPS), nn.LayerNorm(N_SEEN, EPS)
        self.blk = nn.ModuleList(SeeingLayer() for _ in range(N_SEEN_LAYER))
        self.first, self.last = nn.Linear(N_SEEN, n_text), nn.Linear(n_text, n_text)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.pre_ln(self.patch_embd(pictures).flatten(2).transpose(1, 2) + self.position_embd)
        for layer in self.blk:
            x = layer(x)
        return self.last(F.gelu(self.first(self.post_ln(x)), approximate="tanh"))

    def write(self, to: Path) -> None:
        tensors = {"v.position_embd.weight": self.position_embd}
        for name, p in self.named_parameters():
            if name != "position_embd":
                tensors[f"v.{name}".replace("v.first", "mm.0").replace("v.last", "mm.2")] = p
        sizes = {
            "image_size": SIDE, "patch_size": PATCH, "embedding_length": N_SEEN, "feed_forward_length": N_SEEN_FF,
            "block_count": N_SEEN_LAYER, "attention.head_count": N_SEEN_HEAD, "projection_dim": self.last.out_features,
        }  # fmt: skip
        header: dict[str, Value] = {
            "general.architecture": (STR, "clip"),
            "clip.has_vision_encoder": (BOOL, True),
            "clip.projector_type": (STR, "mlp"),
            "clip.use_gelu": (BOOL, True),
            "clip.vision.attention.layer_norm_epsilon": (F32, EPS),
            "clip.vision.feature_layer": (I32, [N_SEEN_LAYER]),  # LLaVA's is the last but one
            "clip.vision.image_mean": (F32, [0.5] * 3),
            "clip.vision.image_std": (F32, [0.5] * 3),
            **{f"clip.vision.{name}": (U32, n) for name, n in sizes.items()},
        }
        half = (".attn_", ".ffn_", "mm.")
        data = {n: t.detach().numpy() for n, t in tensors.items()}
        write(to, header, [
            (n, t.astype(np.float16) if t.ndim == 2 and any(h in n for h in half) else t, None) for n, t in data.items()
        ])  # fmt: skip


def logits(model: Llama, x: Tensor) -> Tensor:
    positions = torch.arange(x.shape[1])
    for layer in model.layers:
        x = layer(x, positions, model.freqs)
    return model.output(model.output_norm(x))


def llama(n_vocab: int, n_embd: int, n_layer: int, n_ff: int, seed: int) -> Llama:
    n_head = n_embd // 64
    model = Llama(LlamaShape(
        n_embd=n_embd, n_layer=n_layer, n_head=n_head, n_head_kv=n_head, n_head_dim=64, n_ff=n_ff, n_vocab=n_vocab,
        n_ctx=256, tied=True,
    ))  # fmt: skip
    start_matrices(model, seed, n_branches=2 * n_layer)
    return model


class Lessons:
    """New scenes without end."""

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        before, after = ASKED.split("<__media__>")
        self.before, self.after = vocabulary.read(before), vocabulary.read(after)
        self._vocabulary = vocabulary

    def batch(self, n: int) -> tuple[Tensor, Tensor]:
        """Captions [n, tokens], which end with END, and pictures [n, 3, SIDE, SIDE]."""
        scenes = [scene(self._rng) for _ in range(n)]
        ids = [[*self._vocabulary.read(s.caption), 0] for s in scenes]
        longest = max(map(len, ids))
        pixels = np.stack([drawn(s, self._rng) for s in scenes]).astype(np.float32) / 127.5 - 1
        padded = torch.tensor([[*x, *[-100] * (longest - len(x))] for x in ids])
        return padded, torch.tensor(pixels).permute(0, 3, 1, 2)


def loss_of(model: Llama, lessons: Lessons, captions: Tensor, rows: Tensor | None) -> Tensor:
    """Of the captions alone. rows: of pictures; None: they are left out."""
    n = captions.shape[0]
    before, after = (model.embedding(torch.tensor([part] * n)) for part in (lessons.before, lessons.after))
    x = torch.cat([before, *([rows] if rows is not None else []), after, model.embedding(captions.clamp(min=0))], 1)
    first = x.shape[1] - captions.shape[1] - 1
    return F.cross_entropy(logits(model, x)[:, first:-1].flatten(0, 1), captions.flatten())


def train(what: str, parameters: list[Tensor], loss: Callable[[], Tensor], n_steps: int, rate: float) -> None:
    """AdamW with a linear start and a cosine end."""
    optimizer = torch.optim.AdamW(parameters, rate, (0.9, 0.98), weight_decay=0.01)
    mean = 0.0
    for step in range(n_steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 100) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / n_steps)))
        value = loss()
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        mean += (value.item() - mean) / min(step + 1, 50)
        if (step + 1) % 100 == 0:
            print(f"{what}: {step + 1} of {n_steps} steps, loss {mean:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500, help="of the target; the draft has half as many")
    parser.add_argument("--batch", type=int, default=64, help="scenes of a step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tests" / "data")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    vocabulary = Vocabulary()
    lessons = Lessons(vocabulary, seed=1)
    target = llama(len(vocabulary.tokens), 128, 3, 256, 1)
    eyes = Projector(128)

    def seen() -> Tensor:
        captions, pictures = lessons.batch(args.batch)
        return loss_of(target, lessons, captions, eyes(pictures))

    train("target", [*target.parameters(), *eyes.parameters()], seen, args.steps, 2e-3)
    draft = llama(len(vocabulary.tokens), 64, 1, 128, 2)
    train("draft", [*draft.parameters()], lambda: loss_of(draft, lessons, lessons.batch(args.batch)[0], None),
          args.steps // 2, 4e-3)  # fmt: skip
    args.out.mkdir(exist_ok=True)
    card = {"made": "tools/seeing_pair.py", "steps": args.steps, "batch": args.batch, "data": "tests/drawn_scenes.py"}
    eyes.write(args.out / "seeing-mmproj.gguf")
    for model, name in ((target, "target"), (draft, "draft")):
        write_model(
            args.out / f"seeing-{name}.gguf", "llama", f"{name} that says what is drawn",
            model.shape.keys(model.shape.n_layer), tensors_of(model), cast(ModelFile, vocabulary), "q8_0", card,
        )  # fmt: skip


if __name__ == "__main__":
    main()
