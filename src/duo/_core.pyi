"""The C++ core (csrc/python/bindings.cpp). What fails in it is a duo.DuoError."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, overload

import numpy as np
import numpy.typing as npt

N_DRAFT_AUTO: int
N_DRAFT_MAX: int
N_STEP_MAX: int
PROFILE_VERSION: int

# csrc/wires/message_limits.h: least and most of each number, and how many or how long at most.
class Limits(TypedDict):
    sampling: dict[str, tuple[float, float]]
    plan: dict[str, tuple[float, float]]
    n_logprobs: int
    n_stops: int
    n_stop_bytes: int
    n_bias: int
    bias: float
    n_grammar_bytes: int
    n_breakers: int
    n_breaker_bytes: int
    n_tree: int
    n_rank: int

LIMITS: Limits

# Tells of which release of llama-cpp-python libllama is ("": not known). Returns whether duo was built for such a one,
# and a description of both: built for, loaded.
def check_llama(release: str) -> tuple[bool, str, str]: ...
def ggml_commit() -> str: ...
def supports_rpc() -> bool: ...
def now_us() -> int: ...
def use_numa(kind: str) -> None: ...  # once in the life of the process
def log_to(to_stderr: bool, path: str | bytes) -> None: ...
def log_style(*, prefix: bool, timestamps: bool, jsonl: bool) -> None: ...
def take_log() -> None: ...  # libllama's log comes here again, which `import llama_cpp` takes away
def noise(seed: int, pos: int, token: int) -> float: ...
def reads_grammar(gbnf: str) -> bool: ...  # names of tokens (<think>) need a model's vocabulary
def grammar_too_large(gbnf: str) -> str: ...  # why it is not to be read; empty: it may be
def chat_templates() -> list[str]: ...
def apply_chat_template(name: str, messages: Sequence[tuple[str, str]], add_assistant: bool) -> str: ...
def devices() -> list[tuple[str, str, str, int, int, str]]: ...
def rpc_serve(endpoint: str, cache_dir: bytes, n_threads: int, devices: Sequence[str]) -> None: ...  # for ever
def rpc_connect(endpoint: str) -> list[str]: ...  # ends the process where the server is lost
def rpc_memory(name: str) -> tuple[int, int]: ...  # free, total; asks the server, and waits for it

KERNELS_VERSION: str
RACE_BYTES: int

def kernels() -> tuple[str, str]: ...  # instruction set, or why there is none
def keeps_layer_inputs(architecture: str) -> bool: ...  # of targets: a head can read them
def runs_mtp(architecture: str) -> bool: ...
def other_ggml() -> str: ...  # that this libggml is not the kernels' own; empty: it is
def kernel_types() -> list[str]: ...
def cpu_types(path: str | bytes, n_gpu_layers: int, overrides: Sequence[tuple[str, str]] = ()) -> list[str]: ...
def cpu_weight_bytes(
    path: str | bytes, n_gpu_layers: int, packing: tuple[str, list[str]] = ("", [])
) -> dict[str, int]: ...  # by the type in which they are kept
def packed_bytes(type: str, n_columns: int, n_rows: int) -> int: ...  # of a matrix, for duo's kernels; 0: it has none
def packed_types() -> list[str]: ...  # what ModelOptions.packing may requantise to
def race(
    type: str, widths: Sequence[int], teams: Sequence[int], n_us: int
) -> list[tuple[int, list[tuple[float, float]]]]: ...  # for each team: bytes read ahead; by width stock, duo

# Whether experts are fetched before their routers have chosen: off, needed (where passes read from a disk), or always
def foresee_experts(how: str) -> None: ...
def read_ahead_of(type: str, n_bytes: int) -> None: ...
def product_errors(type: str, weights: bytes, n_columns: int, width: int) -> tuple[float, float]: ...
def read_header(path: str | bytes) -> dict[str, Any]: ...  # duo.models.header
def architecture_of(path: str | bytes) -> str: ...  # "": no GGUF file, or it names none
def vocab_check(target: str | bytes, draft: str | bytes, mtp: bool = False) -> dict[str, Any]: ...  # duo.pair_check
def refuse_lone_head(path: str | bytes) -> None: ...  # csrc/llama/lone_head.h
def memory_available(root: str = "") -> int: ...
def pack_model(
    model: bytes,
    out: bytes,
    origin: tuple[str, str],  # what tells the model from others; duo's release
    packing: tuple[str, list[str]],
    n_threads: int,
    progress: Callable[[str, float], None] | None = None,
    whole: bool = False,
) -> int: ...  # csrc/llama/packed_file.h; returns bytes
def unpack_model(
    packed: bytes, out: bytes, n_threads: int, progress: Callable[[str, float], None] | None = None
) -> None: ...
def is_packed_file(path: bytes) -> bool: ...
def may_be_whole(path: bytes) -> bool: ...  # csrc/llama/packed_header.h
def packed_facts(path: bytes) -> tuple[str, int]: ...  # what it says of its model; bytes of packed weights
def read_bytes(path: bytes, offset: int, n: int) -> bytes: ...  # of a model's file, packed or not

PACKED_VERSION: int
WHOLE_VERSION: int  # of a packed file that takes the place of the model's

def extra_buffers() -> list[str]: ...  # ggml-cpu's, as "AMX"
def extra_buffers_allowed() -> bool: ...
def allow_extra_buffers(yes: bool) -> None: ...
def usable_kernels() -> list[str]: ...  # instruction sets, best first
def refuse_kernels(names: Sequence[str]) -> None: ...

class Probe:
    def __init__(self, options: ModelOptions, is_draft: bool = False) -> None: ...
    # states: of a draft head, [tokens][n_state]: the state before each token
    def decode(
        self,
        tokens: Sequence[int],
        pos: int = 0,
        states: npt.NDArray[np.float32] | None = None,
        only_last: bool = False,
        n_levels: int = 1,  # of rows with an output, of a head that guesses in blocks
    ) -> int: ...
    def mark(self) -> None: ...  # a recurrent state as it is now: passes may go back to it
    # by duo's kernels in the last pass: products with experts, their distinct experts in all, bytes of these
    @property
    def experts_read(self) -> tuple[int, int, int]: ...
    # foresee_experts("always"): by predictor, the part of the experts that passes needed that is among its first ones
    def expert_recall(self, budget: int) -> dict[str, float]: ...
    def logits(self) -> npt.NDArray[np.float32]: ...
    def levels(self) -> npt.NDArray[np.float32]: ...  # [n_levels][n_vocab], of the last row, of such a head
    def features(self) -> npt.NDArray[np.float32]: ...  # [rows of the last pass][inputs of feature_layers]
    def encode(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]: ...  # states, of a draft head
    def states(self) -> npt.NDArray[np.float32]: ...  # [rows of the last pass][n_state], of a draft head
    def candidates(  # (token, logp) of the n best after a row of the last pass; text: all up to that row
        self, row: int, sampling: Sampling, text: Sequence[int], n: int
    ) -> list[tuple[int, float]]: ...
    def chances(  # (token, logp) of all tokens that may follow a row of the last pass, most probable first
        self, row: int, sampling: Sampling, text: Sequence[int]
    ) -> list[tuple[int, float]]: ...
    @property
    def n_sorted(self) -> int: ...  # logits that were sorted for candidates and chances so far
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
    def uses_stock(self) -> bool: ...  # for a product on the CPU, perhaps only a router's: a pass has two rows at least
    @property
    def n_duo_products(self) -> int: ...
    @property
    def n_cpu_products(self) -> int: ...
    @property
    def packed_as(self) -> str: ...
    @property
    def n_from_file(self) -> int: ...  # weights that come from the packed file
    @property
    def n_read_ahead(self) -> int: ...  # bytes of mapped weights that were asked for before their products
    @property
    def packed_file(self) -> str: ...
    @property
    def warning(self) -> str: ...
    @property
    def n_proposed(self) -> int: ...

class ModelOptions:
    path: str | bytes
    packed: tuple[bytes, str, bool]  # file, what it says of its model, whether to check it all
    devices: list[str]
    n_gpu_layers: int
    tensor_split: list[float]
    split_mode: str
    main_gpu: int
    n_ctx: int
    n_ctx_most: int
    n_batch: int
    n_ubatch: int
    n_parallel: int
    guesses: bool  # passes verify guesses: a recurrent state keeps snapshots
    n_contexts: int
    n_marks: int  # states that are kept of a slot's prompts
    mark_step: int
    n_threads: int
    n_threads_batch: int
    flash_attn: str
    type_k: str
    type_v: str
    load_mode: str
    lazy_mode: str
    vocab_only: bool
    offload_kqv: bool
    op_offload: bool
    check_tensors: bool
    special: bool
    host_buffers: bool
    repack: bool
    cpus: list[int]
    # Of passes of one row, and of several: CPUs ([]: those of the thread), whether each thread has one, niceness.
    narrow_team: tuple[list[int], bool, int | None]
    wide_team: tuple[list[int], bool, int | None]
    strict: bool
    mtp: bool
    feature_layers: list[int]
    cpu_types: list[str]
    draft_vocab: int  # ids below it are in a draft's shortlist; 0: it has none
    packing: tuple[str, list[str]]  # what a draft's weights become, and the types that do; ("", []): none
    override_tensors: list[tuple[str, str]]
    loras: list[tuple[str | bytes, float]]
    rope_scaling: str
    rope_freq_base: float
    rope_freq_scale: float
    yarn_orig_ctx: int
    yarn_ext_factor: float
    yarn_attn_factor: float
    yarn_beta_slow: float
    yarn_beta_fast: float
    kv_overrides: dict[str, Any]
    control_vectors: list[tuple[str | bytes, float]]
    control_first: int
    control_last: int

class ProjectorOptions:
    path: bytes  # empty: the model sees nothing
    offload: bool
    device: str
    n_threads: int
    min_rows: int  # of a picture; -1: as the file says
    max_rows: int

# ---- csrc/python/bindings_pictures.cpp

FIRST_PICTURE_ID: int  # ids of rows of pictures are not smaller

class SeenPrompt:
    @property
    def tokens(self) -> list[int]: ...  # rows of pictures have ids of 2**30 and more

class Media:
    @staticmethod
    def picture(pixels: bytes | bytearray | memoryview, width: int, height: int, id: str) -> Media: ...  # RGB
    @staticmethod
    def sound(samples: bytes | bytearray | memoryview, id: str) -> Media: ...  # 32-bit floats
    @property
    def n_bytes(self) -> int: ...

class Projector:
    @property
    def sees(self) -> bool: ...
    @property
    def rate(self) -> int: ...  # samples a second that it hears; 0: it is deaf
    def read(
        self, parts: Sequence[str | Media], add_special: bool = True, parse_special: bool = False
    ) -> SeenPrompt: ...

class EngineOptions:
    n_parallel: int
    lookup_static: str | bytes  # files of n-gram caches; empty: none
    lookup_dynamic: str | bytes
    n_kept_bytes: int  # -1: no limit
    target: ModelOptions
    draft: ModelOptions
    projector: ProjectorOptions
    draft_projector: ProjectorOptions
    remote_draft: bool
    n_ctx_remote: int
    shared: bool
    split: tuple[int, int]
    expected_pass_us: list[tuple[int, float]]
    expected_step_us: float
    tracing: bool

class Plan:
    mode: str
    n_draft: int
    n_draft_min: int
    p_min: float
    n_branch: int
    n_window: int  # -1: auto, 0: all
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
    says: float
    n_vocab: int
    n_ctx: int
    n_parallel: int
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
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dynatemp_range: float
    dynatemp_exponent: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: list[str]
    accept: str  # noise, rejection, typical, top-n
    posterior_threshold: float
    posterior_alpha: float
    accept_top: int
    logit_bias: list[tuple[int, float]]
    grammar: str
    n_left_out: int  # tokens that are missing in what is given of the text
    n_prompt: int

class Model:
    @property
    def projector(self) -> Projector | None: ...  # None: it sees nothing
    @property
    def path(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def devices(self) -> list[str]: ...  # that hold weights
    @property
    def helpers(self) -> list[str]: ...  # devices that compute long prompts with weights of the CPU
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
    def n_setups(self) -> int:
        """How often parameters of sampling were set up."""
    @property
    def n_cpu_products(self) -> int: ...
    @property
    def stock_types(self) -> list[str]: ...  # of the matrices on the CPU that stock kernels compute
    @property
    def n_proposed(self) -> int: ...  # tokens for which a draft computes logits, before the first text
    @property
    def n_read_ahead(self) -> int: ...  # bytes of mapped weights that were asked for before their products
    @property
    def packed_file(self) -> str: ...  # where packed weights come from; empty: they were packed when they were read
    @property
    def lost_file(self) -> str: ...  # a mapped file that can no longer be read; empty: there is none
    @property
    def packed_as(self) -> str: ...  # the type that weights were requantised to; empty: none were
    @property
    def warning(self) -> str: ...
    @property
    def can_rollback(self) -> bool: ...
    @property
    def has_mtp(self) -> bool: ...
    @property
    def head(self) -> str: ...  # eagle3, mtp, dflash or dspark, of a draft head; empty: another model
    @property
    def vocabulary(self) -> Vocabulary: ...
    def is_end(self, token: int) -> bool: ...
    @property
    def token_bos(self) -> int: ...  # -1: none
    @property
    def token_eos(self) -> int: ...
    @property
    def fim_tokens(self) -> tuple[int, int, int]: ...  # before prefix, suffix and middle; -1: none
    @property
    def repository_tokens(self) -> tuple[int, int]: ...  # before the name of a repository, and of a file; -1: none
    def meta(self, key: str) -> str: ...
    def reads_grammar(self, gbnf: str) -> bool: ...
    def piece(self, token: int, special: bool = False) -> bytes: ...
    # What a token adds to a text that is written: a control token with `special` only, and one that only the target
    # elsewhere has, nothing.
    def written(self, token: int) -> bytes: ...
    def tokenize(self, text: str | bytes, add_special: bool = True, parse_special: bool = False) -> list[int]: ...

class TextChunk:
    @property
    def text(self) -> str: ...
    @property
    def token(self) -> int: ...
    @property
    def from_draft(self) -> bool: ...
    @property
    def finish(self) -> Literal["", "stop", "length", "cancelled", "error"]: ...  # empty: the text goes on
    @property
    def logprob(self) -> float: ...
    @property
    def top(self) -> list[tuple[int, float]]: ...
    @property
    def t_us(self) -> int: ...

class Embedder:
    """csrc/llama/embedder.h. progress(path, share)."""

    def __init__(
        self, options: ModelOptions, pooling: str = "", progress: Callable[[str, float], None] | None = None
    ) -> None: ...
    # where the passes over these texts end, as numbers of texts
    def passes(self, texts: Sequence[Sequence[int]]) -> list[int]: ...
    # float32 [texts, n_out], or [tokens, n_out] without pooling
    def embed(self, texts: Sequence[Sequence[int]]) -> np.ndarray[Any, np.dtype[np.float32]]: ...
    def stop(self) -> None: ...  # for good; embed() raises CancelledError
    @property
    def n_out(self) -> int: ...
    @property
    def n_most(self) -> int: ...
    @property
    def pooling(self) -> str: ...
    @property
    def rerank_template(self) -> str: ...
    @property
    def around_pair(self) -> tuple[list[int], list[int], list[int]]: ...

class TokenHook:
    """Changes the rows of one text before the target chooses from them (csrc/text/token_hook.h)."""

class ThoughtMarks:
    """What begins a thought, what ends it, and the tokens that end it where its limit is reached (thought_limit.h)."""

    def __init__(self, begin: str, end: str, forced: Sequence[int]) -> None: ...

def thought_limit(engine: Engine, marks: Sequence[ThoughtMarks], n_most: int) -> TokenHook: ...
def adaptive_p(target: float, decay: float) -> TokenHook: ...
def mirostat(engine: Engine, version: int, tau: float, eta: float, sampling: Sampling) -> TokenHook: ...
def ordered_samplers(engine: Engine, names: Sequence[str], sampling: Sampling) -> TokenHook: ...

# How the target chooses from what ordered_samplers has left.
def chosen_from(sampling: Sampling) -> Sampling: ...

class Errand:
    """kind: look, save, restore, erase, score (csrc/model/errand.h)."""

    def __init__(self, kind: str, *, n_keep: int = -1, n_top: int = 0) -> None: ...
    def give_target(self, tokens: Sequence[int], saved: bytes, lora_scales: Sequence[float] = ()) -> None: ...
    @property
    def lora_scales(self) -> list[float]: ...  # with which the target's cache was computed
    def give_draft(self, tokens: Sequence[int], saved: bytes) -> None: ...
    @property
    def target_tokens(self) -> list[int]: ...
    @property
    def draft_tokens(self) -> list[int]: ...
    def target_saved(self) -> memoryview: ...
    def draft_saved(self) -> memoryview: ...
    @property
    def target_held(self) -> list[int]: ...  # look: positions of each branch, by the model's own account
    @property
    def draft_held(self) -> list[int]: ...
    @property
    def logprobs(self) -> list[float]: ...
    @property
    def top(self) -> list[tuple[int, float]]: ...

class Text:
    """A text that was begun (csrc/engine/text_reader.h)."""

    @property
    def slot(self) -> int: ...  # the number of the link that carries it, if a model is elsewhere
    def stats(self) -> dict[str, Any]: ...  # complete after the chunk that has finish set
    @property
    def place(self) -> int: ...  # in the target's cache; -1: not begun
    @property
    def n_cached(self) -> int: ...  # tokens of its prompt that were there when it began

class WorkerUsage(TypedDict):
    """What a worker holds (csrc/wires/usage.h)."""

    cells: list[int]  # tokens in the cache, by slot; empty: the model is elsewhere
    n_active: int  # texts
    n_parked: int
    n_branches: int
    n_begins: int
    n_kept: int
    kept_bytes: int

class Passes(TypedDict):
    """The target's passes since the models were loaded (csrc/wires/pass_counts.h); none: it is elsewhere."""

    by_width: dict[int, int]  # passes by their rows; 0: more than 64
    n_rows: int  # in all passes
    n_texts: int  # in all passes
    stance_us: list[int]  # ahead, by turn, at rest, reading prompts

