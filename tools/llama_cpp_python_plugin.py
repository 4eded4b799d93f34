"""A pytest plugin for llama-cpp-python's own tests: `Duo` for `Llama`, and models of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import huggingface_hub
import llama_cpp
from bert_models import bert
from server_cases import REFERENCE
from tiny_models import tiny

from duo import Duo

CLASS = "DUO_TESTS_CLASS"  # which run it is
MODELS = "DUO_TESTS_MODELS"  # a folder with the real models
VOCABULARIES = Path("vendor/llama.cpp/models")
# What stands in for the models of the hub: the same architecture with random weights, and one of llama.cpp's
# vocabularies.
STAND_INS = {
    "Qwen3.5-0.8B-Q8_0.gguf": ("qwen35", "qwen35"),
    "stories15M-q4_0.gguf": ("llama", "llama-spm"),
    "mamba-130m-hf.Q2_K.gguf": ("mamba", "gpt-neox"),
    "Falcon-H1-Tiny-90M-Instruct-Q2_K.gguf": ("falcon-h1", "llama-bpe"),
}


class DuoForLlama(Duo):
    """With a draft that is mostly right, where it may have one."""

    def __init__(self, model_path: str, **options: Any) -> None:
        draft = Path(model_path).with_suffix(".draft")
        if os.environ[CLASS] == "draft" and draft.is_file():
            options["draft"] = str(draft)
        super().__init__(model_path, **options)


def _stand_in(file: str) -> str:
    """One run makes it for all."""
    path = Path("stand_ins") / file
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        return str(path)
    if file not in STAND_INS:
        return str(bert(path))
    architecture, vocabulary = STAND_INS[file]
    source = VOCABULARIES / f"ggml-vocab-{vocabulary}.gguf"
    tiny(architecture, source, path.with_suffix(".draft"), apart=0.3)
    return str(tiny(architecture, source, path))


def _download(_repo: str, file: str, **_options: Any) -> str:
    """In place of hf_hub_download."""
    folder = os.environ.get(MODELS)
    return str(Path(folder) / Path(file).name) if folder else _stand_in(Path(file).name)


def pytest_configure() -> None:
    huggingface_hub.hf_hub_download = _download
    if os.environ[CLASS] != REFERENCE:
        llama_cpp.Llama = DuoForLlama  # type: ignore[misc]
