"""From the options of a command to a loaded Duo, and the warnings before and after a text."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duo.cli import show
from duo.cli.first_line import elsewhere, first_line, stock_note
from duo.cli.models import Models, chosen_models, projector_of_hub, projectors_at_urls
from duo.cli.options import given_options
from duo.cli.own_guesses import draft_of_target, left_to_duo, may_add_ngrams, tell_of
from duo.errors import DuoError
from duo.options.speculation import has_no_length
from duo.options.tables import ENGINE_OPTIONS

if TYPE_CHECKING:
    from duo.generation.stream import Stream
    from duo.model import Duo
    from duo.options.generate import GenerateOptions

SLOW_START_S, LARGE = 8.0, 4e9  # seconds; bytes of a model for which packing takes most of them


def open_duo(
    params: dict[str, Any],
    *,
    models: Models | None = None,
    progress: Callable[[str, float], None] | None = None,
    finds_guesses: bool = False,
    **more: Any,
) -> Duo:
    """Loads the Duo that the options of a command describe, with a progress bar.

    models: in place of those that the options name. progress: in place of the bar. finds_guesses: if the user names no
    draft, what the target brings along drafts, or n-grams do; and the projector that is with it in the hub reads
    pictures. more: other keywords of `Duo`. Raises DuoError.
    """
    models = chosen_models(params) if models is None else models
    more |= projectors_at_urls(params)
    if not finds_guesses:
        return _open(params, models, progress, **more)
    projector = projector_of_hub(params, models.target)
    if projector is None:
        return _open_with_guesses(params, models, progress, **more)
    try:
        return _open_with_guesses(params, models, progress, mmproj=projector, **more)
    except DuoError as e:  # an error that has nothing to do with the projector comes again
        d = _open_with_guesses(params, models, progress, **more)
        show.warn(f"no pictures are read: {Path(projector).name} came with the target, but {e}")
        return d


def _open_with_guesses(
    params: dict[str, Any], models: Models, progress: Callable[[str, float], None] | None, **more: Any
) -> Duo:
    """If the user names no draft, what the target brings along drafts. N-grams guess beside a draft, or alone."""
    from duo.placement.auto_draft import add_ngrams

    own = left_to_duo(params, models)
    d = _open_with_own_draft(params, models, progress, **more) if own else _open(params, models, progress, **more)
    if may_add_ngrams(params, models, drafted=d.draft is not None):
        add_ngrams(d, params.get("accept"))
    return d


def _open_with_own_draft(
    params: dict[str, Any], models: Models, progress: Callable[[str, float], None] | None, **more: Any
) -> Duo:
    """Opens the models with the draft that the target brings along, if there is one and it can be loaded."""
    source = draft_of_target(models)
    if not source.own and source.path is None:
        tell_of(source)
        return _open(params, models, progress, **more)
    try:
        d = _open(params, models._replace(draft=source.path), progress, own_layers=source.own, **more)
    except DuoError as e:  # an error that has nothing to do with the draft comes again
        what = Path(source.path).name if source.path else "the target's MTP layers"
        d = _open(params, models, progress, **more)
        show.warn(f"no draft is used: {what} could draft for the target, but {e}")
        return d
    tell_of(source)
    return d


def _open(
    params: dict[str, Any],
    models: Models,
    progress: Callable[[str, float], None] | None,
    *,
    own_layers: bool = False,
    **more: Any,
) -> Duo:
    """own_layers: the target's MTP layers draft."""
    from duo.model import Duo
    from duo.models.projector import AUTO
    from duo.placement import guard

    guard.tell(show.warn)
    style = {name: bool(params.get(f"log_{name}")) for name in ("prefix", "timestamps", "jsonl")}
    if any(style.values()):
        from duo import _core

        _core.log_style(**style)
    # duo chooses kernels and threads for texts of this kind.
    of_texts = {name: params[name] for name in ("mode", "spec_type") if params.get(name) is not None}
    of_texts |= {"spec_type": ["draft-mtp"]} if own_layers else {}
    of_texts |= {"mode": "plain"} if has_no_length(params.get("n_draft")) else {}
    of_models = given_options(params, ENGINE_OPTIONS)
    if params.get("mmproj_auto") is False and of_models.get("mmproj") == AUTO:  # a file counts, as in llama.cpp
        del of_models["mmproj"]
    bar = show.loading(quiet=params["verbose"]) if progress is None else nullcontext(progress)
    began = time.monotonic()
    with bar as draw:
        d = Duo(
            models.target,
            models.draft,
            verbose=params["verbose"],
            log_file=params["log_file"],
            progress=draw,
            **{**of_models, **of_texts, **more},
        )
    _advise_packing(d, time.monotonic() - began)
    return d


def _advise_packing(d: Duo, seconds: float) -> None:
    """After a long start: how the next one can be short."""
    m, o = d.engine.target, d.options
    may_pack = o["packed"] == "auto" and o["load_mode"] == "auto" and not o["check_tensors"]
    if (
        seconds > SLOW_START_S
        and may_pack
        and m is not None
        and m.n_bytes > LARGE
        and m.n_duo_products
        and not m.packed_file
        and not m.warning
    ):
        show.warn(f"the start took {seconds:.0f} s; later starts are faster after: duo pack {shlex.quote(m.path)}")


def introduce(d: Duo, options: GenerateOptions) -> None:
    """Prints the models, the devices and the mode. options: of the command line, complete."""
    from duo.generation.job import makes_guesses
    from duo.options.validate import generate_options

    options = {**options, "spec_type": generate_options({**d.defaults})["spec_type"]}  # also what duo has found
    shared = d.engine.shared_vocabulary
    show.warn(first_line(d.engine.target, d.draft, options, d.options["strict"], elsewhere(d), shared))
    note = stock_note(d.engine.target)
    if note and makes_guesses(options, d.draft is not None or elsewhere(d) != ""):
        show.warn(note)
    show.note_placement(d.placement)
    show.note_texts(d)


def warn_of_models(d: Duo) -> None:
    from duo import _core
    from duo._libs import reinstall
    from duo.models.head import cache_warning

    models = [m for m in (d.engine.target, d.draft) if m is not None]
    why = _core.other_ggml()
    if (
        why
        and not _core.kernels()[0]
        and _core.usable_kernels()  # or they are off for another reason
        and d.options["cpu_kernels"] != "stock"
        and any(m.n_cpu_products for m in models)
    ):
        show.warn(f"duo's CPU kernels are off: {why}; {reinstall()}")
    for m in models:
        if m.warning:
            show.warn(m.warning)
    if d.draft is not None and d.draft.head:
        for line in cache_warning(d.options["type_k_draft"], d.options["type_v_draft"]):
            show.warn(line)


def warn_of_start(d: Duo) -> str:
    """Prints the warnings before the first text. Returns the one about the connection to a host; empty: none."""
    early = "" if d.network is None else d.network.take_warning()
    if early:
        show.warn(f"{early}; the text starts without it")
    warn_of_models(d)
    if d.network is not None and d.network.notice:
        show.warn(d.network.notice)
    return early


def warn_of_draft(d: Duo, stream: Stream) -> None:
    """Prints what failed during a text that went on."""
    if not stream.warning:
        return
    if stream.network_warning and d.network is not None and d.network.settings.role == "verify":
        went_on = stream.finish_reason != "cancelled"
        show.warn(stream.warning + ("; the text went on when it was back" if went_on else ""))
    elif stream.network_warning:
        show.warn(f"the draft stopped: {stream.warning}; the text went on without it")
    else:
        show.warn(stream.warning)
