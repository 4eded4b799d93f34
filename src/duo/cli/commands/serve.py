"""`duo serve`: an HTTP server for programs that know llama-server, OpenAI or Anthropic."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from duo.cli import show
from duo.cli.commands.chat import command as chat_command
from duo.cli.commands.run import of_run
from duo.cli.models import model_sources
from duo.cli.options import ModelCommand, given, model_options, table_options
from duo.options.serve import ServeOptions
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS, SERVE_OPTIONS
from duo.server import need_server

if TYPE_CHECKING:
    from duo.api.engine import Duo

HELP = """Serve a pair of models over HTTP, with the routes of llama-server, OpenAI and Anthropic.

The options of a text (--temp, -n, --draft, ...) are the defaults of requests. -np texts are written at once (4 unless
it is given), and share the context (-c). Ctrl-C or SIGTERM ends the server when running texts have ended, a second one
at once.
docs/server.md describes routes, clients and limits.

\b
Examples:
  duo serve
  duo serve -m 70B.gguf -md 8B.gguf -ngl 11 -ngld 99 -c 16384 --port 8080
  duo serve --pair llama-3.3-70b --host 0.0.0.0 --api-key-file keys.txt
"""
N_PARALLEL = 4
OF_CHAT = (
    "chat_template", "chat_template_file", "chat_template_kwargs", "reasoning_format", "reasoning", "reasoning_effort",
    "reasoning_preserve",
)  # fmt: skip


def name_of(params: dict[str, Any]) -> str:
    """Of the model in answers, unless --alias says so: the pair's, the repository's, or the file's."""
    from pathlib import Path

    if params["pair"] is not None:
        return str(params["pair"])
    if params["hf_repo"] is not None:
        return str(params["hf_repo"])
    return Path(params["model"]).stem if params["model"] is not None else "demo"


def serve(params: dict[str, Any]) -> None:
    need_server("duo serve")
    from pathlib import Path

    from duo.cli.commands.chat import template_choice, thoughts_of, warn_of_thoughts
    from duo.cli.opening import introduce, open_duo, warn_of_start
    from duo.options.validate import engine_options, serve_options
    from duo.prompt.reading import reasoning_of
    from duo.server.listening import check_open, check_tls, listeners
    from duo.server.service import Service
    from duo.server.serving import Serving
    from duo.server.settings import Settings
    from duo.text.job import check_early

    asked = given(params, SERVE_OPTIONS)
    options = given(params, GENERATE_OPTIONS)
    o = serve_options(asked)
    template, variables = template_choice(params)
    wanted = check_early("?", options)  # reports a bad value before minutes of loading
    settings = Settings.of(
        asked, name_of(params), reasoning=reasoning_of(params["reasoning_format"]),
        thoughts=thoughts_of(params, wanted), variables=variables,
    )  # fmt: skip
    check_tls(o)
    check_open(o, has_keys=bool(settings.keys))
    if params["n_parallel"] is None:
        params["n_parallel"] = N_PARALLEL if params["draft_host"] is None and params["verify_host"] is None else 1
    engine_options(given(params, ENGINE_OPTIONS))
    found = listeners(o)
    context = click.get_current_context()

    def load() -> Duo:
        with context.scope(cleanup=False):
            of_texts = {k: v for k, v in options.items() if k not in OF_BOTH}
            if settings.embeds:
                of_texts = {"embedding": True, "pooling_type": "rank" if o["rerank"] else o["pooling"]}
            d = open_duo(
                params, chat_template=template, spm_infill=params["spm_infill"], trace=service.events, **of_texts
            )
        try:
            if template is not None:
                d.chat_template.check_variables(variables)
        except BaseException:
            d.close()
            raise
        return d

    def ready(d: Duo) -> None:
        with suppress(OSError):  # a full disk behind the standard streams must not end the server
            if settings.embeds:
                show.warn(f"{Path(d.local_model.path).name} for embeddings (pooling {d.embedder.pooling}); no texts")
            else:
                introduce(d, wanted)
            warn_of_start(d)
            if settings.thoughts:
                warn_of_thoughts(settings.thoughts, d.chat_template)
        scheme = "https" if o["ssl_cert_file"] else "http"
        where = " and ".join(x.url(scheme) + settings.api_prefix * (not x.path) for x in found)
        with suppress(OSError):
            print(f"duo serve: {settings.names[0]} on {where} ({d.session.turns.n} texts at once)", flush=True)

    service = Service(settings)
    Serving(
        service, found, load, drain_s=o["drain"], ready=ready, cert=o["ssl_cert_file"], key=o["ssl_key_file"],
        sleep_s=max(0, o["sleep_idle_seconds"]),
    ).run()  # fmt: skip
    with suppress(OSError):
        show.warn("the server has ended")


OF_BOTH = ("mode", "spec_type")  # `open_duo` gives them itself


def _command() -> click.Command:
    return ModelCommand(
        "serve",
        params=[
            *model_sources(),
            *table_options(ServeOptions, SERVE_OPTIONS),
            *(p for p in chat_command.params if p.name in OF_CHAT),
            click.Option(
                ["spm_infill", "--spm-infill"],
                is_flag=True,
                help="What stands behind comes first in prompts of /infill (suffix, prefix, middle).",
            ),
            *model_options(),
            *of_run("escape", "verbose", "log_file"),
        ],
        callback=lambda **params: serve(params),
        help=HELP,
    )


command = _command()
