"""Random changes of a header: of bytes, numbers, types, lengths, shapes, offsets, names."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace

from benchmarks.torture.headers.parts import ARRAY, BOOL, F32, F64, I32, I64, SIZES, STRING, U32, U64, Key, Parts

SMALL = (0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 63, 64, 96, 100, 127, 128, 192, 255, 256, 512, 600, 1024, 4096, 65535)
BIG = (2**16, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**48, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-6, 1e30, 3e38, float("inf"), float("-inf"), float("nan"))
# Names that libllama looks for in some architecture.
NAMES = (
    "expert_count", "expert_used_count", "expert_group_count", "expert_group_used_count", "nextn_predict_layers",
    "attention.sliding_window", "attention.key_length", "attention.value_length", "attention.head_count_kv",
    "attention.causal", "attention.clamp_kqv", "attention.max_alibi_bias", "rope.dimension_sections",
    "rope.scaling.type", "rope.scaling.factor", "rope.freq_base", "pooling_type", "ssm.conv_kernel", "ssm.inner_size",
    "ssm.state_size", "ssm.time_step_rank", "ssm.group_count", "use_parallel_residual", "tensor_data_layout",
    "leading_dense_block_count", "expert_feed_forward_length", "logit_scale", "residual_scale", "embedding_scale",
    "attention.key_length_mla", "attention.kv_lora_rank", "decoder_start_token_id", "features_length",
    "embedding_length_out", "vocab_size", "attention.indexer.top_k", "wkv.head_size", "full_attention_interval",
)  # fmt: skip
OTHERS = (
    b"general.alignment", b"split.count", b"split.no", b"split.tensors.count", b"general.type", b"adapter.type",
    b"tokenizer.chat_template", b"tokenizer.ggml.precompiled_charsmap", b"tokenizer.ggml.pre",
    b"tokenizer.ggml.add_bos_token", b"tokenizer.ggml.eot_token_id",
)  # fmt: skip
ARCHITECTURES = (
    "llama", "llama4", "gemma", "gemma2", "gemma3", "gemma3n", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen3next",
    "phi2", "phi3", "bert", "t5", "t5encoder", "mamba", "mamba2", "jamba", "rwkv6", "rwkv7", "gpt2", "gptneox", "bloom",
    "falcon", "falcon-h1", "deepseek2", "command-r", "cohere2", "olmo2", "granite", "granitehybrid", "plamo2",
    "nemotron_h", "lfm2", "gpt-oss", "eagle3", "dflash", "clip", "wavtokenizer-dec", "dream", "llada", "glm4",
    "glm4moe", "mimo2", "minimax-m2", "grok", "exaone4", "openelm", "starcoder", "mpt", "stablelm", "internlm2",
    "arctic", "",
)  # fmt: skip
# Keys whose values matter; the vocabulary is most of the bytes.
_TEXT = (b"tokenizer.ggml.tokens", b"tokenizer.ggml.merges")
Change = Callable[[random.Random, Parts], Parts]


def number(rng: random.Random) -> int:
    return rng.choice((rng.choice(SMALL), rng.choice(SMALL), rng.choice(BIG), rng.getrandbits(rng.randint(1, 64))))


def packed(rng: random.Random, kind: int) -> bytes:
    """A random value of a kind, as a file has it."""
    if kind == STRING:
        text = rng.choice(
            (b"", b"x", b"llama", b"\xff\xfe", b"a" * 100, rng.randbytes(8), b"none", b"yarn", b"gpt2", b"\0")
        )
        return struct.pack("<Q", len(text)) + text
    if kind == F32:
        return struct.pack("<f", rng.choice(FLOATS))
    if kind == F64:
        return struct.pack("<d", rng.choice(FLOATS))
    if kind == BOOL:
        return bytes([rng.choice((0, 1, 1, 2, 255))])
    n = SIZES.get(kind, 4)
    return (number(rng) & (256**n - 1)).to_bytes(n, "little")


def array(rng: random.Random, n: int | None = None) -> bytes:
    kind = rng.choice((U32, I32, F32, STRING, BOOL, U64, I64, ARRAY, 13))
    n = rng.choice((0, 1, 2, 3, 4, 5, 8, 64, 600)) if n is None else n
    return struct.pack("<IQ", kind, n) + b"".join(packed(rng, kind) for _ in range(n))


def _key(rng: random.Random, p: Parts) -> int:
    """One that is not a list of texts, mostly."""
    found = [i for i, k in enumerate(p.keys) if k.name not in _TEXT]
    return rng.choice(found) if found and rng.random() < 0.95 else rng.randrange(max(1, len(p.keys)))


def value(rng: random.Random, p: Parts) -> Parts:
    i = _key(rng, p)
    k = p.keys[i]
    if k.kind == ARRAY:
        return p.with_key(i, value=array(rng))
    return p.with_key(i, value=packed(rng, k.kind))


def kind(rng: random.Random, p: Parts) -> Parts:
    """A value of another type, or the bytes of one as another."""
    i, to = _key(rng, p), rng.choice((*range(13), 13, 99, 2**32 - 1))
    if rng.random() < 0.3:
        return p.with_key(i, kind=to)
    return p.with_key(i, kind=to, value=array(rng) if to == ARRAY else packed(rng, to))


def length(rng: random.Random, p: Parts) -> Parts:
    """The length of a text or a list is not the true one."""
    found = [i for i, k in enumerate(p.keys) if k.kind in (STRING, ARRAY)]
    if not found:
        return p
    i = rng.choice(found)
    k = p.keys[i]
    at = 4 if k.kind == ARRAY else 0
    if len(k.value) < at + 8:  # the bytes of another type, by an earlier mutation
        return p
    (n,) = struct.unpack_from("<Q", k.value, at)
    to = rng.choice((n + 1, max(0, n - 1), n + rng.randrange(100), number(rng)))
    return p.with_key(i, value=k.value[:at] + struct.pack("<Q", to & (2**64 - 1)) + k.value[at + 8 :])


def element(rng: random.Random, p: Parts) -> Parts:
    """Bytes within a list."""
    found = [i for i, k in enumerate(p.keys) if k.kind == ARRAY and len(k.value) > 12]
    if not found:
        return p
    i = rng.choice(found)
    data = bytearray(p.keys[i].value)
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return p.with_key(i, value=bytes(data))


def name(rng: random.Random, p: Parts) -> Parts:
    i = _key(rng, p)
    to = rng.choice((
        p.keys[rng.randrange(len(p.keys))].name, b"", rng.randbytes(5), p.keys[i].name + b"x", p.keys[i].name[:-1],
        b"general.alignment", b"split.count", b"split.no", b"x" * 200,
    ))  # fmt: skip
    return p.with_key(i, name=to)


def drop(rng: random.Random, p: Parts) -> Parts:
    i = _key(rng, p)
    return p.with_keys(lambda keys: keys.pop(i))


def double(rng: random.Random, p: Parts) -> Parts:
    i = _key(rng, p)
    return p.with_keys(lambda keys: keys.insert(rng.randrange(len(keys)), keys[i]))


def _architecture(p: Parts) -> bytes:
    return next((k.value[8:] for k in p.keys if k.name == b"general.architecture"), b"llama")


def add(rng: random.Random, p: Parts) -> Parts:
    """A key that some architecture knows."""
    full = _architecture(p) + b"." + rng.choice(NAMES).encode()
    if rng.random() < 0.2:
        full = rng.choice(OTHERS)
    to = rng.choice((U32, U32, U32, I32, F32, BOOL, STRING, ARRAY, U64))
    data = array(rng) if to == ARRAY else packed(rng, to)
    return p.with_keys(lambda keys: keys.append(Key(full, to, data)))


def architecture(rng: random.Random, p: Parts) -> Parts:
    """Another architecture, with all its keys renamed, or with those of the old one."""
    old, new = _architecture(p), rng.choice(ARCHITECTURES).encode()
    renames = rng.random() < 0.8

    def change(keys: list[Key]) -> None:
        for i, k in enumerate(keys):
            if k.name == b"general.architecture":
                keys[i] = replace(k, value=struct.pack("<Q", len(new)) + new)
            elif renames and k.name.startswith(old + b"."):
                keys[i] = replace(k, name=new + k.name[len(old) :])

    return p.with_keys(change)


def shape(rng: random.Random, p: Parts) -> Parts:
    if not p.tensors:
        return p
    i = rng.randrange(len(p.tensors))
    old = list(p.tensors[i].shape)
    how = rng.randrange(4)
    if how == 0 and old:
        old[rng.randrange(len(old))] = number(rng)
    elif how == 1:
        old = [number(rng) for _ in range(rng.choice((0, 1, 2, 3, 4, 5, 8)))]
    elif how == 2:
        old.reverse()
    else:
        old.append(rng.choice((0, 1, 2)))
    return p.with_tensors(lambda ts: ts.__setitem__(i, replace(ts[i], shape=tuple(old))))


def tensor_kind(rng: random.Random, p: Parts) -> Parts:
    if not p.tensors:
        return p
    i, to = rng.randrange(len(p.tensors)), rng.choice((*range(42), 99, 2**31, 2**32 - 1))
    return p.with_tensors(lambda ts: ts.__setitem__(i, replace(ts[i], kind=to)))


def offset(rng: random.Random, p: Parts) -> Parts:
    if not p.tensors:
        return p
    i = rng.randrange(len(p.tensors))
    old = p.tensors[i].offset
    to = rng.choice((number(rng), old + 1, old + 32, max(0, old - 32), p.n_data, p.n_data - 32, 0))
    return p.with_tensors(lambda ts: ts.__setitem__(i, replace(ts[i], offset=to)))


def tensor_name(rng: random.Random, p: Parts) -> Parts:
    if not p.tensors:
        return p
    i, j = rng.randrange(len(p.tensors)), rng.randrange(len(p.tensors))
    old = p.tensors[i].name
    to = rng.choice((p.tensors[j].name, b"", rng.randbytes(6), old + b"x", b"blk.99999." + old, b"y" * 64, b"y" * 63,
                     old.replace(b"blk.1.", b"blk.7."), old.replace(b"weight", b"bias"), b"output.weight",
                     b"rope_freqs.weight", b"d2t", b"blk.2.nextn.eh_proj.weight"))  # fmt: skip
    return p.with_tensors(lambda ts: ts.__setitem__(i, replace(ts[i], name=to)))


def drop_tensor(rng: random.Random, p: Parts) -> Parts:
    return p.with_tensors(lambda ts: ts.pop(rng.randrange(len(ts))) if ts else None)


def counts(rng: random.Random, p: Parts) -> Parts:
    if rng.random() < 0.5:
        return replace(p, n_keys=rng.choice((len(p.keys) + 1, len(p.keys) - 1, number(rng))))
    return replace(p, n_tensors=rng.choice((len(p.tensors) + 1, len(p.tensors) - 1, number(rng))))


def front(rng: random.Random, p: Parts) -> Parts:
    if rng.random() < 0.7:
        return replace(p, version=rng.choice((0, 1, 2, 4, 3 << 24, 2**32 - 1)))
    return replace(p, magic=rng.choice((b"GGUG", b"gguf", b"FUGG", b"GGLA")))


# What only has to be read, and what may still be a model.
CHANGES: dict[str, tuple[Change, float]] = {
    "value": (value, 16), "type": (kind, 6), "length": (length, 5), "element": (element, 6), "name": (name, 4),
    "drop": (drop, 3), "double": (double, 1), "add": (add, 12), "architecture": (architecture, 8), "shape": (shape, 8),
    "tensor type": (tensor_kind, 4), "offset": (offset, 4), "tensor name": (tensor_name, 4),
    "tensor dropped": (drop_tensor, 2), "counts": (counts, 2), "front": (front, 1),
}  # fmt: skip


def flipped(rng: random.Random, data: bytes) -> bytes:
    """Random bytes, anywhere."""
    out = bytearray(data)
    # The first and the last parts are keys and tensors, the middle is the vocabulary.
    low, high = rng.choice(((0, 1000), (len(out) - 3000, len(out)), (0, len(out))))
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(max(0, low), min(high, len(out)))
        out[at] = out[at] ^ 1 << rng.randrange(8) if rng.random() < 0.5 else rng.randrange(256)
    return bytes(out)


def mutated(rng: random.Random, p: Parts) -> tuple[list[str], bytes, int]:
    """What was changed, the new header, and how long the whole file is to be."""
    names = list(CHANGES)
    done = rng.choices(names, [CHANGES[n][1] for n in names], k=rng.choice((1, 1, 1, 2, 3)))
    if rng.random() < 0.25:
        done = ["bytes"]
    for what in done:
        if what != "bytes":
            p = CHANGES[what][0](rng, p)
    raw = flipped(rng, p.raw) if done == ["bytes"] else p.raw
    n = len(raw) + p.n_data
    if rng.random() < 0.04:
        done.append("truncated")
        n = rng.choice((rng.randrange(len(raw)), rng.randrange(len(raw), n + 1), rng.randrange(100)))
    return done, raw, n
