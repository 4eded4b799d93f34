"""The header of a Qwen3-MoE with random weights and the demo pair's tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf

from duo.models.demo import demo_pair


@dataclass(frozen=True)
class MixtureShape:
    """Layers, columns of the hidden state, experts and how many of them a token uses, columns of an expert, heads of
    queries and of keys, columns of a head."""

    n_layer: int
    n_embd: int
    n_expert: int
    n_used: int
    n_ff: int
    n_head: int
    n_kv: int
    n_head_dim: int


def begun(part: Path, shape: MixtureShape) -> tuple[gguf.GGUFWriter, int]:
    """A writer with the header, for the tensors, and the number of tokens."""
    writer = gguf.GGUFWriter(part, "qwen3moe")
    source = gguf.GGUFReader(demo_pair()[0])
    for field in source.fields.values():
        if field.name.startswith("tokenizer."):
            is_list = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if is_list else None)
    writer.add_context_length(2048)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_kv)
    writer.add_key_length(shape.n_head_dim)
    writer.add_value_length(shape.n_head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(shape.n_expert)
    writer.add_expert_used_count(shape.n_used)
    writer.add_expert_feed_forward_length(shape.n_ff)
    return writer, len(source.fields["tokenizer.ggml.tokens"].data)
