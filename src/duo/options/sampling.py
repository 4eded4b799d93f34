"""Keywords of one text that say what is chosen: sampling, length and grammar."""

from typing import Annotated, Any

from typing_extensions import TypedDict

from duo.options.markers import Field
from duo.options.option import (
    Bias,
    Breakers,
    Gbnf,
    Int,
    Penalty,
    Probability,
    opt,
)
from duo.options.samplers import Samplers

UNTIL_FULL = -2  # as in llama.cpp: until the context is full, whether it could be shifted or not


class SamplingOptions(TypedDict, total=False):
    """The part of GenerateOptions that the text depends on."""

    max_tokens: Annotated[
        Annotated[Int, Field(ge=UNTIL_FULL, le=2**31 - 1)],
        opt(
            -1,
            "Maximum number of tokens to generate. -1: until the model ends the text or, without --context-shift, "
            "the context is full; -2: until the context is full.",
            "-n",
            "--predict",
            "--n-predict",
            env="N_PREDICT",
        ),
    ]
    samplers: Annotated[
        Samplers | None,
        opt(None, "Samplers to apply, in this order, such as top_k;temperature. The others are off. adaptive_p must "
                  "be the last one. Default: all except adaptive_p, in llama.cpp's order, which is the fastest.",
            "--samplers", metavar="NAME;..."),
    ]  # fmt: skip
    mirostat: Annotated[
        Annotated[Int, Field(ge=0, le=2)],
        opt(0, "Use Mirostat 1 or 2 instead of all samplers except temperature; 0: off.", "--mirostat"),
    ]
    mirostat_tau: Annotated[
        Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)],
        opt(5.0, "Mirostat: target of the mean surprise of tokens, in bits.", "--mirostat-ent"),
    ]
    mirostat_eta: Annotated[
        Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)],
        opt(0.1, "Mirostat: learning rate.", "--mirostat-lr"),
    ]
    adaptive_target: Annotated[
        Annotated[float, Field(ge=-1e6, le=1.0, allow_inf_nan=False)],
        opt(-1.0, "With adaptive_p in --samplers: target of the mean probability of the chosen tokens; below 0: "
                  "off.",
            "--adaptive-target"),
    ]  # fmt: skip
    adaptive_decay: Annotated[
        Annotated[float, Field(ge=0.0, le=0.99, allow_inf_nan=False)],
        opt(0.9, "Adaptive-p: decay F of the running mean, which covers about 1 / (1 - F) tokens.", "--adaptive-decay"),
    ]
    temperature: Annotated[
        Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)],
        opt(
            0.8, "Temperature; 0: always choose the most probable token.", "--temp", "--temperature", env="TEMPERATURE"
        ),
    ]
    top_k: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(40, "Keep only the K most probable tokens; 0: all.", "--top-k", env="TOP_K"),
    ]
    top_p: Annotated[
        Probability,
        opt(0.95, "Keep only the most probable tokens whose probabilities sum to P; 1: all.", "--top-p", env="TOP_P"),
    ]
    min_p: Annotated[
        Probability,
        opt(0.05, "Keep only tokens with at least P times the probability of the best one.", "--min-p", env="MIN_P"),
    ]
    typical_p: Annotated[
        Probability,
        opt(1.0, "Keep the tokens whose surprise is nearest to the entropy, until their probabilities sum to P; 1: "
                 "all.", "--typical",
            "--typical-p"),
    ]  # fmt: skip
    top_n_sigma: Annotated[
        Annotated[float, Field(ge=-1.0, le=1e4, allow_inf_nan=False)],
        opt(-1.0, "Keep only logits within N standard deviations of the highest one; 0 or less: all.", "--top-nsigma",
            "--top-n-sigma"),
    ]  # fmt: skip
    xtc_probability: Annotated[
        Probability,
        opt(0.0, "Chance that XTC removes the most probable tokens; 0: never.", "--xtc-probability"),
    ]
    xtc_threshold: Annotated[
        Probability,
        opt(0.1, "XTC removes tokens of at least this probability, except the least probable one; above 0.5: none.",
            "--xtc-threshold"),
    ]  # fmt: skip
    dynatemp_range: Annotated[
        Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)],
        opt(0.0, "Vary the temperature with the entropy by up to this much; 0: off.", "--dynatemp-range"),
    ]
    dynatemp_exponent: Annotated[
        Annotated[float, Field(ge=0.0, le=1e3, allow_inf_nan=False)],
        opt(1.0, "Exponent of the entropy for --dynatemp-range; above 1: lower temperatures.", "--dynatemp-exp"),
    ]
    repeat_penalty: Annotated[
        Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)],
        opt(1.0, "Divide the logits of recent tokens by this; 1: off.", "--repeat-penalty", env="REPEAT_PENALTY"),
    ]
    repeat_last_n: Annotated[
        Annotated[Int, Field(ge=-1, le=2**20)],
        opt(64, "Number of recent tokens that the penalties count; 0: off, -1: all.", "--repeat-last-n"),
    ]
    presence_penalty: Annotated[
        Penalty,
        opt(0.0, "Lower the logits of tokens that have occurred; 0: off.", "--presence-penalty",
            env="PRESENCE_PENALTY"),
    ]  # fmt: skip
    frequency_penalty: Annotated[
        Penalty,
        opt(0.0, "Lower the logits of tokens in proportion to how often they have occurred; 0: off.",
            "--frequency-penalty", env="FREQUENCY_PENALTY"),
    ]  # fmt: skip
    dry_multiplier: Annotated[
        Annotated[float, Field(ge=0.0, le=1e4, allow_inf_nan=False)],
        opt(0.0, "DRY: penalty for a token that would continue a repetition; 0: off.", "--dry-multiplier"),
    ]
    dry_base: Annotated[
        Annotated[float, Field(ge=1.0, le=1e4, allow_inf_nan=False)],
        opt(1.75, "DRY: factor of the penalty for each further token of the repetition.", "--dry-base"),
    ]
    dry_allowed_length: Annotated[
        Annotated[Int, Field(ge=0, le=2**20)],
        opt(2, "DRY: repetitions shorter than this have no penalty.", "--dry-allowed-length"),
    ]
    dry_penalty_last_n: Annotated[
        Annotated[Int, Field(ge=-1, le=2**20)],
        opt(
            64,
            "DRY: number of recent tokens that are searched for repetitions; 0: off, -1: all.",
            "--dry-penalty-last-n",
        ),
    ]
    dry_sequence_breakers: Annotated[
        Breakers,
        opt(
            ["\n", ":", '"', "*"],
            "DRY: a string at which a repetition ends. Strings that are given replace the defaults: newline, colon, "
            "quotation mark and asterisk. none: no such strings.",
            "--dry-sequence-breaker",
            metavar="TEXT",
        ),
    ]
    logit_bias: Annotated[
        dict[int, Bias],
        opt(
            {},
            "Add a bias to the logit of a token, such as 15043+1 or 15043-inf.",
            "-l",
            "--logit-bias",
            metavar="TOKEN(+/-)BIAS",
        ),
    ]
    ignore_eos: Annotated[bool, opt(False, "Do not end the text before -n tokens.", "--ignore-eos/--no-ignore-eos")]
    seed: Annotated[
        Annotated[Int, Field(ge=-1, le=2**64 - 1)], opt(-1, "Random seed; -1: a new one each time.", "-s", "--seed")
    ]
    stop: Annotated[
        str | list[str],
        opt([], "Stop before this string.", "-r", "--stop", "--reverse-prompt", metavar="TEXT"),
    ]
    grammar: Annotated[
        Gbnf | None,
        opt(
            None,
            "Constrain the text to this grammar (llama.cpp's GBNF); it ends when the grammar is complete.",
            "--grammar",
            metavar="GBNF",
        ),
    ]
    json_schema: Annotated[
        Any,
        opt(
            None,
            "Constrain the text to JSON that this schema allows; {}: any JSON object.",
            "-j",
            "--json-schema",
            metavar="SCHEMA",
        ),
    ]
