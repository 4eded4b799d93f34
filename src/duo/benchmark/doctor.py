"""The measurements of `duo doctor` on a model: equal bits, accuracy, speed by width."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from duo import _core
from duo.errors import DuoError, UnknownModelError
from duo.models.header import Header, read_header, read_rows
from duo.options.option import CpuKernels
from duo.placement import guard, kernels, states
from duo.placement.finding import Finding
from duo.support.wording import plural

WIDTHS = tuple(range(1, 17))
SPEED_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)
EXPERT_WIDTHS = (1, 4, 8)
N_CONTEXT = 544  # above 512 tokens, stock attention computes one row in another way
TEXT = "Once upon a time there was a little girl who lived in a house at the edge of a wood with her mother. "

Logits = npt.NDArray[np.float32]
Progress = Callable[[str], None]


@dataclass
class Accuracy:
    """Relative squared error of a product. The exact product uses the file's weights in double precision."""

    stock: float
    duo: float


@dataclass
class Report:
    model: str
    processor: str
    kernels: str  # instruction set; empty: none
    why_not: str
    types: list[str]  # types of the weights on the CPU
    duo_types: list[str]  # those of them that duo's kernels compute
    n_duo: int = 0  # matrices that duo's kernels compute
    n_cpu: int = 0  # all matrices on the CPU
    promised: bool = False  # duo promises equal bits for this model: its kernels compute all products
    n_context: int = N_CONTEXT
    # threads -> widths whose logits differ from those of one row and one thread
    differ: dict[int, list[int]] = field(default_factory=dict)
    accuracy: dict[str, Accuracy] = field(default_factory=dict)  # by type
    divergence: float | None = None  # KL(stock || duo) of the next token in nats, mean over the compared rows
    ms: dict[str, dict[int, float]] = field(default_factory=dict)  # "stock", "duo" -> width -> milliseconds
    # width -> distinct experts of a layer that a pass of ordinary text reads with duo's kernels; empty: no mixture
    experts: dict[int, float] = field(default_factory=dict)
    n_experts: int = 0  # of a layer
    # width -> bytes of the weights that such a pass reads, in those of a pass over one token
    reads: dict[int, float] = field(default_factory=dict)
    way_back: str = ""  # how a wrong guess is taken back, if the model keeps a recurrent state; one sentence
    trial: Finding = field(default_factory=Finding)  # which kinds of kernels work in a child process

    @property
    def same_bits(self) -> bool:
        return not any(self.differ.values())

    def v(self, which: str, width: int) -> float:
        """Time of a pass over `width` tokens, in passes over one token."""
        return self.ms[which][width] / self.ms[which][1]


def options(path: str, n_threads: int, types: Sequence[str], n_ctx: int) -> _core.ModelOptions:
    """Options of a target on the CPU only, as duo loads it by default."""
    o = _core.ModelOptions()
    o.path, o.n_ctx, o.devices = os.fsencode(path), n_ctx, ["none"]
    o.n_threads = o.n_threads_batch = n_threads
    o.cpu_types = list(types)
    return o


