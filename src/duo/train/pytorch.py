"""PyTorch, which only training needs: whether it is there, on which device, with which numbers."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from duo.errors import BadValueError, MissingPackageError
from duo.support.wording import one_line

if TYPE_CHECKING:
    import torch


def need_torch(why: str = "training needs PyTorch", otherwise: str = "(docs/training.md)") -> None:
    """why: what it is for; otherwise: what to do without it. Raises MissingPackageError: PyTorch is not
    installed, or broken."""
    if find_spec("torch") is None:
        raise MissingPackageError(f"{why}; install it with: pip install 'duo-llama[train]' {otherwise}")
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as e:
        raise MissingPackageError(
            f"{why}, which cannot be loaded ({one_line(e, 120)}); install it again {otherwise}"
        ) from None


def device_of(name: str) -> torch.device:
    """auto: the first CUDA device, or the CPU. Raises BadValueError: unknown device."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as e:
        raise BadValueError(
            f"--train-device {name} cannot be used ({one_line(e, 120)}); see torch.cuda.is_available()"
        ) from None
    return device


def has_bf16(device: torch.device) -> bool:
    """Whether products of bfloat16 numbers are faster there than those of 32 bits."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    if device.type == "cpu":
        capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # PyTorch 2.9 and later
        return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return False