class Usage(TypedDict):
    target: WorkerUsage
    draft: WorkerUsage  # its figures follow a text's last chunk a moment later
    n_threads: int
    n_open: int
    n_queued: int
    n_unfreed: int
    passes: Passes

# Each decode of the models is up to so many microseconds late, by random numbers: for tests of schedules.
def make_late(options: EngineOptions, most_us: int, seed: int) -> None: ...

class Engine:
    @overload
    def __init__(self, options: EngineOptions, progress: Callable[[str, float], None] | None = None) -> None: ...
    @overload
    def __init__(self, options: SyntheticOptions) -> None: ...
    @property
    def target(self) -> Model | None: ...  # None: elsewhere
    @property
    def draft(self) -> Model | None: ...
    @property
    def draft_links(self) -> list[DraftLink]: ...
    @property
    def target_links(self) -> list[TargetLink]: ...
    @property
    def running(self) -> bool: ...
    lora_scales: list[float]  # of the target's adapters, for what begins later
    @property
    def shared_vocabulary(self) -> float | None: ...  # of the smaller one, that both have; None: they have one
    @property
    def usage(self) -> Usage: ...
    def begin(
        self,
        *,
        prompt: Sequence[int],
        n_predict: int,
        sampling: Sampling,
        plan: Plan,
        stop: Sequence[str],
        n_logprobs: int,
        hook: Callable[[Any, Any], bool] | None = None,
        place: int = -1,
        use_cache: bool = True,
        n_mark: int = 0,
        hooks: Sequence[TokenHook] = (),
        chosen_from: Sampling | None = None,
        context_shift: bool = False,
        n_keep: int = 0,
        n_discard: int = 0,
        filtered_logprobs: bool = False,
        pictures: SeenPrompt | None = None,
        lora_scales: Sequence[float] = (),
    ) -> Text: ...
    def begin_errand(
        self, errand: Errand, prompt: Sequence[int] = (), place: int = -1, lora_scales: Sequence[float] = ()
    ) -> Text: ...
    def next(self, text: Text, timeout_us: int) -> TextChunk | None: ...
    # Waits for a chunk of any text; returns a count of them, at once if that is not `seen`.
    def wait_news(self, seen: int, timeout_us: int) -> int: ...
    def cancel(self, text: Text) -> None: ...
    def cancel_all(self) -> None: ...
    def close(self) -> None: ...
    def save_lookup(self, path: bytes) -> None: ...  # the dynamic n-gram cache; of a closed engine
    def profile(self) -> list[float]: ...
    def restore_profile(self, x: list[float]) -> None: ...
    def forget_profile(self) -> None: ...
    @property
    def n_measured(self) -> int: ...
    def take_trace(self) -> list[tuple[str, str, int, int, int, int, int, int, bool, int, int, float, str]]: ...