def context_of(probe: _core.Probe, n: int) -> list[int]:
    """n token ids of ordinary text."""
    ids = probe.tokenize(TEXT)
    return (ids * (n // max(1, len(ids)) + 1))[:n]


def passes_of(probe: _core.Probe, context: list[int], tokens: list[int]) -> tuple[Logits, dict[int, Logits]]:
    """Logits of `tokens` after the context, one by one and in one pass of each width."""
    probe.decode(context, 0)
    probe.mark()
    alone = []
    for i, t in enumerate(tokens):
        probe.decode([t], len(context) + i)
        alone.append(probe.logits()[0])
    wide = {}
    for width in WIDTHS:
        probe.decode(tokens[:width], len(context))
        wide[width] = probe.logits()
    return np.stack(alone), wide


def times_of(probe: _core.Probe, context: list[int], tokens: list[int], repeat: int) -> dict[int, float]:
    probe.decode(context, 0)
    probe.mark()
    times: dict[int, list[float]] = {w: [] for w in SPEED_WIDTHS}
    for _ in range(repeat):
        for width in SPEED_WIDTHS:
            times[width].append(probe.decode(tokens[:width], len(context)) / 1e3)
    return {w: statistics.median(t) for w, t in times.items()}


def experts_of(probe: _core.Probe, context: list[int], tokens: list[int]) -> dict[int, float]:
    """Distinct experts of a layer in a pass, by width; empty: duo's kernels compute none."""
    per_product = {}
    for width in EXPERT_WIDTHS:
        probe.decode(tokens[:width], len(context))
        n_products, n_distinct, _ = probe.experts_read
        if n_products:
            per_product[width] = n_distinct / n_products
    return per_product


def bytes_read(h: Header) -> tuple[int, int]:
    """Of all experts, and of the other weights that every pass reads: without MTP layers, and without an embedding that
    is only looked up."""
    is_tied = not any(t.name == "output.weight" for t in h.tensors)
    read = [
        t
        for t in h.tensors
        if (t.layer is None or t.layer < h.n_trunk) and (is_tied or not t.name.endswith("token_embd.weight"))
    ]
    n_of_experts = sum(t.n_bytes for t in read if t.name.endswith("_exps.weight"))
    return n_of_experts, sum(t.n_bytes for t in read) - n_of_experts


def reads_of(h: Header, experts: dict[int, float], n_experts: int) -> dict[int, float]:
    """Bytes of the weights that a pass reads, by width, in those of a pass over one token. experts: of `experts_of`."""
    n_of_experts, n_others = bytes_read(h)
    n_bytes = {width: n_others + n_of_experts * n / n_experts for width, n in experts.items()}
    return {width: n / n_bytes[1] for width, n in n_bytes.items()}


def log_softmax(x: Logits) -> npt.NDArray[np.float64]:
    """Along the last axis, in double precision."""
    y = x.astype(np.float64)
    y -= y.max(axis=-1, keepdims=True)
    out: npt.NDArray[np.float64] = y - np.log(np.exp(y).sum(axis=-1, keepdims=True))
    return out


def divergence(p: Logits, q: Logits) -> float:
    """KL(p || q) of the next token in nats, mean over the rows of logits."""
    a, b = log_softmax(p), log_softmax(q)
    return float(np.mean(np.sum(np.exp(a) * (a - b), axis=-1)))


def accuracy(path: str, weight_type: str, n_matrices: int = 3, n_rows: int = 128) -> Accuracy:
    """Compares products of the file's matrices of this type and Gaussian inputs with double precision."""
    header = read_header(path)
    all_of_it = [t for t in header.tensors if t.type == weight_type and len(t.shape) == 2]
    tensors = all_of_it[:: max(1, len(all_of_it) // n_matrices)][:n_matrices]
    errors = []
    for t in tensors:
        with suppress(DuoError):  # stock kernels compute this shape
            weights = read_rows(header, t, n_rows)
            errors.append(_core.product_errors(weight_type, weights, t.shape[0], 4))
    stock, duo = np.mean(errors, axis=0) if errors else (float("nan"), float("nan"))
    return Accuracy(float(stock), float(duo))


def examine(
    path: str, choice: CpuKernels, threads: Sequence[int], *, repeat: int = 5, progress: Progress = lambda _: None
) -> Report:
    """Loads the model once for each number of threads and once with stock kernels, one after the other.

    Raises DuoError: bad file, not enough memory, or duo's kernels were requested and are not available.
    """
    if not os.path.isfile(path):
        raise UnknownModelError(f"there is no file {path}; check the path")
    progress("every kind of kernel, in a child process")
    trial = guard.find(refresh=True)
    name, why_not = _core.kernels()
    duo_types = kernels.chosen_types(choice, path, 0, threads[-1:], threads[-1])
    kernels.read_ahead(duo_types, threads[-1])
    types = _core.cpu_types(os.fsencode(path), 0)
    report = Report(Path(path).name, kernels.processor(), name, why_not, types, duo_types, trial=trial)
    header = read_header(path)
    report.way_back = states.sentence(header)
    report.n_experts = int(header.values.get(f"{header.architecture}.expert_count", 0))
    reference: Logits | None = None
    for n_threads in threads:
        progress(f"{'duo' if duo_types else 'stock'} kernels, {plural(n_threads, 'thread')}")
        probe = _core.Probe(options(path, n_threads, duo_types, N_CONTEXT + 32))
        report.n_duo, report.n_cpu = probe.n_duo_products, probe.n_cpu_products
        report.promised = probe.same_bits
        context = context_of(probe, N_CONTEXT)
        tokens = context_of(probe, 40)[-16:]
        alone, wide = passes_of(probe, context, tokens)
        reference = alone if reference is None else reference
        report.differ[n_threads] = [w for w, rows in wide.items() if rows.tobytes() != reference[:w].tobytes()] or (
            [] if alone.tobytes() == reference.tobytes() else [1]
        )
        if n_threads == threads[-1]:
            report.ms["duo" if duo_types else "stock"] = times_of(probe, context, tokens, repeat)
            report.experts = experts_of(probe, context, tokens)
            report.reads = reads_of(header, report.experts, report.n_experts)
        del probe
    assert reference is not None
    for t in duo_types:
        progress(f"accuracy of {t}")
        report.accuracy[t] = accuracy(path, t)
    if duo_types:
        progress("stock kernels")
        probe = _core.Probe(options(path, threads[-1], [], N_CONTEXT + 32))
        context = context_of(probe, N_CONTEXT)
        tokens = context_of(probe, 40)[-16:]
        probe.decode(context, 0)
        probe.decode(tokens, len(context))
        report.divergence = divergence(probe.logits(), reference)
        report.ms["stock"] = times_of(probe, context, tokens, repeat)
    return report


def _who(r: Report) -> str:
    if not r.n_duo:
        why = r.why_not or (
            "they are faster for these weights on this machine"
            if r.types
            else "duo has no kernels for these weight types"
        )
        return f"duo uses stock kernels: {why}."
    rest = (
        f" {r.n_duo} of {r.n_cpu} matrices; stock kernels compute the rest." if r.n_duo < r.n_cpu else " all matrices."
    )
    return f"duo's kernels ({r.kernels}: {', '.join(r.duo_types)}) compute{rest}"


def verdict(r: Report) -> list[str]:
    """The conclusions, one sentence each."""
    sentences = [_who(r)]
    if len(r.ms) == 2:
        gains = {w: r.ms["stock"][w] / r.ms["duo"][w] for w in (1, 4, 8)}
        times = ", ".join(f"{g:.2f} times as fast with {plural(w, 'token')}" for w, g in gains.items())
        sentences.append(f"Compared with stock kernels: {times}.")
    *some, last = r.differ
    threads = " and ".join([*map(str, some), plural(last, "thread")])
    if r.same_bits:
        sentences.append(f"Logits are equal, bit for bit, at widths 1 to 16 with {threads}.")
    else:
        widths = sorted({w for ws in r.differ.values() for w in ws})
        meaning = (
            "this is a bug in duo, please report it"
            if r.promised
            else "where two tokens nearly tie, the text may differ with and without a draft; --strict prevents this"
        )
        sentences.append(f"Logits differ from those of one row at widths {', '.join(map(str, widths))}: {meaning}.")
    if r.experts:
        read = ", ".join(f"{r.experts[w]:.1f} with {plural(w, 'token')}" for w in EXPERT_WIDTHS)
        sentences.append(f"Distinct experts that a pass reads in a layer of {r.n_experts}: {read}.")
        four, eight = (f"{r.reads[w]:.2f} times" for w in EXPERT_WIDTHS[1:])
        sentences.append(
            f"A pass over 4 tokens reads {four} as many bytes as one over one token, "
            f"and takes {r.v('duo', 4):.2f} times as long; over 8 tokens {eight} and {r.v('duo', 8):.2f} times."
        )
    if r.way_back:
        sentences.append(r.way_back[0].upper() + r.way_back[1:] + ".")
    return [*sentences, what_pays(r.v("duo" if "duo" in r.ms else "stock", 4))]


def what_pays(v4: float) -> str:
    """v4: time of a pass over four tokens, in passes over one."""
    pays = (
        "pays with almost any draft" if v4 < 1.5 else "pays with a good and cheap draft" if v4 < 2.5 else "hardly pays"
    )
    return f"Four tokens take {v4:.2f} times as long as one: speculation {pays}."
