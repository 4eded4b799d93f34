"""The options of `Duo` for a model that runs on another machine."""

from typing import Annotated

from typing_extensions import TypedDict

from duo.options.markers import Field
from duo.options.option import opt


class ClientOptions(TypedDict, total=False):
    """Which host runs the draft or the target, and how to reach it."""

    draft_host: Annotated[
        str | None,
        opt(
            None,
            "Machine that runs the draft (duo draft-host), as host:port or unix:/path.",
            "--draft-host",
            metavar="HOST:PORT",
        ),
    ]
    verify_host: Annotated[
        str | None,
        opt(
            None,
            "Machine that runs the target (duo verify-host), as host:port or unix:/path; the draft (-md) runs here.",
            "--verify-host",
            metavar="HOST:PORT",
        ),
    ]
    require_draft: Annotated[
        bool,
        opt(
            False,
            "Fail if the draft host cannot be reached at the start.",
            "--require-draft/--no-require-draft",
        ),
    ]
    host_ca: Annotated[
        str | None,
        opt(None, "TLS to the host: certificate (PEM) that identifies it.", "--host-ca", metavar="FILE"),
    ]
    host_cert: Annotated[
        str | None,
        opt(
            None,
            "TLS to the host: this machine's own certificate (PEM), if the host requires one.",
            "--host-cert",
            metavar="FILE",
        ),
    ]
    host_key: Annotated[str | None, opt(None, "Private key of --host-cert (PEM).", "--host-key", metavar="FILE")]
    token_file: Annotated[
        str | None, opt(None, "File with the secret token that the host requires.", "--token-file", metavar="FILE")
    ]
    host_patience: Annotated[
        Annotated[float, Field(ge=0.0, le=86400.0, allow_inf_nan=False)],
        opt(30.0, "Seconds that a text waits for a lost verify host to come back.", "--host-patience"),
    ]
