"""`duo draft-host` and `duo verify-host`: serve one model of a pair to clients on other machines."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from duo.cli import show
from duo.cli.complete import by_metavar
from duo.cli.options import ModelCommand, given_options, table_options
from duo.cli.run_options import of_run
from duo.errors import DuoError, PeerLostError
from duo.options.engine import EngineOptions
from duo.options.host import HostOptions, of_host
from duo.options.tables import ENGINE_OPTIONS, HOST_OPTIONS
from duo.remote.parent import HOPELESS, WITH_PARENT, end_with_parent
from duo.support.wording import one_line, plural

ABOUT = {
    "draft": (
        """Run the draft for clients on other machines (duo -m TARGET --draft-host HOST:PORT).

Only token ids cross the network. Ctrl-C or SIGTERM ends the host. docs/remote.md describes a pair on two machines and
the security of the connection.

\b
Examples:
  duo draft-host -md 8B.gguf --listen 127.0.0.1:50060
  duo draft-host -md 8B.gguf --listen 0.0.0.0:50060 --tls-cert host.pem --tls-key host.key --token-file token
""",
        "The draft: a GGUF file. Default: the demo draft.",
        ("-md", "--model-draft", "--draft-model", "--spec-draft-model"),
    ),
    "verify": (
        """Run the target for clients whose draft is on their own machine (duo -md DRAFT --verify-host HOST:PORT).

The text is this target's. Only token ids cross the network. Ctrl-C or SIGTERM ends the host. docs/remote.md describes
the security of the connection.

\b
Examples:
  duo verify-host -m 70B.gguf --listen 127.0.0.1:50060
  duo verify-host -m 70B.gguf --listen 0.0.0.0:50060 --tls-cert host.pem --tls-key host.key --token-file token
""",
        "The target: a GGUF file. Default: the demo target.",
        ("-m", "--model"),
    ),
}


def host(role: str, params: dict[str, Any]) -> None:
    """Loads the model, prints the address, and serves until a signal ends it. Raises DuoError."""
    from duo import _core
    from duo.models.demo import demo_pair
    from duo.options.model import ModelOptions
    from duo.options.validate import engine_options, host_options
    from duo.placement import guard, packed
    from duo.placement.place import place_alone
    from duo.remote import need_grpc

    need_grpc()
    from duo.remote.address import HostAddress
    from duo.remote.host.host import HostSettings, serve
    from duo.remote.rpc.on_rpc import use_servers
    from duo.remote.security import ServerSecurity, read_token

    o = host_options(given_options(params, HOST_OPTIONS))
    placing = engine_options(given_options(params, of_host(role, ENGINE_OPTIONS)))
    address = HostAddress.of(o["listen"], option="--listen", any_port=True)
    token = None if o["token_file"] is None else read_token(o["token_file"])
    security = ServerSecurity(cert=o["tls_cert"], key=o["tls_key"], ca=o["tls_ca"], token=token)
    security.check(address, insecure=o["insecure"])
    if params["end_with_parent"]:
        end_with_parent(address.path)
    path = str(params["model"] or demo_pair()[role == "draft"])
    one = ModelOptions.of(placing, "draft" if role == "draft" else "target", path)
    one = replace(use_servers(one, placing["rpc"] or ()), guesses=role == "verify")

    def ready(address: HostAddress, model: _core.SharedModel) -> None:
        packed.note_checked(options, model.packed_file)
        if model.warning:
            show.warn(model.warning)
        texts = f"{plural(options.n_parallel, 'text')} at once"
        print(f"duo {role}-host: {Path(path).name} on {address} ({texts}; {security.words})", flush=True)

    _core.log_to(params["verbose"], b"" if params["log_file"] is None else os.fsencode(params["log_file"]))
    guard.tell(show.warn)
    with show.loading(quiet=params["verbose"]) as progress:
        options = place_alone(one)
        serve(role, options, HostSettings(address, security), ready=ready, progress=progress)


def _run(role: str, params: dict[str, Any]) -> None:
    """`host`, with an exit code that tells a parent process whether trying again can help."""
    try:
        host(role, params)
    except PeerLostError:
        raise
    except DuoError as e:
        if not params["end_with_parent"]:
            raise
        show.warn(one_line(e))
        raise click.exceptions.Exit(HOPELESS) from None


def _command(role: str) -> click.Command:
    about, what, flags = ABOUT[role]
    return ModelCommand(
        f"{role}-host",
        params=[
            click.Option(["model", *flags], type=str, metavar="FILE", shell_complete=by_metavar, help=what),
            *table_options(HostOptions, HOST_OPTIONS),
            *table_options(EngineOptions, of_host(role, ENGINE_OPTIONS)),
            *of_run("verbose", "log_file"),
            click.Option(["end_with_parent", WITH_PARENT], is_flag=True, hidden=True),  # duo.remote.client.child
        ],
        callback=lambda **params: _run(role, params),
        help=about,
    )


draft_host = _command("draft")
verify_host = _command("verify")