# ---- a model in another process: csrc/python/bindings_remote.cpp, csrc/python/bindings_seats.cpp

# Messages are tuples, in the order of the fields in csrc/base/messages.h.
NodeTuple = tuple[str, bool, int, int, int, float, int, int, float]
VerdictTuple = tuple[str, int, int, int, int, int, int, int, int]
ChunkTuple = tuple[str, bool, bool, str, int, float, int, int]
PartStats = dict[str, int | list[int]]

class Begin:
    id: int
    prompt: list[int]
    client: int  # on a host: who asks for the text
    n_generated: int
    n_predict: int
    n_logprobs: int
    stop: list[str]
    sampling: Sampling
    plan: Plan

class Vocabulary:
    @property
    def n_tokens(self) -> int: ...
    @property
    def type(self) -> int: ...
    @property
    def bos(self) -> int: ...
    @property
    def eos(self) -> int: ...
    @property
    def add_bos(self) -> bool: ...
    @property
    def add_eos(self) -> bool: ...
    def hash(self, first: int, n: int) -> int: ...
    def text(self, token: int) -> bytes: ...

class DraftLink:
    def wait_begin(self, timeout_us: int) -> Begin | None: ...
    def take(self, timeout_us: int) -> list[VerdictTuple]: ...
    def ready(self) -> None: ...
    def lost(self) -> None: ...
    def give(self, nodes: list[NodeTuple]) -> None: ...
    def rtt(self, us: int) -> None: ...
    @property
    def closed(self) -> bool: ...

