"""`duo serve`: an HTTP server for programs that know llama-server, OpenAI or Anthropic."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from duo.cli import show
from duo.cli.help_groups import MODELS
from duo.cli.listings import listed, listing_options
from duo.cli.models import is_typed, model_sources, names_draft, names_target, source_of_target
from duo.cli.options import ModelCommand, given_options, model_options, table_options
from duo.cli.run_options import of_run
from duo.cli.template_options import template_choice, template_options, thoughts_of, warn_of_thoughts
from duo.errors import BadValueError, DuoError
from duo.options.serve import ServeOptions
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS, SERVE_OPTIONS
from duo.remote.parent import WITH_PARENT
from duo.server import need_server
from duo.support.wording import one_line, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duo.model import Duo
    from duo.options.generate import GenerateOptions
    from duo.server.listening import ListeningSocket
    from duo.server.settings import ServerSettings

HELP = """Serve a pair of models over HTTP, with the routes of llama-server, OpenAI and Anthropic.

The options of a text (--temp, -n, --draft, ...) are the defaults of requests. -np texts are written at once (default:
4), and share the context (-c). Ctrl-C or SIGTERM ends the server when the running texts have ended; a second one ends
it at once. docs/server.md describes routes, clients and limits.

\b
Examples:
  duo serve
  duo serve -m 70B.gguf -md 8B.gguf -ngl 11 -ngld 99 -c 16384 --port 8080
  duo serve --pair llama-3.3-70b --host 0.0.0.0 --api-key-file keys.txt
