"""The architectures whose decoders have experts, and header keys that their tiny models need beside tiny_keys.py."""

from __future__ import annotations

from gguf_files import BOOL, F32, I32, U32, Value

# All products of these have duo's kernels.
WHOLE = (
    "llama", "llama4", "minicpm", "mistral3", "granite", "granitemoe", "granite_swa", "cohere2moe",
    "qwen2moe", "qwen3moe", "qwen3vlmoe", "phimoe", "dbrx", "olmoe", "arctic", "deepseek", "deepseek2-ocr", "glm4moe",
    "exaone-moe", "bailingmoe", "bailingmoe2", "dots1", "ernie4_5-moe", "hunyuan-moe", "hy_v3", "gpt-oss",
    "smallthinker", "grovemoe", "minimax-m2", "mimo2", "step35", "afmoe", "laguna", "mellum", "maple",
)  # fmt: skip
# Stock kernels compute some matrices beside the experts, so bits are equal at all widths under --strict.
PARTLY = {
    "deepseek2": "attention over a compressed cache",
    "deepseek32": "attention over a compressed cache, an index of cells",
    "glm-dsa": "attention over a compressed cache, an index of cells",
    "dots3note": "attention over a compressed cache, an index of cells",
    "mistral4": "attention over a compressed cache",
    "hy_v4": "attention over a compressed cache, hyper-connections",
    "deepseek4": "attention over a compressed cache, hyper-connections",
    "kimi-linear": "attention over a compressed cache, a recurrent state",
    "kimi-k3": "attention over a compressed cache, a recurrent state",
    "bailingmoe3": "attention over a compressed cache, a recurrent state",
    "glm5-next": "attention over a compressed cache, a recurrent state",
    "qwen3next": "a recurrent state",
    "qwen35moe": "a recurrent state",
    "qwen4exp": "a recurrent state, embeddings of n-grams",
    "minimax-01": "a recurrent state",
    "jamba": "a recurrent state",
    "granitehybrid": "a recurrent state",
    "nemotron_h_moe": "a recurrent state",
    "lfm2moe": "a recurrent state",
    "minimax-m3": "an index of cells",
    "gemma4": "embeddings of layers",
}
# Duo's kernels compute all products, but libllama never gives it flash attention: the same.
OTHER_ATTENTION = ("grok",)
# Not tested, and why.
NOT_TESTED = {
    "llada-moe": "diffusion",
    "rnd1": "diffusion",
    "nomic-bert-moe": "embeddings",
    "llama-embed": "embeddings",
    "dflash": "a draft head",
    "graniteswitch": "needs adapters in its file",
    "deci": "libllama loads no experts of it",
    "refact": "libllama's graph leaves them out",
}
# One matrix holds gate and up of an expert, as in new files of these.
MERGED = ("cohere2moe", "deepseek2", "deepseek2-ocr", "gemma4", "granite_swa", "hy_v3", "mistral4", "qwen35moe",
          "qwen3next", "qwen4exp")  # fmt: skip
# Of the groups of experts, those of the best are chosen from.
GROUPED = ("deepseek2", "deepseek32", "glm-dsa", "bailingmoe2", "dots1")


def more_keys(name: str, n_embd: int, n_head: int, n_layer: int) -> dict[str, Value]:
    keys: dict[str, Value] = {}
    if name in GROUPED:
        keys |= {"expert_group_count": (U32, 2), "expert_group_used_count": (U32, 1)}
    if name in ("granite", "granitemoe", "granitehybrid"):
        keys["logit_scale"] = (F32, 1.0)
    if name == "dbrx":
        keys["attention.clamp_kqv"] = (F32, 1.0)
    if name == "grovemoe":
        keys |= {"expert_group_scale": (F32, 1.0), "experts_per_group": (U32, 2)}
    if name == "maple":
        keys["swiglu_clamp_exp"] = (F32, 7.0)
    if name == "gemma4":
        keys |= {
            "embedding_length_per_layer_input": (U32, n_embd // 2),
            "attention.key_length_swa": (U32, n_embd // n_head),
            "attention.value_length_swa": (U32, n_embd // n_head),
            "attention.sliding_window_pattern": (BOOL, [i % 2 == 0 for i in range(n_layer)]),
        }
    if name in ("dots3note", "hy_v4", "minimax-m3"):
        keys |= {
            "attention.indexer.head_count": (U32, n_head if name == "minimax-m3" else 64),
            "attention.indexer.key_length": (U32, 128),
            "attention.indexer.top_k": (U32, 131072),
            "attention.indexer.block_size": (U32, 4),
            "attention.indexer.local_blocks": (U32, 1),
            "attention.indexer.types": (I32, [1 - i % 2 for i in range(n_layer)]),
        }
    if name == "minimax-m3":
        keys["rope.dimension_count"] = (U32, 64)
    if name == "dots3note":
        keys |= {
            "attention.kv_lora_rank_swa": (U32, 512),
            "attention.key_length_swa": (U32, 576),
            "attention.value_length_swa": (U32, 512),
            "attention.key_length_mla_swa": (U32, 192),
            "attention.value_length_mla_swa": (U32, 128),
            "rope.freq_base_swa": (F32, 10000.0),
        }
    if name == "hy_v4":
        keys |= {
            "hyper_connection.count": (U32, 4),
            "hyper_connection.epsilon": (F32, 1e-6),
            "hyper_connection.magnitude": (F32, 2.0),
            "swiglu_clamp_exp": (F32, 10.0),
        }
    return keys
