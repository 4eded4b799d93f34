"""llama_cpp.Llama's constructor arguments as duo's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from duo.errors import BadValueError
from duo.support.wording import quoted

# Arguments that duo does not support: the values that change nothing, and why or what instead.
NEUTRAL: dict[str, tuple[tuple[Any, ...], str]] = {
    "attention_type": ((-1,), "the model's file says how its tokens attend"),
    "swa_full": ((None, True), "taking back a wrong guess needs the whole cache of a sliding window"),
    "lora_base": ((None,), "libllama needs none: the adapter is added to the weights as they are"),
    "tokenizer": ((None,), "the target and the draft must read the same tokens"),
}
WITHOUT_EFFECT = ("logits_all", "no_perf")  # duo gives log-probabilities without it
# ggml's and llama.cpp's numbers, which llama_cpp takes.
GGML_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 20: "iq4_nl", 30: "bf16"}
SPLIT_MODES = {0: "none", 1: "layer", 2: "row"}
ROPE_SCALINGS = {-1: None, 0: "none", 1: "linear", 2: "yarn", 3: "longrope"}
NUMA = {0: None, 1: "distribute", 2: "isolate", 3: "numactl", 4: "mirror"}
NUMBERS: dict[str, Mapping[int, str | None]] = {
    "split_mode": SPLIT_MODES,
    "type_k": GGML_TYPES,
    "type_v": GGML_TYPES,
    "rope_scaling_type": ROPE_SCALINGS,
    "numa": NUMA,
}
# llama_cpp's defaults, which stand for the model's own here.
OF_MODEL = {"yarn_attn_factor": 1.0, "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0}
ANY_SEED = 0xFFFFFFFF  # LLAMA_DEFAULT_SEED


def _refuse(out: dict[str, Any]) -> None:
    for name in NEUTRAL.keys() & out.keys():
        value, (neutral, why) = out.pop(name), NEUTRAL[name]
        if not any(value is v or (value == v and isinstance(value, int | float)) for v in neutral):
            raise BadValueError(
                f"llama_cpp's {name} is {quoted(value)}, which duo does not support ({why}); leave {name} out"
            )


def _drafts(out: dict[str, Any], *, with_draft: bool) -> None:
    """LlamaPromptLookupDecoding looks for the last tokens earlier in the text: n-grams."""
    guesser = out.pop("draft_model", None)
    if guesser is None:
        return
    sizes = [getattr(guesser, name, None) for name in ("max_ngram_size", "num_pred_tokens")]
    if not all(isinstance(n, int) for n in sizes):
        raise BadValueError(
            f"draft_model is {type(guesser).__name__}; duo takes LlamaPromptLookupDecoding, or a model's file as draft="
        )
    out.setdefault("spec_type", ["draft-simple", "ngram-simple"] if with_draft else ["ngram-simple"])
    out.setdefault("ngram_size_n", sizes[0])
    out.setdefault("ngram_size_m", sizes[1])


def _adapter(out: dict[str, Any]) -> None:
    path, scale = out.pop("lora_path", None), out.pop("lora_scale", 1.0)
    if path is None:
        return
    if not isinstance(path, str | bytes | os.PathLike):
        raise BadValueError(f"lora_path is {quoted(path)}; give one file, or several with lora=")
    if out.get("lora_scaled") is not None:
        raise BadValueError("lora_path and lora_scaled were both given; give all adapters with lora_scaled")
    out["lora_scaled"] = {os.fsdecode(path): scale}


def translated(model: Any, options: dict[str, Any], *, with_draft: bool = False) -> tuple[Any, dict[str, Any]]:
    """The target and `Duo`'s keywords, llama_cpp's spellings among them replaced. Raises TypeError and
    BadValueError."""
    out = dict(options)
    if "model_path" in out:
        if model is not None:
            raise TypeError("Duo() got both model and model_path, which are the same")
        model = out.pop("model_path")
    for name in WITHOUT_EFFECT:
        out.pop(name, None)
    _refuse(out)
    _drafts(out, with_draft=with_draft)
    _adapter(out)
    for name, names in NUMBERS.items():
        if isinstance(out.get(name), int):
            out[name] = names.get(out[name], out[name])
        if name in out and out[name] is None:
            del out[name]
    if out.get("op_offload", True) is None:
        del out["op_offload"]
    for name, value in OF_MODEL.items():
        if out.get(name) == value:
            del out[name]
    if isinstance(out.get("flash_attn"), bool):
        out["flash_attn"] = "on" if out["flash_attn"] else "off"
    mmap, mlock = out.pop("use_mmap", True), out.pop("use_mlock", False)
    if mlock or not mmap:
        out.setdefault("load_mode", "mlock" if mlock else "none")
    if "last_n_tokens_size" in out:
        out.setdefault("repeat_last_n", out.pop("last_n_tokens_size"))
    if out.get("seed") == ANY_SEED:
        del out["seed"]
    return model, out
