"""The devices of the tests marked gpu, and what may be asked of them."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from duo import Duo, Result
from duo.placement.devices import default_devices, default_flash_attn, devices, is_software

NAMES = default_devices(devices())
NAME = NAMES[0] if NAMES else ""
# Mesa's device that computes on the CPU. It is slow, and its flash attention crashes.
SOFTWARE = is_software(devices(), NAMES)
FLASH_ATTN = default_flash_attn(devices(), NAMES)
VULKAN = NAME.startswith("Vulkan")
needs_gpu = pytest.mark.skipif(not NAMES, reason="no GPU is here")
needs_flash = pytest.mark.skipif(SOFTWARE, reason="flash attention crashes on Mesa's software device")

SHORT: dict[str, Any] = {"max_tokens": 16, "temperature": 0, "ignore_eos": True}
PROMPTS = ("Once upon a time there was", "The old man said to his son", "In the middle of the forest")
MODES = ("plain", "sync", "async")
NEAR = 0.05  # nats: two tokens that are nearer than this may change places where products round otherwise


def same_but_for_ties(d: Duo, prompt: str, got: Result, want: Result) -> bool:
    """Whether two greedy texts are equal up to a place where the two tokens are nearly equally probable."""
    for i, (a, b) in enumerate(zip(got.tokens, want.tokens, strict=False)):
        if a != b:
            again = d.generate(prompt, mode="plain", **SHORT | {"max_tokens": i + 1, "logprobs": 5})
            top = dict(again.logprobs[i].top)
            return a in top and b in top and abs(top[a] - top[b]) < NEAR
    return True


def buffers(log: Path) -> dict[tuple[str, str], float]:
    """MiB of libllama's buffers by (memory, kind), as its log says. The compute buffer of a context counts last."""
    found: dict[tuple[str, str], float] = {}
    for memory, kind, mib in re.findall(r"(\S+) (model|KV|compute) buffer size = +([\d.]+) MiB", log.read_text()):
        found[memory, kind] = float(mib) + (found.get((memory, kind), 0.0) if kind == "model" else 0.0)
    return found


def child(*options: str) -> list[str]:
    return [sys.executable, "-m", "duo", *options]
