"""Whether the machine's memory holds the part of the models that is not on devices."""

from __future__ import annotations

from duo import _core
from duo.errors import DoesNotFitError
from duo.models.header import Header, read_header
from duo.models.packed_form import is_packed
from duo.options.model import ModelOptions
from duo.placement import packed
from duo.support.wording import gigabytes

# What llama.cpp reads from the disk when it is needed (TENSOR_READ_LAZY), and the least for --lazy-mode auto.
LAZY_TENSOR, LAZY_ARCHITECTURES, LAZY_LEAST = "per_layer_token_embd.weight", ("gemma4", "qwen4exp"), 4 << 30


def lazy_bytes(m: ModelOptions, h: Header, *, on_device: bool) -> int:
    """Bytes of the embeddings of layers that are not kept in memory. on_device: then auto may keep them all the
    same."""
    n = sum(t.n_bytes for t in h.tensors if t.name == LAZY_TENSOR) if h.architecture in LAZY_ARCHITECTURES else 0
    is_lazy = m.lazy_mode == "on" or (m.lazy_mode == "auto" and n > LAZY_LEAST and not on_device)
    return n if is_lazy else 0


def check_host(m: ModelOptions, n_bytes: int, n_cache: int, n_target: int, advice: str, *, on_device: bool) -> None:
    """Raises DoesNotFitError if loading would exhaust the machine's memory. A mapped file may be larger than that.

    m: the target. n_cache: the part of n_bytes that no file has. n_target: the target's part of n_bytes. on_device:
    whether a device takes part.
    """
    free = _core.memory_available()
    if m.load_mode == "mmap" and not is_packed(m.path):  # of a packed file, a part is read
        if n_cache > free:
            raise DoesNotFitError(
                f"the cache needs {gigabytes(n_cache)} of the machine's memory, but only {gigabytes(free)} are free; "
                "lower -c/--ctx-size"
            )
        return
    if n_bytes <= free:
        return
    on_disk = max(packed.mapped_bytes(m), lazy_bytes(m, read_header(m.path), on_device=on_device))
    if n_bytes - min(on_disk, n_target) > free:
        raise DoesNotFitError(
            f"the models need {gigabytes(n_bytes)} of the machine's memory, but only {gigabytes(free)} are free; "
            f"{advice}choose smaller files, or have them read from the disk again and again (--load-mode mmap, or duo "
            "pack)"
        )