class TargetLink:
    def wait_begin(self, timeout_us: int) -> Begin | None: ...
    def take(self, timeout_us: int) -> list[NodeTuple]: ...
    def give(self, verdicts: list[VerdictTuple], chunks: list[ChunkTuple]) -> None: ...
    def restart(self) -> Begin: ...
    def add_stats(self, stats: PartStats) -> None: ...
    def fail(self, why: str, code: str) -> None: ...  # code: of duo.errors
    def stopped(self) -> None: ...
    @property
    def running(self) -> bool: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def closed(self) -> bool: ...

class SharedModel:
    def __init__(
        self, options: ModelOptions, is_draft: bool, progress: Callable[[str, float], None] | None = None
    ) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def devices(self) -> list[str]: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def n_ctx_train(self) -> int: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def packed_file(self) -> str: ...
    @property
    def warning(self) -> str: ...
    @property
    def vocabulary(self) -> Vocabulary: ...

class DraftHost:
    def __init__(self, model: SharedModel) -> None: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def seats(self) -> list[DraftSeat]: ...
    def close(self) -> None: ...

class DraftSeat:
    def n_cached(self, prompt: Sequence[int]) -> int: ...
    def begin(self, text: Begin) -> None: ...
    def give(self, verdicts: list[VerdictTuple]) -> None: ...
    def take(self, timeout_us: int) -> list[NodeTuple]: ...
    def end(self, timeout_us: int) -> bool: ...
    @property
    def taken(self) -> bool: ...
    @property
    def closed(self) -> bool: ...

class VerifyHost:
    def __init__(self, model: SharedModel) -> None: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def seats(self) -> list[VerifySeat]: ...
    def close(self) -> None: ...

class VerifySeat:
    def n_cached(self, prompt: Sequence[int]) -> int: ...
    def begin(self, text: Begin) -> None: ...
    def give(self, nodes: list[NodeTuple]) -> None: ...
    def take(self, timeout_us: int) -> tuple[list[VerdictTuple], list[ChunkTuple]]: ...
    def cancel(self) -> None: ...
    def rtt(self, us: int) -> None: ...
    @property
    def running(self) -> bool: ...
    @property
    def error(self) -> tuple[str, str]: ...  # sentence and code; an empty sentence: no error
    def stats(self) -> PartStats: ...
