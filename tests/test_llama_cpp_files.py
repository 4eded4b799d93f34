"""Options of llama.cpp that name files and sizes in its own way."""

from collections.abc import Callable

import pytest
from parsed_line import params

Run = Callable[..., tuple[int, str, str]]


def test_the_url_of_a_file_of_the_hub(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    hub = "https://huggingface.co/ggml-org/models/resolve/main/tinyllamas/stories%20260K.gguf?download=true"
    for found in (params("run", "-mu", hub), params("serve", "--model-url", hub)):
        assert (found["hf_repo"], found["hf_file"]) == ("ggml-org/models", "tinyllamas/stories 260K.gguf")
    assert (
        params("run", "-mu", "https://example.com/model.gguf", "-p", "x")["model"] == "https://example.com/model.gguf"
    )
    code, _, err = run("-mu", "model.gguf", "-p", "x")
    assert code == 1 and "-mu model.gguf: it has to be a URL" in err
    monkeypatch.setenv("LLAMA_ARG_MODEL_URL", hub)
    assert params("run", "-p", "x")["hf_repo"] == "ggml-org/models"


def test_a_context_of_each_slot() -> None:
    assert params("serve", "--kv-unified-per-slot", "4096")["n_ctx"] == "4096"
    assert params("serve", "--kv-unified-per-slot", "4096", "-c", "512")["n_ctx"] == "512"
