"""llama_cpp.Llama's constructor arguments as duo's."""

from __future__ import annotations

from typing import Any

from duo.errors import DuoError

# Arguments that duo has no like of, and their values that change nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "vocab_only": (False,),
    "kv_overrides": (None,),
    "rope_scaling_type": (None, -1),
    "pooling_type": (-1,),
    "attention_type": (-1,),
    "rope_freq_base": (0.0,),
    "rope_freq_scale": (0.0,),
    "yarn_ext_factor": (-1.0,),
    "yarn_attn_factor": (1.0,),
    "yarn_beta_fast": (32.0,),
    "yarn_beta_slow": (1.0,),
    "yarn_orig_ctx": (0,),
    "embedding": (False,),
    "offload_kqv": (True,),
    "op_offload": (None,),
    "swa_full": (None,),
    "lora_base": (None,),
    "lora_scale": (1.0,),
    "lora_path": (None,),
    "numa": (False, 0),
    "chat_handler": (None,),
    "draft_model": (None,),
    "tokenizer": (None,),
    "spm_infill": (False,),
}
WITHOUT_EFFECT = ("logits_all", "no_perf")  # duo gives log-probabilities without it
GGML_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 20: "iq4_nl", 30: "bf16"}
ANY_SEED = 0xFFFFFFFF  # LLAMA_DEFAULT_SEED


def translated(model: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The target and `Duo`'s keywords, llama_cpp's spellings among them replaced. Raises TypeError and DuoError."""
    out = dict(options)
    if "model_path" in out:
        if model is not None:
            raise TypeError("Duo() got both model and model_path, which are the same")
        model = out.pop("model_path")
    for name in WITHOUT_EFFECT:
        out.pop(name, None)
    for name in NEUTRAL.keys() & out.keys():
        value = out.pop(name)
        if not any(value is v or (value == v and isinstance(value, int | float)) for v in NEUTRAL[name]):
            more = "; a draft is a file: draft=" if name == "draft_model" else ""
            raise DuoError(f"llama_cpp's {name} is {value!r}, which duo has not; leave it out{more}")
    if isinstance(out.get("flash_attn"), bool):
        out["flash_attn"] = "on" if out["flash_attn"] else "auto"
    for name in ("type_k", "type_v"):
        if isinstance(out.get(name), int):
            out[name] = GGML_TYPES.get(out[name], out[name])
        elif name in out and out[name] is None:
            del out[name]
    mmap, mlock = out.pop("use_mmap", True), out.pop("use_mlock", False)
    if mlock or not mmap:
        out.setdefault("load_mode", "mlock" if mlock else "none")
    if "last_n_tokens_size" in out:
        out.setdefault("repeat_last_n", out.pop("last_n_tokens_size"))
    if out.get("seed") == ANY_SEED:
        del out["seed"]
    if "chat_format" in out:
        chat_format = out.pop("chat_format")
        out.setdefault("chat_template", chat_format)
    return model, out
