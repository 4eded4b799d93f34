"""Keywords of one text."""

from typing import Annotated

from duo.options.markers import Field
from duo.options.option import FilePath, Hook, Int, opt
from duo.options.pictures import SeenOptions
from duo.options.sampling import SamplingOptions
from duo.options.speculation import SpeculationOptions


class GenerateOptions(SamplingOptions, SpeculationOptions, SeenOptions, total=False):
    """Keywords of `generate` and `stream`: one text."""

    context_shift: Annotated[
        bool,
        opt(False, "When the context is full, leave out half of the text behind the first --keep tokens and go on; "
                   "otherwise the text ends there.",
            "--context-shift/--no-context-shift", env="CONTEXT_SHIFT"),
    ]  # fmt: skip
    n_keep: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(0, "With --context-shift: first tokens of the prompt that always stay (and the BOS token); -1: all.",
            "--keep"),
    ]  # fmt: skip
    n_discard: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 1)],
        opt(0, "With context_shift: tokens that are left out each time; 0: half."),
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
        bool, opt(False, "Keep the generated text in it as well.", "--prompt-cache-all/--no-prompt-cache-all")
    ]
    prompt_cache_ro: Annotated[
        bool, opt(False, "Read the prompt cache, but do not write it.", "--prompt-cache-ro/--no-prompt-cache-ro")
    ]
    cache_prompt: Annotated[
        bool,
        opt(True, "Take what the caches hold of the prompt; off: evaluate all of it.",
            "--cache-prompt/--no-cache-prompt", env="CACHE_PROMPT"),
    ]  # fmt: skip
    prompt_mark: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 1)],
        opt(0, "Later prompts will probably begin with so many tokens of this one and then differ, so a target with a "
               "recurrent state keeps that state. 0: unknown. Chats set it to the beginning of the last user message."),
    ]  # fmt: skip
    id_slot: Annotated[
        Annotated[Int, Field(ge=-1, le=15)],
        opt(-1, "The place in the target's cache, if it is free; -1: the one that has most of the prompt."),
    ]
    logprobs: Annotated[
        Annotated[Int, Field(ge=0, le=100)] | None,
        opt(None, "The target's log-probabilities of each token and of its N best alternatives."),
    ]
    post_sampling_probs: Annotated[
        bool,
        opt(False, "logprobs are of what the samplers and the grammar leave, and not of the model."),
    ]
    reasoning_budget: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(-1, "Most tokens of a thought (<think> and its like): then it is ended. 0: no thoughts; -1: no limit.",
            "--reasoning-budget", env="THINK_BUDGET"),
    ]  # fmt: skip
    reasoning_budget_message: Annotated[
        str,
        opt("", "What is written at the end of a thought that is ended.", "--reasoning-budget-message",
            env="THINK_BUDGET_MESSAGE"),
    ]  # fmt: skip
    logits_processor: Annotated[
        Hook,
        opt(None, "A function (input_ids, scores) -> scores, or a list of them; called for each token."),
    ]
    stopping_criteria: Annotated[
        Hook,
        opt(None, "A function (input_ids, logits) -> bool; true: the text ends before the next token."),
    ]
