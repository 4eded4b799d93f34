from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Vocabulary(_message.Message):
    __slots__ = ("n_vocab", "type", "bos", "eos", "add_bos", "add_eos", "blocks")
    N_VOCAB_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BOS_FIELD_NUMBER: _ClassVar[int]
    EOS_FIELD_NUMBER: _ClassVar[int]
    ADD_BOS_FIELD_NUMBER: _ClassVar[int]
    ADD_EOS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    n_vocab: int
    type: int
    bos: int
    eos: int
    add_bos: bool
    add_eos: bool
    blocks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, n_vocab: _Optional[int] = ..., type: _Optional[int] = ..., bos: _Optional[int] = ..., eos: _Optional[int] = ..., add_bos: bool = ..., add_eos: bool = ..., blocks: _Optional[_Iterable[int]] = ...) -> None: ...

class Identity(_message.Message):
    __slots__ = ("model", "vocabulary")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    model: str
    vocabulary: Vocabulary
    def __init__(self, model: _Optional[str] = ..., vocabulary: _Optional[_Union[Vocabulary, _Mapping]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("n_ctx", "n_seats", "n_message")
    N_CTX_FIELD_NUMBER: _ClassVar[int]
    N_SEATS_FIELD_NUMBER: _ClassVar[int]
    N_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    n_ctx: int
    n_seats: int
    n_message: int
    def __init__(self, n_ctx: _Optional[int] = ..., n_seats: _Optional[int] = ..., n_message: _Optional[int] = ...) -> None: ...

class HelloRequest(_message.Message):
    __slots__ = ("protocol", "version", "role", "identity")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    role: str
    identity: Identity
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ..., role: _Optional[str] = ..., identity: _Optional[_Union[Identity, _Mapping]] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("protocol", "version", "role", "identity", "limits", "instance", "refusal")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    role: str
    identity: Identity
    limits: Limits
    instance: bytes
    refusal: str
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ..., role: _Optional[str] = ..., identity: _Optional[_Union[Identity, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., instance: _Optional[bytes] = ..., refusal: _Optional[str] = ...) -> None: ...

class TokensRequest(_message.Message):
    __slots__ = ("first", "n")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    first: int
    n: int
    def __init__(self, first: _Optional[int] = ..., n: _Optional[int] = ...) -> None: ...

class TokensReply(_message.Message):
    __slots__ = ("texts",)
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, texts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Bias(_message.Message):
    __slots__ = ("token", "bias")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    token: int
    bias: float
    def __init__(self, token: _Optional[int] = ..., bias: _Optional[float] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temp", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "repeat_last_n", "seed", "ignore_eos", "logit_bias", "grammar", "n_prompt", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "accept", "posterior_threshold", "posterior_alpha", "accept_top", "n_left_out")
    TEMP_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPEAT_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPEAT_LAST_N_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    N_PROMPT_FIELD_NUMBER: _ClassVar[int]
    TYPICAL_P_FIELD_NUMBER: _ClassVar[int]
    TOP_N_SIGMA_FIELD_NUMBER: _ClassVar[int]
    XTC_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    XTC_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DYNATEMP_RANGE_FIELD_NUMBER: _ClassVar[int]
    DYNATEMP_EXPONENT_FIELD_NUMBER: _ClassVar[int]
    DRY_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    DRY_BASE_FIELD_NUMBER: _ClassVar[int]
    DRY_ALLOWED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    DRY_PENALTY_LAST_N_FIELD_NUMBER: _ClassVar[int]
    DRY_SEQUENCE_BREAKERS_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    POSTERIOR_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    POSTERIOR_ALPHA_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_TOP_FIELD_NUMBER: _ClassVar[int]
    N_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
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
    logit_bias: _containers.RepeatedCompositeFieldContainer[Bias]
    grammar: str
    n_prompt: int
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
    dry_sequence_breakers: _containers.RepeatedScalarFieldContainer[str]
    accept: str
    posterior_threshold: float
    posterior_alpha: float
    accept_top: int
    n_left_out: int
    def __init__(self, temp: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., repeat_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., repeat_last_n: _Optional[int] = ..., seed: _Optional[int] = ..., ignore_eos: bool = ..., logit_bias: _Optional[_Iterable[_Union[Bias, _Mapping]]] = ..., grammar: _Optional[str] = ..., n_prompt: _Optional[int] = ..., typical_p: _Optional[float] = ..., top_n_sigma: _Optional[float] = ..., xtc_probability: _Optional[float] = ..., xtc_threshold: _Optional[float] = ..., dynatemp_range: _Optional[float] = ..., dynatemp_exponent: _Optional[float] = ..., dry_multiplier: _Optional[float] = ..., dry_base: _Optional[float] = ..., dry_allowed_length: _Optional[int] = ..., dry_penalty_last_n: _Optional[int] = ..., dry_sequence_breakers: _Optional[_Iterable[str]] = ..., accept: _Optional[str] = ..., posterior_threshold: _Optional[float] = ..., posterior_alpha: _Optional[float] = ..., accept_top: _Optional[int] = ..., n_left_out: _Optional[int] = ...) -> None: ...

class Path(_message.Message):
    __slots__ = ("ranks",)
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("mode", "n_draft", "n_draft_min", "p_min", "n_branch", "has_model", "always", "use", "tree", "ngram", "ngram_size_n", "ngram_size_m", "ngram_min_hits", "n_window")
    MODE_FIELD_NUMBER: _ClassVar[int]
    N_DRAFT_FIELD_NUMBER: _ClassVar[int]
    N_DRAFT_MIN_FIELD_NUMBER: _ClassVar[int]
    P_MIN_FIELD_NUMBER: _ClassVar[int]
    N_BRANCH_FIELD_NUMBER: _ClassVar[int]
    HAS_MODEL_FIELD_NUMBER: _ClassVar[int]
    ALWAYS_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    NGRAM_FIELD_NUMBER: _ClassVar[int]
    NGRAM_SIZE_N_FIELD_NUMBER: _ClassVar[int]
    NGRAM_SIZE_M_FIELD_NUMBER: _ClassVar[int]
    NGRAM_MIN_HITS_FIELD_NUMBER: _ClassVar[int]
    N_WINDOW_FIELD_NUMBER: _ClassVar[int]
    mode: str
    n_draft: int
    n_draft_min: int
    p_min: float
    n_branch: int
    has_model: bool
    always: bool
    use: str
    tree: _containers.RepeatedCompositeFieldContainer[Path]
    ngram: str
    ngram_size_n: int
    ngram_size_m: int
    ngram_min_hits: int
    n_window: int
    def __init__(self, mode: _Optional[str] = ..., n_draft: _Optional[int] = ..., n_draft_min: _Optional[int] = ..., p_min: _Optional[float] = ..., n_branch: _Optional[int] = ..., has_model: bool = ..., always: bool = ..., use: _Optional[str] = ..., tree: _Optional[_Iterable[_Union[Path, _Mapping]]] = ..., ngram: _Optional[str] = ..., ngram_size_n: _Optional[int] = ..., ngram_size_m: _Optional[int] = ..., ngram_min_hits: _Optional[int] = ..., n_window: _Optional[int] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("id", "prompt", "n_generated", "n_predict", "n_logprobs", "stop", "sampling", "plan", "instance", "session")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    N_GENERATED_FIELD_NUMBER: _ClassVar[int]
    N_PREDICT_FIELD_NUMBER: _ClassVar[int]
    N_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    id: int
    prompt: _containers.RepeatedScalarFieldContainer[int]
    n_generated: int
    n_predict: int
    n_logprobs: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    sampling: Sampling
    plan: Plan
    instance: bytes
    session: bytes
    def __init__(self, id: _Optional[int] = ..., prompt: _Optional[_Iterable[int]] = ..., n_generated: _Optional[int] = ..., n_predict: _Optional[int] = ..., n_logprobs: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., instance: _Optional[bytes] = ..., session: _Optional[bytes] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("kind", "named", "id", "parent", "token", "logp", "rank", "n_rows", "step_us")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NODE: _ClassVar[Node.Kind]
        PAUSE: _ClassVar[Node.Kind]
        FAILED: _ClassVar[Node.Kind]
        SHARE: _ClassVar[Node.Kind]
    NODE: Node.Kind
    PAUSE: Node.Kind
    FAILED: Node.Kind
    SHARE: Node.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGP_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    N_ROWS_FIELD_NUMBER: _ClassVar[int]
    STEP_US_FIELD_NUMBER: _ClassVar[int]
    kind: Node.Kind
    named: bool
    id: int
    parent: int
    token: int
    logp: float
    rank: int
    n_rows: int
    step_us: float
    def __init__(self, kind: _Optional[_Union[Node.Kind, str]] = ..., named: bool = ..., id: _Optional[int] = ..., parent: _Optional[int] = ..., token: _Optional[int] = ..., logp: _Optional[float] = ..., rank: _Optional[int] = ..., n_rows: _Optional[int] = ..., step_us: _Optional[float] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("kind", "accepted", "token", "n_ahead", "n_branch", "n_want", "branch_price", "least_path", "sharpness")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERDICT: _ClassVar[Verdict.Kind]
        END: _ClassVar[Verdict.Kind]
        ORDERS: _ClassVar[Verdict.Kind]
    VERDICT: Verdict.Kind
    END: Verdict.Kind
    ORDERS: Verdict.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    N_AHEAD_FIELD_NUMBER: _ClassVar[int]
    N_BRANCH_FIELD_NUMBER: _ClassVar[int]
    N_WANT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_PRICE_FIELD_NUMBER: _ClassVar[int]
    LEAST_PATH_FIELD_NUMBER: _ClassVar[int]
    SHARPNESS_FIELD_NUMBER: _ClassVar[int]
    kind: Verdict.Kind
    accepted: int
    token: int
    n_ahead: int
    n_branch: int
    n_want: int
    branch_price: int
    least_path: int
    sharpness: int
    def __init__(self, kind: _Optional[_Union[Verdict.Kind, str]] = ..., accepted: _Optional[int] = ..., token: _Optional[int] = ..., n_ahead: _Optional[int] = ..., n_branch: _Optional[int] = ..., n_want: _Optional[int] = ..., branch_price: _Optional[int] = ..., least_path: _Optional[int] = ..., sharpness: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("kind", "from_draft", "hidden", "finish", "token", "logp", "n_hold", "n_drop")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TOKEN: _ClassVar[Chunk.Kind]
        LOGPROB: _ClassVar[Chunk.Kind]
        END: _ClassVar[Chunk.Kind]
    TOKEN: Chunk.Kind
    LOGPROB: Chunk.Kind
    END: Chunk.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    FROM_DRAFT_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGP_FIELD_NUMBER: _ClassVar[int]
    N_HOLD_FIELD_NUMBER: _ClassVar[int]
    N_DROP_FIELD_NUMBER: _ClassVar[int]
    kind: Chunk.Kind
    from_draft: bool
    hidden: bool
    finish: str
    token: int
    logp: float
    n_hold: int
    n_drop: int
    def __init__(self, kind: _Optional[_Union[Chunk.Kind, str]] = ..., from_draft: bool = ..., hidden: bool = ..., finish: _Optional[str] = ..., token: _Optional[int] = ..., logp: _Optional[float] = ..., n_hold: _Optional[int] = ..., n_drop: _Optional[int] = ...) -> None: ...

class Figure(_message.Message):
    __slots__ = ("name", "values", "is_list")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    IS_LIST_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: _containers.RepeatedScalarFieldContainer[int]
    is_list: bool
    def __init__(self, name: _Optional[str] = ..., values: _Optional[_Iterable[int]] = ..., is_list: bool = ...) -> None: ...

class ToDraft(_message.Message):
    __slots__ = ("begin", "verdicts", "ping", "n_seen")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    N_SEEN_FIELD_NUMBER: _ClassVar[int]
    begin: Begin
    verdicts: _containers.RepeatedCompositeFieldContainer[Verdict]
    ping: int
    n_seen: int
    def __init__(self, begin: _Optional[_Union[Begin, _Mapping]] = ..., verdicts: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ..., ping: _Optional[int] = ..., n_seen: _Optional[int] = ...) -> None: ...

class FromDraft(_message.Message):
    __slots__ = ("nodes", "pong")
    NODES_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    pong: int
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., pong: _Optional[int] = ...) -> None: ...

class ToVerify(_message.Message):
    __slots__ = ("begin", "nodes", "ping", "cancel", "rtt_us")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RTT_US_FIELD_NUMBER: _ClassVar[int]
    begin: Begin
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    ping: int
    cancel: bool
    rtt_us: int
    def __init__(self, begin: _Optional[_Union[Begin, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., ping: _Optional[int] = ..., cancel: bool = ..., rtt_us: _Optional[int] = ...) -> None: ...

class FromVerify(_message.Message):
    __slots__ = ("verdicts", "chunks", "pong", "n_seen", "figures", "error", "error_code")
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    N_SEEN_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[Verdict]
    chunks: _containers.RepeatedCompositeFieldContainer[Chunk]
    pong: int
    n_seen: int
    figures: _containers.RepeatedCompositeFieldContainer[Figure]
    error: str
    error_code: str
    def __init__(self, verdicts: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ..., chunks: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ..., pong: _Optional[int] = ..., n_seen: _Optional[int] = ..., figures: _Optional[_Iterable[_Union[Figure, _Mapping]]] = ..., error: _Optional[str] = ..., error_code: _Optional[str] = ...) -> None: ...
