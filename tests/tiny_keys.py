"""Header keys of tiny models, as in llama.cpp's tests/test-llama-archs.cpp."""

from __future__ import annotations

from gguf_files import BOOL, F32, I32, U32, U64, Value
from mixture_keys import more_keys

N_EMBD, N_FF, N_HEAD, N_LAYER = 256, 384, 2, 2

# Which layers attend is said by their heads.
_MIXED = {
    "jamba",
    "plamo2",
    "nemotron_h",
    "nemotron_h_moe",
    "granitehybrid",
    "lfm2",
    "lfm2moe",
    "kimi-linear",
    "bailingmoe3",
    "kimi-k3",
    "glm5-next",
}
_SLIDING = {"mimo2", "step35", "cohere2moe", "granite_swa", "dots3note", "maple"}
# Attention over a compressed cache (MLA).
_LATENT = {
    "deepseek2",
    "deepseek32",
    "glm-dsa",
    "dots3note",
    "mistral4",
    "hy_v4",
    "kimi-linear",
    "bailingmoe3",
    "kimi-k3",
    "glm5-next",
}
_EXPERTS = {
    "lfm2moe",
    "nemotron_h_moe",
    "qwen4exp",
    "deepseek4",
    "qwen3next",
    "qwen35moe",
    "qwen2moe",
    "gpt-oss",
    "llama4",
    "minimax-01",
    "glm4moe",
    *_SLIDING,
    *_LATENT,
}