"""
N_PARALLEL = 4


def name_of(params: dict[str, Any]) -> str:
    """The model's name in answers, if --alias gives none: the pair's, the repository's, or the file's. Raises
    BadValueError: it is a URL that cannot be read."""
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    from duo.models.file_name import model_name

    source = source_of_target(params)
    if source is None:
        return "demo"
    if source != "model":
        return str(params[source])
    model = params["model"]
    if "://" in model:  # what stands behind a URL's path may be a signature
        try:
            model = unquote(urlsplit(model).path)
        except ValueError:
            raise BadValueError(f"{quoted(model, 100)} is no web address; write it as https://HOST/FILE.gguf") from None
    return model_name(Path(model))


def typed_page(params: dict[str, Any]) -> dict[str, Any]:
    """Without --ui-config of the environment, if --ui-config-file was typed, and the other way round."""
    if is_typed("ui_config") == is_typed("ui_config_file"):
        return params
    return {**params, ("ui_config_file" if is_typed("ui_config") else "ui_config"): None}


def serve(params: dict[str, Any]) -> None:
    if listed(params):
        return
    need_server("duo serve", "starlette.applications", "uvicorn")
    if params["end_with_parent"]:
        from duo.remote.parent import end_with_parent

        end_with_parent(str(params["host"]).removeprefix("unix:"))
    if params["models_dir"] is not None or params["models_preset"] is not None:
        serve_many(params)
        return
    from duo.chat.reading import reasoning_of
    from duo.cli.opening import open_duo
    from duo.generation.job import check_early
    from duo.options.validate import engine_options, serve_options
    from duo.server.lifecycle import Serving
    from duo.server.listening import check_tls, listeners
    from duo.server.service import Service
    from duo.server.settings import ServerSettings

    typed = given_options(typed_page(params), SERVE_OPTIONS)
    options = given_options(params, GENERATE_OPTIONS)
    o = serve_options(typed)
    template, variables = template_choice(params)
    complete_options = check_early("?", options)  # reports a bad value before minutes of loading
    settings = ServerSettings.of(
        typed, name_of(params), reasoning=reasoning_of(params["reasoning_format"]),
        thoughts=thoughts_of(params, complete_options), variables=variables, verbose=params["verbose"],
    )  # fmt: skip
    if settings.page.unknown:
        show.warn(f"the page has no setting {', '.join(settings.page.unknown)} (--ui-config)")
    check_tls(o)
    if params["n_parallel"] is None:
        params["n_parallel"] = N_PARALLEL if params["draft_host"] is None and params["verify_host"] is None else 1
    engine_options(given_options(params, ENGINE_OPTIONS))
    sockets = listeners(o)
    _warn_if_open(o, settings)
    context = click.get_current_context()

    def load() -> Duo:
        with context.scope(cleanup=False):
            of_texts = {k: v for k, v in options.items() if k not in OF_BOTH}
            if settings.embeds:
                of_texts = {"embedding": True, "pooling_type": "rank" if o["rerank"] else o["pooling"]}
            d = open_duo(
                params,
                chat_template=template,
                spm_infill=params["spm_infill"],
                trace=service.events,
                finds_guesses=not settings.embeds,
                **of_texts,
            )
        try:
            if template is not None:
                d.chat_template.check_variables(variables)
        except BaseException:
            d.close()
            raise
        return d

    def ready(d: Duo) -> None:
        where = addresses(sockets, o, settings.api_prefix)
        _announce(d, settings, complete_options, where)

    service = Service(settings)
    Serving(
        service, sockets, load, drain_s=o["drain"], ready=ready, cert=o["ssl_cert_file"], key=o["ssl_key_file"],
        sleep_s=max(0, o["sleep_idle_seconds"]),
    ).run()  # fmt: skip
    with suppress(OSError):
        show.warn("the server has ended")


def _warn_if_open(o: ServeOptions, settings: ServerSettings) -> None:
    from duo.server.listening import openness

    warning = openness(o, has_keys=bool(settings.keys))
    with suppress(OSError):
        if warning is not None:
            show.warn(warning)


def _announce(d: Duo, settings: ServerSettings, options: GenerateOptions, where: str) -> None:
    """Tells the user what is served, and where. options: of the command line, complete."""
    from pathlib import Path

    from duo.cli.opening import introduce, warn_of_start

    with suppress(OSError):  # a full disk behind the standard streams must not end the server
        if settings.embeds:
            show.warn(f"{Path(d.local_model.path).name} for embeddings (pooling {d.embedder.pooling}); no texts")
        else:
            introduce(d, options)
        warn_of_start(d)
        with suppress(DuoError):  # a base model, or one for vectors, has no template
            warn_of_thoughts(settings.thoughts, lambda: d.chat_template)
    with suppress(OSError):
        print(f"duo serve: {settings.names[0]} on {where} ({d.session.turns.n} texts at once)", flush=True)


def addresses(sockets: Sequence[ListeningSocket], o: ServeOptions, prefix: str) -> str:
    """Where clients reach the server, for the user."""
    scheme = "https" if o["ssl_cert_file"] else "http"
    return " and ".join(x.url(scheme) + prefix * (not x.path) for x in sockets)


def _cached() -> list[str]:
    """What the hub's cache holds. The models of a folder are served without it."""
    from duo.models.hub.repository import cached_models

    try:
        return cached_models()
    except DuoError as e:
        with suppress(OSError):
            show.warn(one_line(e))
        return []


