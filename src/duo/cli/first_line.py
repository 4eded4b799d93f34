"""The first line of output: models, devices, kernels, and how guesses are made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from duo.support.wording import plural

if TYPE_CHECKING:
    from duo import _core
    from duo.model import Duo
    from duo.options.generate import GenerateOptions


STOCK_MEANS = "a pass that verifies several guesses takes nearly as long as several passes, so a draft brings less"


def kernels_of(m: _core.Model) -> str:
    """The kernels that multiply the model's weights on the CPU, and the types that are left to stock ones."""
    if m.n_duo_products and m.n_duo_products == m.n_cpu_products:
        return "duo kernels"
    if m.n_duo_products:
        # None: the others are in memory that the user chose.
        stock = f", stock for others ({', '.join(m.stock_types)})" if m.stock_types else ""
        return f"duo kernels for {m.n_duo_products} of {m.n_cpu_products} matrices{stock}"
    lacking = _lacking(m)
    return f"stock kernels, duo has none for {' and '.join(lacking)}" if lacking else "stock kernels"


def _lacking(m: _core.Model) -> list[str]:
    """The types on the CPU that duo's kernels cannot multiply on this machine; empty: it has no kernels at all."""
    from duo import _core

    return [t for t in m.stock_types if t not in _core.kernel_types()] if _core.kernels()[0] else []


def stock_note(m: _core.Model | None) -> str:
    """What it means for guesses that duo lacks kernels for most matrices; empty: it does not."""
    lacking = _lacking(m) if m is not None and 2 * m.n_duo_products < m.n_cpu_products else []
    return f"stock kernels compute {' and '.join(lacking)}: {STOCK_MEANS}" if lacking else ""


def _packing(m: _core.Model) -> str:
    packed = f", packed as {m.packed_as.upper()}" if m.packed_as else ""
    packed += f", packed in {Path(m.packed_file).name}" if m.packed_file else ""
    return packed if m.n_duo_products else ""


def _place(m: _core.Model) -> str:
    prompts = f"; long prompts on {', '.join(m.helpers)}" if m.helpers and not m.devices else ""
    some = f", {m.n_proposed:,} of {m.n_vocab:,} tokens" if m.n_proposed < m.n_vocab else ""
    cpu = f"CPU ({plural(m.n_threads, 'thread')}, {kernels_of(m)}{_packing(m)}{some}{prompts})"
    where = " + ".join([", ".join(m.devices)] * bool(m.devices) + [cpu] * bool(m.n_cpu_products or not m.devices))
    what = m.description.replace(" ?B", "")  # if libllama does not know the number of parameters
    return f"{Path(m.path).name} [{what}, {m.n_bytes / 1e6:,.0f} MB] on {where}"


def another_vocabulary(shared: float) -> str:
    """Words for a draft with another vocabulary. shared: texts that are tokens of both, as a share of the smaller
    vocabulary."""
    return f"another vocabulary, which shares {100 * shared:.0f}% with the target's: guesses are translated"


def _guesses(o: GenerateOptions, has_draft: bool) -> str:
    """Where guesses come from, if not only from the draft."""
    from duo.generation.job import draft_of, ngram_of

    ngram, by_model = ngram_of(o), bool(draft_of(o))
    if not ngram:
        return ""
    if has_draft and by_model:
        return f", guesses from the draft and n-grams ({ngram})"
    why = "no draft was given (-md)" if by_model else "the draft is not used" if has_draft else ""
    return f", guesses from n-grams ({ngram}){'; ' * bool(why)}{why}"


def _mode(o: GenerateOptions, has_draft: bool, has_mtp: bool) -> str:
    """The mode, or why there is no speculation."""
    from duo.generation.job import draft_of, ngram_of

    if o["mode"] == "plain":
        return "plain decoding: --mode plain"
    if o["spec_type"] == ["none"]:
        return "plain decoding: --spec-type none"
    if not has_draft and not ngram_of(o):
        ways = ["give one (-md)", "let n-grams guess (--spec-type ngram-map-k)"]
        if has_mtp:
            ways.insert(0, "use the target's MTP layers (--spec-type draft-mtp)")
        return f"plain decoding: no draft was given; {', '.join(ways[:-1])} or {ways[-1]}"
    if isinstance(o["draft_tree"], list):  # its size is the draft length; --draft has no effect
        if not has_draft or not draft_of(o):
            return "plain decoding: a fixed --draft-tree takes guesses only from a draft model (-md)"
        return f"{o['mode']}, a fixed tree{'; n-grams are not used with it' if ngram_of(o) else ''}"
    return f"{o['mode']}, draft length {o['n_draft']}{_guesses(o, has_draft)}"


def _promise(o: GenerateOptions, has_draft: bool) -> str:
    """Words for what --accept keeps; empty: the text of the target alone."""
    from duo.generation.job import makes_guesses
    from duo.options.accept import promise_of

    promise = promise_of(o) if makes_guesses(o, has_draft) else ""
    return f"; {promise}" if promise else ""


def first_line(
    target: _core.Model | None,
    draft: _core.Model | None,
    options: GenerateOptions,
    strict: bool,
    elsewhere: str = "",
    shared: float | None = None,
) -> str:
    """Models, devices and mode. options: complete; elsewhere: the model on another machine. shared: see
    `another_vocabulary`; None: both models have one."""
    has_draft = draft is not None or elsewhere != ""
    mode = _mode(options, has_draft, target is not None and target.has_mtp) + _promise(options, has_draft)
    models = elsewhere if target is None else _place(target)
    if target is not None and draft is not None and draft.head == "mtp" and draft.path == target.path:
        models += f" + its MTP layers ({plural(draft.n_threads, 'thread')})"
    elif guesser := _place(draft) if draft is not None else elsewhere if target is not None else "":
        models += f" + draft {guesser}" + (f", with {another_vocabulary(shared)}" if shared is not None else "")
    return f"{models}; {mode}{'; strict' if strict else ''}"


def elsewhere(d: Duo) -> str:
    """The model on another machine and the address; empty: both models are on this machine."""
    if d.network is None:
        return ""
    name = d.network.host_model
    return f"{name} on {d.network.settings.where}" if name else f"on {d.network.settings.where}"
