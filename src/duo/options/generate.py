"""Keywords of one text."""

from typing import Annotated

from duo.options.markers import Field
from duo.options.option import FilePath, Hook, Int, Scales, opt
from duo.options.pictures import SeenOptions
from duo.options.sampling import SamplingOptions
from duo.options.speculation import SpeculationOptions


class GenerateOptions(SamplingOptions, SpeculationOptions, SeenOptions, total=False):
    """Keywords of `generate` and `stream`: one text."""

    context_shift: Annotated[
        bool,
        opt(False, "When the context is full, leave out half of the text after the first --keep tokens and go on. "
                   "Otherwise the text ends there.",
            "--context-shift/--no-context-shift", env="CONTEXT_SHIFT"),
    ]  # fmt: skip
    n_keep: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(0, "With --context-shift: number of tokens at the beginning of the prompt that always stay (and the BOS "
               "token); -1: all.",
            "--keep"),
    ]  # fmt: skip
    n_discard: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 1)],
        opt(0, "With --context-shift: number of tokens to leave out each time; 0: half."),
    ]  # fmt: skip
    prompt_cache: Annotated[
        FilePath | None,
        opt(
            None,
            "File that keeps the models' caches of the prompt for later texts. Use only files that you trust.",
            "--prompt-cache",
            metavar="FILE",
        ),
    ]
    prompt_cache_all: Annotated[
        bool,
        opt(False, "Keep the generated text in --prompt-cache as well.", "--prompt-cache-all/--no-prompt-cache-all"),
    ]
    prompt_cache_ro: Annotated[
        bool, opt(False, "Read --prompt-cache, but do not write it.", "--prompt-cache-ro/--no-prompt-cache-ro")
    ]
    cache_prompt: Annotated[
        bool,
        opt(True, "Reuse what the caches hold of the prompt; otherwise evaluate all of it.",
            "--cache-prompt/--no-cache-prompt", env="CACHE_PROMPT"),
    ]  # fmt: skip
    prompt_mark: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 1)],
        opt(0, "Number of tokens of this prompt with which later prompts will probably begin. A target with a "
               "recurrent state keeps its state after them. 0: unknown. Chats set it to the beginning of the last "
               "user message."),
    ]  # fmt: skip
    id_slot: Annotated[
        Annotated[Int, Field(ge=-1, le=15)],
        opt(-1, "The slot to use, if it is free; -1: the slot whose cache has most of the prompt."),
    ]
    lora_scales: Annotated[
        Scales | None,
        opt(None, "The scales of the target's LoRA adapters for this text, in the order of `lora` and `lora_scaled`; "
                  "0: the adapter is not used. Default: `Duo.lora_scales`. Texts with other scales take turns."),
    ]  # fmt: skip
    logprobs: Annotated[
        Annotated[Int, Field(ge=0, le=100)] | None,
        opt(None, "Return the target's log-probabilities of each token and of its N best alternatives."),
    ]
    post_sampling_probs: Annotated[
        bool,
        opt(False, "Return log-probabilities after the samplers and the grammar, not the model's own."),
    ]
    reasoning_budget: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(-1, "Maximum number of tokens of a thought (<think> and the like), after which it is ended. 0: no "
                "thoughts; -1: no limit.",
            "--reasoning-budget", env="THINK_BUDGET"),
    ]  # fmt: skip
    reasoning_budget_message: Annotated[
        str,
        opt("", "Text to write where a thought is cut off.", "--reasoning-budget-message",
            env="THINK_BUDGET_MESSAGE"),
    ]  # fmt: skip
    logits_processor: Annotated[
        Hook,
        opt(None, "A function (input_ids, scores) -> scores, or a list of them, that is called for each token."),
    ]
    stopping_criteria: Annotated[
        Hook,
        opt(
            None,
            "A function (input_ids, logits) -> bool, or a list of them. If one returns true, the text ends "
            "before the next token.",
        ),
    ]
