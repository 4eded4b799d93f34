"""Small models with a tokenizer that a test writes: byte-pair encoding, SentencePiece, WordPiece.

The letters of all texts have one order, with gaps for other choices: a token's row in the output matrix says which byte
its text begins with, and its embedding says which byte its text ends with. So models of different vocabularies want the
same text. What they say also depends a little on all that they have read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from gguf_files import BOOL, F32, I32, STR, U32, Array, Value, write

Kind = Literal["gpt2", "llama", "bert"]  # tokenizer.ggml.model
KINDS: tuple[Kind, ...] = ("gpt2", "llama", "bert")
N_EMBD, N_FF = 64, 64
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # tokenizer.ggml.token_type
SPACE = "\u2581"


def byte_letters() -> list[str]:
    """The letter of each byte in GPT-2's vocabulary (bytes_to_unicode of its encoder.py)."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(others)) for b in range(256)]


@dataclass(frozen=True)
class Token:
    """text: as the file spells it. piece: what it writes; of a control token nothing."""

    text: str
    piece: bytes
    type: int = NORMAL


@dataclass(frozen=True)
class Vocabulary:
    """begin, end: the control tokens with these ids. merges: of byte-pair encoding."""

    kind: Kind
    tokens: tuple[Token, ...]
    begin: int
    end: int
    begins: bool = True  # the first of these tokens comes before each text
    merges: tuple[str, ...] = ()

    @property
    def header(self) -> dict[str, Value]:
        keys: dict[str, Value] = {
            "model": (STR, self.kind),
            "tokens": (STR, [t.text for t in self.tokens]),
            "token_type": (I32, [t.type for t in self.tokens]),
            "scores": (F32, [-float(i) for i in range(len(self.tokens))]),
            "bos_token_id": (U32, self.begin),
            "eos_token_id": (U32, self.end),
            "add_bos_token": (BOOL, self.begins),
            "add_eos_token": (BOOL, False),
        }
        if self.kind == "gpt2":
            keys |= {"pre": (STR, "gpt-2"), "merges": (STR, list(self.merges))}
        else:
            keys |= {"unknown_token_id": (U32, 0)}
        if self.kind == "bert":
            keys |= {"padding_token_id": (U32, 0), "seperator_token_id": (U32, self.end)}
            keys |= {"add_sep_token": (BOOL, False)}
        return {f"tokenizer.ggml.{name}": value for name, value in keys.items()}


def byte_pairs(words: Iterable[bytes], names: Sequence[str] = ("<|end|>",), *, begins: bool = False) -> Vocabulary:
    """Tokens of single bytes, and for each word its beginnings: a word may end in the middle of a character."""
    letters = byte_letters()
    merges: dict[str, None] = {}
    whole = {letters[b]: bytes([b]) for b in range(256)}
    for word in (*words, b"th"):  # gguf-py writes no empty list of merges
        for n in range(2, len(word) + 1):
            first, last = ("".join(letters[b] for b in part) for part in (word[: n - 1], word[n - 1 : n]))
            merges[f"{first} {last}"] = None
            whole[first + last] = word[:n]
    control = [Token(name, b"", CONTROL) for name in names]
    tokens = (*control, *(Token(text, piece) for text, piece in whole.items()))
    return Vocabulary("gpt2", tokens, 0, len(names) - 1, begins, tuple(merges))


def sentence_pieces(words: Iterable[str], letters: str, names: Sequence[str] = ("<s>", "</s>"), *,
                    by_bytes: bool = True) -> Vocabulary:  # fmt: skip
    """Tokens of whole characters. by_bytes: and one for each byte, for characters that have no token."""
    tokens = [Token("<unk>", b"", UNKNOWN), *(Token(name, b"", CONTROL) for name in names)]
    tokens += [Token(f"<0x{b:02X}>", bytes([b]), BYTE) for b in range(256)] if by_bytes else []
    texts = dict.fromkeys([*words, *letters])
    tokens += [Token(text.replace(" ", SPACE), text.encode()) for text in texts]
    return Vocabulary("llama", tuple(tokens), 1, len(names))


def word_pieces(words: Iterable[str], letters: str) -> Vocabulary:
    """Tokens of whole characters, each as the beginning of a word (with a space) and as another part of one."""
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    tokens = [Token(name, b"", CONTROL) for name in names]
    texts = dict.fromkeys(text for word in [*words, *letters] if word.strip() for text in (word, " " + word.lstrip()))
    tokens += [Token(text.replace(" ", SPACE), text.encode()) for text in texts]
    return Vocabulary("bert", tuple(tokens), 2, 3)


def write_model(to: Path, words: Vocabulary, order: bytes, seed: int, noise: float = 1.0) -> Path:
    """A model of the architecture llama. order: the bytes that all texts have; each one likes to follow the one before.
    seed: models of one seed mostly want the same text. noise: how much comes from all that they have read, and from
    what each vocabulary has of its own."""
    header: dict[str, Value] = {
        "general.architecture": (STR, "llama"),
        "llama.context_length": (U32, 512),
        "llama.embedding_length": (U32, N_EMBD),
        "llama.block_count": (U32, 1),
        "llama.feed_forward_length": (U32, N_FF),
        "llama.attention.head_count": (U32, 2),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "llama.vocab_size": (U32, len(words.tokens)),
    }
    rng = np.random.default_rng(seed)
    tensors = dict(_matrices(rng, noise))
    tensors |= _vectors(words, order, rng, seed, noise)
    return write(
        to, {**header, **words.header}, [(n, np.ascontiguousarray(x, np.float32), None) for n, x in tensors.items()]
    )


def _matrices(rng: np.random.Generator, noise: float) -> Iterable[tuple[str, Array]]:
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        yield f"blk.0.{name}.weight", rng.normal(0, 1.5 * noise / N_EMBD**0.5, (N_EMBD, N_EMBD))
    for name, shape in (("ffn_gate", (N_FF, N_EMBD)), ("ffn_up", (N_FF, N_EMBD)), ("ffn_down", (N_EMBD, N_FF))):
        yield f"blk.0.{name}.weight", rng.normal(0, 0.6 / N_EMBD**0.5, shape)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        yield f"{name}.weight", np.ones(N_EMBD)


def _vectors(words: Vocabulary, order: bytes, rng: np.random.Generator, seed: int, noise: float) -> Mapping[str, Array]:
    """The embedding of a byte that follows another is also what the output matrix looks for."""
    of_byte = rng.normal(0, 1, (256, N_EMBD))
    before = {b: order[i - 1] for i, b in enumerate(order)}
    own = np.random.default_rng([len(words.tokens), *words.kind.encode()])  # each vocabulary has its own
    embedding = own.normal(0, 0.1, (len(words.tokens), N_EMBD))
    output = own.normal(0, 0.06 * noise, (len(words.tokens), N_EMBD))
    for i, token in enumerate(words.tokens):
        if token.piece:
            embedding[i] += of_byte[token.piece[-1]]
            if token.piece[0] in before:
                output[i] += (0.1 + 0.01 * min(len(token.piece), 6)) * of_byte[before[token.piece[0]]]
                output[i] += np.random.default_rng([seed, *token.piece]).normal(0, 0.03, N_EMBD)  # as in any vocabulary
    return {"token_embd.weight": embedding, "output.weight": output}
