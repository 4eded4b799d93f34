"""What a draft is made of: the target's file with fewer bits, fewer layers, fewer experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gguf import LlamaFileType

from duo.errors import BadValueError
from duo.models.head import HEADS, Head
from duo.models.header import Header
from duo.support.comma_separated import comma_separated
from duo.support.wording import plural

ALIASES = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}  # as llama-quantize has them
SAME = "same"  # each weight keeps its type
EXPERTS = r"_exps\.weight"  # tensors' names, as a pattern


def file_type(name: str) -> int:
    """llama.cpp's number (llama_ftype) of a type as llama-quantize spells it. Raises BadValueError."""
    member = f"MOSTLY_{ALIASES.get(name, name).upper()}"
    if member not in LlamaFileType.__members__:
        raise BadValueError(f"--types has the unknown type {name!r}; give llama-quantize's names, as q4_0,q2_k")
    return int(LlamaFileType[member])


def parse_types(text: str) -> tuple[str, ...]:
    """ "q4_0,q2_k" -> the types, each once. "none": no types. Raises BadValueError."""
    types = tuple(dict.fromkeys(word.lower() for word in comma_separated(text)))
    if types == ("none",):
        return ()
    if not types:
        raise BadValueError("--types is empty; give types, as q4_0,q2_k, or none")
    for name in types:
        file_type(name)
    return types


@dataclass(frozen=True)
class DraftRecipe:
    """A draft that can be made from the target."""

    type: str = SAME  # of the weights, or SAME
    experts_type: str = ""  # ggml's name of the experts' type; empty: as `type` has it
    left_out: tuple[int, ...] = ()  # layers, ascending
    n_experts: int | None = None  # used for a token; None: as many as the target uses


@dataclass(frozen=True)
class TargetSource:
    """The target's file, as far as drafts are made from it."""

    header: Header
    n_layers: int = field(init=False)  # without MTP layers, which a draft does not have
    n_experts: int = field(init=False)  # used for a token; 0: no mixture

    def __post_init__(self) -> None:
        """Raises BadValueError: no draft can be made from it."""
        h = self.header
        head = Head.of(h)
        if head is not None:
            raise BadValueError(f"{h.path} is {HEADS[head.kind]}, which has no draft; name a target (-m)")
        used = h.values.get(f"{h.architecture}.expert_used_count", 0)
        object.__setattr__(self, "n_layers", h.n_trunk)
        object.__setattr__(self, "n_experts", used if isinstance(used, int) else 0)

    @property
    def path(self) -> str:
        """The file; of a split model the first part."""
        return self.header.path

    @property
    def n_bytes(self) -> int:
        """Bytes of all weights except those of MTP layers."""
        return sum(t.n_bytes for t in self.header.tensors if t.layer is None or t.layer < self.n_layers)

    @property
    def mtp_layers(self) -> tuple[int, ...]:
        return tuple(range(self.n_layers, self.n_layers + self.header.n_mtp))

    def numbers(self, recipe: DraftRecipe) -> dict[str, int]:
        """Header keys that the draft has another value of."""
        values = {}
        if recipe.n_experts is not None:
            values[f"{self.header.architecture}.expert_used_count"] = recipe.n_experts
        if self.header.n_mtp:
            values[f"{self.header.architecture}.nextn_predict_layers"] = 0
        return values

    def name_of(self, recipe: DraftRecipe) -> str:
        """ "q3_k, 24 of 28 layers"."""
        parts = [] if recipe.type == SAME else [recipe.type]
        if recipe.experts_type:
            parts.append(f"experts {recipe.experts_type}")
        if recipe.left_out:
            share = f"{self.n_layers - len(recipe.left_out)} of {self.n_layers} layers"
            parts.append(f"{share} (without {_ranges(recipe.left_out)})")
        if recipe.n_experts is not None:
            parts.append(f"{recipe.n_experts} of {plural(self.n_experts, 'expert')}")
        return ", ".join(parts) or "the target itself"


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text: "3 5-7"."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def step_bytes(header: Header, left_out: Sequence[int] = ()) -> int:
    """Bytes that a step of the draft reads: without the layers that are left out, and without the embedding, unless it
    is the output matrix, too. All experts count."""
    tied = not any(t.name == "output.weight" for t in header.tensors)
    return sum(t.n_bytes for t in header.tensors if t.layer not in left_out and (tied or t.name != "token_embd.weight"))
