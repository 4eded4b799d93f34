"""Whether the machine's memory holds the part of the models that is not on devices."""

from __future__ import annotations

from typing import NamedTuple

from duo import _core
from duo.errors import DoesNotFitError
from duo.models.header import Header, read_header
from duo.models.packed_form import is_packed
from duo.options.model import ModelOptions, option_of
from duo.options.tables import ENGINE_OPTIONS
from duo.placement import packed
from duo.placement.states import keeps_states, state_bytes
from duo.support.wording import gigabytes

# What llama.cpp reads from the disk when it is needed (TENSOR_READ_LAZY), and the least for --lazy-mode auto.
LAZY_TENSOR, LAZY_ARCHITECTURES, LAZY_LEAST = "per_layer_token_embd.weight", ("gemma4", "qwen4exp"), 4 << 30


def lazy_bytes(m: ModelOptions, h: Header, *, on_device: bool) -> int:
    """Bytes of the embeddings of layers that are not kept in memory. on_device: then auto may keep them all the
    same."""
    n = sum(t.n_bytes for t in h.tensors if t.name == LAZY_TENSOR) if h.architecture in LAZY_ARCHITECTURES else 0
    is_lazy = m.lazy_mode == "on" or (m.lazy_mode == "auto" and n > LAZY_LEAST and not on_device)
    return n if is_lazy else 0


class HostUse(NamedTuple):
    """Bytes of the machine's memory that the models need."""

    n_bytes: int
    n_cache: int  # the part that no file has
    n_target: int  # the part that may be in the target's file


def check_host(m: ModelOptions, use: HostUse, *, on_device: bool, drafted: bool, may_move: bool = False) -> None:
    """Raises DoesNotFitError if loading would exhaust the machine's memory. A mapped file may be larger than that.

    m: the target, or the one model of a host. on_device: whether a device takes part. drafted: whether there is a
    draft, too. may_move: whether the user kept layers from the devices.
    """
    free, n_mapped = _core.memory_available(), 0
    if m.load_mode == "mmap" and not is_packed(m.path):  # of a packed file, a part is read
        n_held = use.n_cache
    elif use.n_bytes > free:
        n_mapped = packed.mapped_bytes(m)
        on_disk = max(n_mapped, lazy_bytes(m, read_header(m.path), on_device=on_device))
        n_held = use.n_bytes - min(on_disk, use.n_target)
    else:
        return
    if n_held <= free:
        return
    only_cache = use.n_cache > free
    advice = ["raise " + m.flag("n_gpu_layers")] if may_move else []
    if only_cache or on_device or n_held - use.n_cache <= free:  # or else the weights are too large
        advice.append("lower " + _of_cache(m, drafted=drafted))
    if not only_cache:
        advice.append("choose smaller files")
        if not n_mapped:
            advice.append("have them read from the disk again and again (--load-mode mmap, or duo pack)")
    what, n_bytes = ("the cache needs", use.n_cache) if only_cache else ("the models need", n_held)
    raise DoesNotFitError(
        f"{what} {gigabytes(n_bytes)} of the machine's memory, but only {gigabytes(free)} are free; "
        + _listed(advice, ", or ")
    )


def _listed(names: list[str], last: str) -> str:
    """last: before the last one."""
    return last.join([*filter(None, [", ".join(names[:-1])]), names[-1]])


def _of_cache(m: ModelOptions, *, drafted: bool) -> str:
    """The options that the size of the cache depends on, and that of the states."""
    h = read_header(m.path)
    names = [option_of(m.role, "n_ctx")]
    if drafted:
        names.append(option_of("draft", "n_ctx"))
    if m.role == "target" and m.ctx_checkpoints and any(state_bytes(h)):
        names.append("ctx_checkpoints")
    if m.n_contexts > 1 or (keeps_states(h) and m.n_parallel != 1):
        names.append("n_parallel")
    return _listed(["/".join(ENGINE_OPTIONS[name].flags[:2]) for name in names], " or ")
