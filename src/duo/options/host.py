"""The options of `duo draft-host` and `duo verify-host`: where they listen, and whom they serve."""

from typing import Annotated

from typing_extensions import TypedDict

from duo.options.cheap_draft import CheapDraftOptions
from duo.options.client import ClientOptions
from duo.options.context import ContextOptions
from duo.options.lookup import LookupOptions
from duo.options.option import Opt, opt

# Options that a draft does not have: it is split over its devices by their free memory.
NOT_A_DRAFTS = (
    "tensor_split", "split_mode", "main_gpu", "n_cpu_ffn", "fit_ctx", "ctx_checkpoints", "checkpoint_min_step",
    *(name for name in ContextOptions.__annotations__ if name != "numa"),
)  # fmt: skip


class HostOptions(TypedDict, total=False):
    """One host."""

    listen: Annotated[
        str,
        opt(
            "127.0.0.1:50060",
            "Where to listen: host:port, [IPv6]:port or unix:/path; port 0: any free port, which is printed.",
            "--listen",
            metavar="HOST:PORT",
        ),
    ]
    insecure: Annotated[
        bool,
        opt(
            False,
            "Listen to other machines without TLS or without a token, because the network is trusted.",
            "--insecure/--no-insecure",
        ),
    ]
    tls_cert: Annotated[str | None, opt(None, "Certificate of the host (PEM).", "--tls-cert", metavar="FILE")]
    tls_key: Annotated[str | None, opt(None, "Private key of --tls-cert (PEM).", "--tls-key", metavar="FILE")]
    tls_ca: Annotated[
        str | None,
        opt(None, "Require clients to have a certificate from this authority (PEM).", "--tls-ca", metavar="FILE"),
    ]
    token_file: Annotated[
        str | None,
        opt(None, "File with the secret token that clients must send.", "--token-file", metavar="FILE"),
    ]


def of_one_model(role: str, table: dict[str, Opt]) -> set[str]:
    """The engine's options that place this one of the two models alone. role: "draft" or "verify"."""
    twins = [name for name in table if f"{name}_draft" in table]
    if role == "draft":
        return {*(f"{name}_draft" for name in twins), "prio_draft", *CheapDraftOptions.__annotations__}
    return {*twins, *NOT_A_DRAFTS}


def of_host(role: str, table: dict[str, Opt]) -> dict[str, Opt]:
    """The engine's options that place the one model of a host. role: "draft" or "verify"."""
    unwanted = of_one_model("draft" if role == "verify" else "verify", table) | set(ClientOptions.__annotations__)
    unwanted |= {"cache_ram", *LookupOptions.__annotations__}  # a host keeps nothing of its clients' texts
    unwanted.add("mmproj_draft")  # and its draft is shown no pictures
    return {name: o for name, o in table.items() if name not in unwanted}
