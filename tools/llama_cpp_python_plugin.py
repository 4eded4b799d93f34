"""A pytest plugin for llama-cpp-python's own tests: `Duo` for `Llama`, and models of this machine."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import huggingface_hub
import llama_cpp
from bert_models import bert
from server_cases import REFERENCE
from tiny_models import tiny

from duo import Duo
from duo.models.demo import demo_pair

CLASS = "DUO_TESTS_CLASS"  # which run it is
MODELS = "DUO_TESTS_MODELS"  # a folder with the real models
ARCHITECTURES = {"mamba-130m-hf.Q2_K.gguf": "mamba", "Falcon-H1-Tiny-90M-Instruct-Q2_K.gguf": "falcon-h1"}


class DuoForLlama(Duo):
    """With the demo draft, where the target is the demo pair's."""

    def __init__(self, model_path: str, **options: Any) -> None:
        target, draft = map(str, demo_pair())
        if os.environ[CLASS] == "draft" and model_path == target:
            options["draft"] = draft
        super().__init__(model_path, **options)


@cache
def _stand_in(file: str) -> str:
    target, _ = demo_pair()
    folder = Path(tempfile.mkdtemp())
    if file in ARCHITECTURES:
        return str(tiny(ARCHITECTURES[file], target, folder / file))
    return str(bert(folder / file)) if file.startswith("bge-") else str(target)


def _download(_repo: str, file: str, **_options: Any) -> str:
    """In place of hf_hub_download."""
    folder = os.environ.get(MODELS)
    return str(Path(folder) / Path(file).name) if folder else _stand_in(Path(file).name)


def pytest_configure() -> None:
    huggingface_hub.hf_hub_download = _download
    if os.environ[CLASS] != REFERENCE:
        llama_cpp.Llama = DuoForLlama  # type: ignore[misc]
