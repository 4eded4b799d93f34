"""The C++ core (csrc/bindings.cpp). What fails in it is a duo.DuoError."""

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

GGML_COMMIT_BUILT: str
N_DRAFT_AUTO: int
N_DRAFT_MAX: int
N_STEP_MAX: int
PROFILE_VERSION: int

def ggml_commit() -> str: ...
def supports_rpc() -> bool: ...
def now_us() -> int: ...
def log_to(to_stderr: bool, path: str | bytes) -> None: ...
def noise(seed: int, pos: int, token: int) -> float: ...
def reads_grammar(gbnf: str) -> bool: ...  # names of tokens (<think>) need a model's vocabulary
def chat_templates() -> list[str]: ...
def apply_chat_template(name: str, messages: Sequence[tuple[str, str]], add_assistant: bool) -> str: ...
def devices() -> list[tuple[str, str, str, int, int]]: ...

KERNELS_VERSION: str

def kernels() -> tuple[str, str]: ...  # instruction set, or why there is none
def kernel_types() -> list[str]: ...
def cpu_types(path: str | bytes, n_gpu_layers: int) -> list[str]: ...
def race(type: str, width: int, n_threads: int, n_us: int) -> tuple[float, float]: ...  # stock, duo
def product_errors(type: str, weights: bytes, n_columns: int, width: int) -> tuple[float, float]: ...

class Probe:
    def __init__(self, options: ModelOptions) -> None: ...
    def decode(self, tokens: Sequence[int], pos: int = 0) -> int: ...
    def logits(self) -> npt.NDArray[np.float32]: ...
    def tokenize(self, text: str) -> list[int]: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def same_bits(self) -> bool: ...
    @property
    def n_duo_products(self) -> int: ...
    @property
    def n_cpu_products(self) -> int: ...

class ModelOptions:
    path: str | bytes
    devices: list[str]
    n_gpu_layers: int
    n_ctx: int
    n_ctx_most: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    n_threads_batch: int
    n_threads_alone: int
    flash_attn: str
    type_k: str
    type_v: str
    load_mode: str
    cpus: list[int]
    strict: bool
    cpu_types: list[str]
    override_tensors: list[tuple[str, str]]

class EngineOptions:
    target: ModelOptions
    draft: ModelOptions
    tracing: bool
    delay_us: int
    delay_seed: int

class Plan:
    mode: str
    n_draft: int
    n_draft_min: int
    p_min: float
    n_branch: int
    has_model: bool
    always: bool
    use: str
    tree: list[list[int]]
    ngram: str
    ngram_size_n: int
    ngram_size_m: int
    ngram_min_hits: int

class SyntheticOptions:
    pass_us: float
    c: float
    v: list[tuple[int, float]]
    branch_cost: float
    a: list[float]
    n_stretch: int
    burst: float
    b: float
    confident: bool
    n_vocab: int
    n_ctx: int
    seed: int
    tracing: bool
    has_draft: bool

class Sampling:
    temp: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    repeat_last_n: int
    seed: int
    ignore_eos: bool
    logit_bias: list[tuple[int, float]]
    grammar: str
    n_prompt: int

class Model:
    @property
    def path(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def devices(self) -> list[str]: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def n_ctx_train(self) -> int: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def n_threads(self) -> int: ...
    @property
    def same_bits(self) -> bool: ...
    @property
    def n_duo_products(self) -> int: ...
    @property
    def n_cpu_products(self) -> int: ...
    @property
    def warning(self) -> str: ...
    @property
    def can_rollback(self) -> bool: ...
    def is_end(self, token: int) -> bool: ...
    @property
    def token_bos(self) -> int: ...  # -1: none
    @property
    def token_eos(self) -> int: ...
    def meta(self, key: str) -> str: ...
    def reads_grammar(self, gbnf: str) -> bool: ...
    def piece(self, token: int, special: bool = False) -> bytes: ...
    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]: ...

class TextChunk:
    @property
    def text(self) -> str: ...
    @property
    def token(self) -> int: ...
    @property
    def from_draft(self) -> bool: ...
    @property
    def finish(self) -> str: ...
    @property
    def logprob(self) -> float: ...
    @property
    def top(self) -> list[tuple[int, float]]: ...
    @property
    def t_us(self) -> int: ...

class Engine:
    @overload
    def __init__(self, options: EngineOptions, progress: Callable[[str, float], None] | None = None) -> None: ...
    @overload
    def __init__(self, options: SyntheticOptions) -> None: ...
    @property
    def target(self) -> Model: ...
    @property
    def draft(self) -> Model | None: ...
    @property
    def running(self) -> bool: ...
    def begin(
        self,
        *,
        prompt: Sequence[int],
        n_predict: int,
        sampling: Sampling,
        plan: Plan,
        stop: Sequence[str],
        n_logprobs: int,
    ) -> None: ...
    def next(self, timeout_us: int) -> TextChunk | None: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def profile(self) -> list[float]: ...
    def restore_profile(self, x: list[float]) -> None: ...
    def take_trace(self) -> list[tuple[str, str, int, int, int, int, int, int, bool, int, int, float, str]]: ...