def keys_of(name: str, n_mtp: int, n_vocab: int, n_trunk: int = N_LAYER, *, mixture: bool = False) -> dict[str, Value]:
    """n_trunk: layers without the MTP layers, if the architecture does not want a certain number. mixture: with
    experts, also where the architecture has models without."""
    n_layer = {"nemotron_h": 3, "nemotron_h_moe": 3, "llama4": 4, "deepseek4": 4, "hrm_text": 6}.get(
        name, n_trunk
    ) + n_mtp
    n_embd, n_head, n_ff = (128, 1, 192) if name in _LATENT else (N_EMBD, N_HEAD, N_FF)
    if name == "deepseek4":
        n_embd, n_head, n_ff = 512, 8, 1024
    heads: Value = (I32, [0 if i == 1 else n_head for i in range(n_layer)]) if name in _MIXED else (U32, n_head)
    keys: dict[str, Value] = {
        "context_length": (U32, 1024),
        "embedding_length": (U32, n_embd),
        "block_count": (U32, n_layer),
        "leading_dense_block_count": (U32, 1),
        "feed_forward_length": (I32, [0, 0, n_ff]) if name.startswith("nemotron_h") else (U32, n_ff),
        "attention.head_count": (U32, n_head) if name == "glm5-next" else heads,
        "attention.head_count_kv": (U32, 1) if name == "deepseek4" else heads,
        "attention.layer_norm_epsilon": (F32, 1e-5),
        "attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "attention.group_norm_epsilon": (F32, 1e-5),
        "attention.group_norm_groups": (U32, 8),
        "attention.sliding_window": (U32, 32),
        "attention.q_lora_rank": (U32, 512),
        "attention.kv_lora_rank": (U32, 512),
        "full_attention_interval": (U32, 2),
        "rope.dimension_sections": (I32, [8, 12, 12, 0] if name == "bailingmoe3" else [n_embd // n_head // 4] * 4),
        "ssm.inner_size": (U32, 256 if name in ("qwen35", "qwen35moe", "qwen3next", "qwen4exp") else 2 * n_embd),
        "ssm.conv_kernel": (U32, 4),
        "ssm.state_size": (U32, 128),
        "ssm.time_step_rank": (U32, n_head),
        "ssm.group_count": (U32, 0 if name == "plamo2" else 2),
        "kda.head_dim": (U32, 128),
        "kda.safe_gate": (BOOL, True),
        "kda.gate_lower_bound": (F32, -5.0),
        "residual_scale": (F32, 3.5565588),
        "attn_res.block_size": (U32, 12),
        "activation.situ_beta": (F32, 4.0),
        "activation.situ_linear_beta": (F32, 25.0),
        "wkv.head_size": (U32, n_embd // n_head),
        "attention.decay_lora_rank": (U32, 64),
        "attention.iclr_lora_rank": (U32, 64),
        "attention.value_residual_mix_lora_rank": (U32, 32),
        "attention.gate_lora_rank": (U32, 64),
        "token_shift_count": (U32, 2),
        "shortconv.l_cache": (U32, 3),
        "interleave_moe_layer_step": (U32, 2),
    }
    if name in _LATENT:
        keys |= {
            "attention.key_length": (U32, 512 if name == "glm5-next" else 576),
            "attention.value_length": (U32, 512),
            "attention.key_length_mla": (U32, 192),
            "attention.value_length_mla": (U32, 128),
            "rope.dimension_count": (U32, 0 if name == "glm5-next" else 64),
        }
    if name == "qwen4exp":
        keys |= _hashed(n_embd, n_vocab) | {
            "hyper_connection.count": (U32, 4),
            "hyper_connection.low_rank": (U32, 8),
            "attention.compress_ratios": (I32, [4] * n_layer),
            "attention.indexer.head_count": (U32, 64),
            "attention.indexer.key_length": (U32, n_embd // n_head),
            "attention.indexer.top_k": (U32, 131072),
        }
    if name == "minicpm3":  # heads of keys and of values have other sizes
        keys |= {
            "attention.key_length": (U32, 96),
            "attention.value_length": (U32, 64),
            "rope.dimension_count": (U32, 32),
        }
    if name == "hrm_text":  # two layers, each of which is computed several times
        keys |= {f"hrm.{key}": (U32, n) for key, n in (("layers_per_stack", 1), ("h_cycles", 2), ("l_cycles", 2))}
    if name == "qwen2moe":
        keys["expert_shared_feed_forward_length"] = (U32, n_ff)
    if name == "deepseek4":
        keys |= {
            "attention.key_length": (U32, n_embd // n_head),
            "attention.value_length": (U32, n_embd // n_head),
            "rope.dimension_count": (U32, n_embd // n_head // 2),
            "attention.q_lora_rank": (U32, 64),
            "attention.output_group_count": (U32, 8),
            "attention.output_lora_rank": (U32, 32),
            "attention.compress_ratios": (I32, [0, 0, 4, 128]),
            "attention.compress_rope_freq_base": (F32, 160000.0),
            "attention.indexer.head_count": (U32, 64),
            "attention.indexer.key_length": (U32, 128),
            "attention.indexer.top_k": (U32, 131072),
            "hyper_connection.count": (U32, 4),
            "hyper_connection.sinkhorn_iterations": (U32, 2),
            "hyper_connection.epsilon": (F32, 1e-6),
            "hash_layer_count": (U32, 0),
            "swiglu_clamp_exp": (F32, 10.0),
        }
    if name == "glm5-next":
        keys |= {
            "hyper_connection.count": (U32, 4),
            "hyper_connection.sinkhorn_iterations": (U32, 2),
            "hyper_connection.epsilon": (F32, 1e-6),
            "attention.compress_ratios": (I32, [4] * n_layer),
            "attention.indexer.head_count": (U32, 64),
            "attention.indexer.key_length": (U32, 128),
            "attention.indexer.top_k": (U32, 131072),
            "attention.indexer.kpool": (U32, 4),
            "attention.indexer.kpool_select_tail": (BOOL, True),
        }
    if name == "bailingmoe3":
        keys |= {"swiglu_clamp_exp": (F32, 4.0), "swiglu_clamp_shexp": (F32, 5.0)}
    if name in _SLIDING:
        keys["attention.sliding_window_pattern"] = (BOOL, [i % 2 == 1 for i in range(n_layer)])
        keys["logit_scale"] = (F32, 1.0)
    if name in ("deepseek32", "glm-dsa"):
        keys |= {
            f"attention.indexer.{key}": (U32, n) for key, n in (("head_count", 1), ("key_length", 128), ("top_k", 8))
        }
    if name == "bailingmoe3":
        keys |= {"kda.safe_gate": (BOOL, True), "kda.gate_lower_bound": (F32, -5.0)}
    if name in (
        "glm4moe",
        "deepseek32",
        "glm-dsa",
        "bailingmoe3",
    ):  # without it the positions have one part, as in GLM-4.5
        del keys["rope.dimension_sections"]
    if n_mtp:
        keys["nextn_predict_layers"] = (U32, n_mtp)
    if name == "hy_v3":
        keys |= dict.fromkeys(
            ("attention.key_length", "attention.value_length", "rope.dimension_count"), (U32, n_embd // n_head)
        )
        keys["expert_feed_forward_length"] = (U32, n_ff)
    if mixture:
        keys |= more_keys(name, n_embd, n_head, n_layer)
    if mixture or name in _EXPERTS:
        keys |= {
            "expert_feed_forward_length": (U32, n_ff),
            "expert_shared_feed_forward_length": (U32, n_ff),
            "expert_count": (U32, 4),
            "expert_used_count": (U32, 2),
            "expert_shared_count": (U32, 1),
            "expert_gating_func": (U32, 4 if name == "deepseek4" else 2),
            "expert_weights_scale": (F32, 1.0),
            "expert_weights_norm": (BOOL, True),
        }
    return {f"{name}.{key}": value for key, value in keys.items()}


def _hashed(n_embd: int, n_vocab: int) -> dict[str, Value]:
    """Embeddings of n-grams by their hashes, beside that of the token (PLE)."""
    n_heads = 4
    return {
        "ple.layers": (I32, [0]),
        "ple.ngram_size": (U32, 3),
        "ple.heads_per_ngram": (U32, 2),
        "ple.conv_kernel": (U32, 4),
        "ple.eos_token_id": (U32, 0),
        "embedding_length_per_layer_input": (U32, n_embd // n_heads),
        "ple.layer_multipliers": (U64, [1, 3, 5]),
        "ple.head_offsets": (U64, [i * n_vocab for i in range(n_heads)]),
        "ple.head_vocab_sizes": (U64, [n_vocab] * n_heads),
    }
