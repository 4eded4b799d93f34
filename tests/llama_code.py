"""What code written for llama_cpp.Llama loads and asks."""

from typing import Any

from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
LOAD: dict[str, Any] = {"model_path": str(TARGET), "n_ctx": 512, "logits_all": True, "verbose": False, "seed": 7}
PROMPT = "Once upon a time"
MESSAGES = [
    {"role": "system", "content": "You tell tales."},
    {"role": "user", "content": "Tell me the tale of the frog."},
]
