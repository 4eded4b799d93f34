"""llama.cpp's options that stand for a model with its settings (presets in common/arg.cpp), as duo's own options."""

from __future__ import annotations

# Where a server listens by default, and everything else, by option.
OF_PORT: dict[str, tuple[str, str]] = {
    "--fim-qwen-1.5b-default": ("8012", "-hf ggml-org/Qwen2.5-Coder-1.5B-Q8_0-GGUF -hff qwen2.5-coder-1.5b-q8_0.gguf"),
    "--fim-qwen-3b-default": ("8012", "-hf ggml-org/Qwen2.5-Coder-3B-Q8_0-GGUF -hff qwen2.5-coder-3b-q8_0.gguf"),
    "--fim-qwen-7b-default": ("8012", "-hf ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF -hff qwen2.5-coder-7b-q8_0.gguf"),
    "--fim-qwen-30b-default": (
        "8012",
        "-hf ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF -hff qwen3-coder-30b-a3b-instruct-q8_0.gguf",
    ),
    "--fim-qwen-7b-spec": (
        "8012",
        "-hf ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF -hff qwen2.5-coder-7b-q8_0.gguf "
        "-hfd ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF -hffd qwen2.5-coder-0.5b-q8_0.gguf",
    ),
    "--fim-qwen-14b-spec": (
        "8012",
        "-hf ggml-org/Qwen2.5-Coder-14B-Q8_0-GGUF -hff qwen2.5-coder-14b-q8_0.gguf "
        "-hfd ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF -hffd qwen2.5-coder-0.5b-q8_0.gguf",
    ),
    "--gpt-oss-20b-default": ("8013", "-hf ggml-org/gpt-oss-20b-GGUF -hff gpt-oss-20b-mxfp4.gguf"),
    "--gpt-oss-120b-default": ("8013", "-hf ggml-org/gpt-oss-120b-GGUF"),
    "--vision-gemma-4b-default": ("8014", "-hf ggml-org/gemma-3-4b-it-qat-GGUF -c 0"),
    "--vision-gemma-12b-default": ("8014", "-hf ggml-org/gemma-3-12b-it-qat-GGUF -c 0"),
}
# For a server alone.
OF_VECTORS = {
    "--embd-gemma-default": (
        "8011",
        "-hf ggml-org/embeddinggemma-300M-qat-q4_0-GGUF -hff embeddinggemma-300M-qat-Q4_0.gguf "
        "--embedding -c 2048 -b 2048 -ub 2048",
    ),
}
_OF_KIND = {
    "--fim": "-c 0 -b 1024 -ub 1024",
    "--gpt": "-c 262144 -np 2 -b 32768 -ub 2048 --temp 1 --top-p 1 --top-k 0 --min-p 0.01",
}


def arguments(name: str, *, serves: bool) -> tuple[str, ...]:
    """The arguments of duo that the preset stands for. serves: with the port."""
    port, model = (OF_PORT | OF_VECTORS)[name]
    rest = _OF_KIND.get(name[:5], "")
    return (*model.split(), *rest.split(), *(("--port", port) if serves else ()))