def serve_many(params: dict[str, Any]) -> None:
    """Without models of its own: a process for each that is asked for."""
    from pathlib import Path

    from duo.cli.repeated import Repeatable
    from duo.cli.typed import spelled_by, typed_args
    from duo.options.validate import serve_options
    from duo.server.listening import check_tls, listeners
    from duo.server.router.service import Router
    from duo.server.router.serving import RouterServing
    from duo.server.router.sources import ModelSource, known_models, presets_of
    from duo.server.settings import ServerSettings

    if names_target(params) or names_draft(params):
        raise BadValueError("--models-dir and --models-preset name the models; leave out -m, -md, -hf and --pair")
    typed = given_options(params, SERVE_OPTIONS)
    o = serve_options(typed)
    settings = ServerSettings.of({**typed, "ui": False}, "duo")
    check_tls(o)
    context = click.get_current_context()
    file = None if o["models_preset"] is None else Path(o["models_preset"])
    spelled, own = spelled_by(context.command, "serve", OF_ROUTER), typed_args(context, NOT_OF_MODELS)
    repeatable = {p.opts[-1] for p in context.command.params if isinstance(p, Repeatable)}

    def read() -> dict[str, ModelSource]:
        return known_models(
            folder=None if o["models_dir"] is None else Path(o["models_dir"]),
            presets={} if file is None else presets_of(file, spelled),
            cached=_cached(),
            own=own,
            repeatable=repeatable,
        )

    sources = read()
    sockets = listeners(o)
    _warn_if_open(o, settings)

    def ready() -> None:
        where = addresses(sockets, o, settings.api_prefix)
        most = f"{o['models_max']} at a time" if o["models_max"] else "any number at a time"
        with suppress(OSError):
            print(f"duo serve: {len(sources)} models on {where} ({most})", flush=True)

    router = Router(
        settings, sources, n_most=o["models_max"], autoload=o["models_autoload"], env=env_of_models(params),
        say=show.warn, read=read,
    )  # fmt: skip
    RouterServing(
        router, sockets, drain_s=o["drain"], ready=ready, cert=o["ssl_cert_file"], key=o["ssl_key_file"]
    ).run()
    with suppress(OSError):
        show.warn("the server has ended")


def env_of_models(params: dict[str, Any]) -> dict[str, str]:
    """The environment of a router's processes: without variables of options that the router handles itself, and with
    values that must not stand on a command line."""
    own = {v for name, o in SERVE_OPTIONS.items() if name in (*OF_ROUTER, *OF_VISITORS) for v in o.env}
    sources = {o.envvar for o in model_sources() if isinstance(o.envvar, str) and o.name != "offline"}
    env = {name: value for name, value in os.environ.items() if name not in own | sources}
    return env if params["hf_token"] is None else {**env, "HF_TOKEN": params["hf_token"]}


# A router decides these itself, whatever a preset says.
OF_ROUTER = (
    "host", "port", "reuse_port", "api_prefix", "alias", "api_key", "api_key_file", "ssl_key_file", "ssl_cert_file",
    "insecure", "models_dir", "models_preset", "models_max", "models_autoload", "end_with_parent",
)  # fmt: skip
# These concern the clients of the router. Its models get all other options.
OF_VISITORS = (
    "allowed_hosts", "cors_origins", "cors_methods", "cors_headers", "cors_credentials", "ui", "path",
    "ui_config", "ui_config_file",
)  # fmt: skip
NOT_OF_MODELS = (*OF_ROUTER, *OF_VISITORS, "hf_token")
DEFAULTS = {"n_parallel": f"{N_PARALLEL}; 1 with a model on another machine"}
OF_BOTH = ("mode", "spec_type")  # `open_duo` gives them itself


def _command() -> click.Command:
    return ModelCommand(
        "serve",
        params=[
            *model_sources(),
            *table_options(ServeOptions, SERVE_OPTIONS),
            *template_options(),
            click.Option(
                ["spm_infill", "--spm-infill"],
                is_flag=True,
                help="Put the suffix first in prompts of /infill (suffix, prefix, middle).",
            ),
            click.Option(["end_with_parent", WITH_PARENT], is_flag=True, hidden=True),
            *model_options(defaults=DEFAULTS),
            *listing_options(),
            *of_run("escape", "verbose", "log_file"),
        ],
        callback=lambda **params: serve(params),
        help=HELP,
        common=(
            *MODELS, "models_dir", "host", "port", "alias", "api_key_file", "n_parallel", "n_ctx", "n_gpu_layers",
            "n_gpu_layers_draft", "device", "device_draft", "n_threads", "n_draft", "temperature", "verbose",
        ),
    )  # fmt: skip


command = _command()
