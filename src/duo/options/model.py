"""The options of one model. The target and the draft have the same type; the `_draft` twins exist only as keywords."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from duo.options.cheap_draft import DraftPack, DraftVocab
from duo.options.context import ContextOptions
from duo.options.engine import EngineOptions
from duo.options.experts import overrides
from duo.options.host import NOT_A_DRAFTS
from duo.options.named import cpu_list, device_names, tensor_overrides
from duo.options.option import CpuKernels
from duo.options.tables import ENGINE_OPTIONS

Role = Literal["target", "draft"]
Layers = int | Literal["all", "auto"]


def option_of(role: Role, name: str) -> str:
    """The keyword for this option of the model: n_ctx, or n_ctx_draft."""
    twin = f"{name}_draft"
    return twin if role == "draft" and twin in ENGINE_OPTIONS else name


def flag_of(role: Role, name: str) -> str:
    """How the command line spells it: -c, or -cd."""
    return ENGINE_OPTIONS[option_of(role, name)].flags[0]


# Fields whose value is the keyword's.
_AS_GIVEN = (
    "n_gpu_layers", "split_mode", "main_gpu", "n_ctx", "n_batch", "n_threads", "n_threads_batch", "flash_attn",
    "type_k", "type_v", "load_mode", "offload_kqv", "op_offload", "cpu_kernels", "strict",
    "n_parallel", "draft_pack", "draft_vocab", "check_tensors", "host_buffers", "repack", "packed",
    "special", "fit_ctx", "lazy_mode", "ctx_checkpoints", "checkpoint_min_step", "prio_batch",
    "mmproj", "mmproj_offload", "mmproj_device",
)  # fmt: skip


@dataclass(frozen=True)
class ModelOptions:
    """Which file, and where and how it is loaded. Names are those of the keywords (duo.options.engine)."""

    role: Role
    path: str  # empty: there is no such model
    devices: tuple[str, ...]  # empty: every local GPU; "none": the CPU
    n_gpu_layers: Layers
    tensor_split: tuple[float, ...]  # empty: by free memory
    split_mode: str
    main_gpu: int
    n_ctx: int | None  # tokens; 0: the model's own; None: see placement.memory.context
    n_batch: int  # tokens
    n_ubatch: int  # tokens, n_batch at most
    n_threads: int | None
    n_threads_batch: int | None
    cpus: tuple[int, ...]  # empty: any
    cpus_batch: tuple[int, ...]  # for passes of several rows; empty: the same
    cpu_strict: bool  # each thread has one of the CPUs
    cpu_strict_batch: bool
    prio: int | None  # of a draft's threads; None: that of the process, as a target's threads have
    prio_batch: int | None
    flash_attn: str
    type_k: str
    type_v: str
    load_mode: str
    lazy_mode: str
    offload_kqv: bool
    op_offload: bool
    override_tensors: tuple[tuple[str, str], ...]  # (pattern, memory)
    cpu_kernels: CpuKernels
    strict: bool
    n_parallel: int | Literal["auto"]
    ctx_checkpoints: int  # counts for a target only
    checkpoint_min_step: int  # the same
    draft_pack: DraftPack  # counts for a draft only
    draft_vocab: DraftVocab  # the same
    check_tensors: bool
    host_buffers: bool
    repack: bool
    packed: str  # auto, off, or a file
    special: bool
    fit_target: tuple[int, ...]  # MiB that auto leaves free on each device, or on all; empty: its own choice
    fit_ctx: int | None  # tokens: the least context that is chosen by the free memory; None: it is not
    mmproj: str | None  # a file, a URL, or auto
    mmproj_offload: bool
    mmproj_device: str | None
    context: ContextOptions  # complete
    n_contexts: int = 1  # the cache has room for so many texts of n_ctx tokens
    n_cpu_moe: int = 0  # auto keeps the experts of so many layers on the CPU, by override_tensors
    guesses: bool = False  # target: passes verify guesses of a draft on another machine
    mtp: bool = False  # draft: it is the MTP layers of its file; target: its own MTP layers are the draft

    @classmethod
    def of(cls, o: EngineOptions, role: Role, path: str = "") -> ModelOptions:
        """The part of complete keywords that is about this model. Raises BadValueError: a device, a CPU or a tensor."""

        def value(name: str) -> Any:
            if role == "draft" and name in NOT_A_DRAFTS:
                return ENGINE_OPTIONS[name].default
            return o[option_of(role, name)]  # type: ignore[literal-required]

        def cpus(kind: str) -> tuple[int, ...]:
            mask, span = f"cpu_mask{kind}", f"cpu_range{kind}"
            return tuple(cpu_list(value(mask), value(span), (flag_of(role, mask), flag_of(role, span))))

        strict = [o["cpu_strict"], value("cpu_strict"), value("cpu_strict_batch")]  # each is the next one's default
        strict_of = [next((x for x in strict[i::-1] if x is not None), False) for i in (1, 2)]
        return cls(
            role=role,
            path=path,
            devices=tuple(device_names(value("device"))),
            tensor_split=tuple(value("tensor_split") or ()),
            fit_target=tuple(value("fit_target") or ()),
            n_ubatch=min(o["n_ubatch"], o["n_batch"]),
            cpus=cpus(""),
            cpus_batch=cpus("_batch"),
            cpu_strict=strict_of[0],
            cpu_strict_batch=strict_of[1],
            prio=o["prio_draft"] if role == "draft" else None,
            override_tensors=(
                *tensor_overrides(value("override_tensor"), flag_of(role, "override_tensor")),
                *overrides(value("cpu_moe"), value("n_cpu_moe"), value("n_cpu_ffn")),
            ),
            guesses=role == "target" and o["draft_host"] is not None,
            context=cast(ContextOptions, {name: value(name) for name in ContextOptions.__annotations__}),
            **{name: value(name) for name in _AS_GIVEN},
        )

    @property
    def places_threads(self) -> bool:
        """Whether the user chose CPUs or priorities of the model's threads."""
        return bool(self.cpus or self.cpus_batch) or self.prio is not None or self.prio_batch is not None

    def for_texts(self, n: int) -> ModelOptions:
        """These options for n texts at once, each with a whole context."""
        return replace(self, n_parallel=n, n_contexts=n)

    def flag(self, name: str) -> str:
        """The command-line spelling of this option for this model: -c, or -cd."""
        return flag_of(self.role, name)

    @property
    def chooses_threads(self) -> bool:
        """Whether the user chose threads or CPUs for this model."""
        return bool(self.n_threads or self.n_threads_batch or self.cpus or self.cpus_batch)


def with_mtp(target: ModelOptions, draft: ModelOptions) -> tuple[ModelOptions, ModelOptions]:
    """Both models, with the MTP layers of the draft's file as the draft. MTP layers of the target's own file are placed
    as its other layers."""
    if target.path != draft.path:
        return target, replace(draft, mtp=True)
    same = {
        name: getattr(target, name) for name in ("devices", "n_gpu_layers", "tensor_split", "split_mode", "main_gpu")
    }
    return replace(target, mtp=True), replace(draft, mtp=True, **same)
