"""The options of `duo draft-host` and `duo verify-host`: where they listen, and whom they serve."""

from dataclasses import replace
from typing import Annotated

from typing_extensions import TypedDict

from duo.options.cheap_draft import CheapDraftOptions
from duo.options.client import ClientOptions
from duo.options.context import ContextOptions
from duo.options.lookup import LookupOptions
from duo.options.option import Opt, opt
from duo.support.context import N_CTX_DEFAULT

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


_OWN = f"Default: the model's own, but at most {N_CTX_DEFAULT}."
_SLOTS = (
    "Number of slots: texts that are written at once. They share a pool of {0} tokens. auto: {0} tokens for each slot, "
    "and as many slots as memory allows, at most 4."
)
_RPC = "GGML RPC servers (duo rpc-server). Their devices (RPC0, RPC1, ...) run the model. {} chooses among all devices."
# Help of a host's options where that of a pair speaks of the other model.
_ALONE = {
    "n_ctx_draft": f"Context of the draft in tokens; 0: the model's own. {_OWN}",
    "override_tensor_draft": "Memory for tensors of the draft, as PATTERN=MEMORY, such as ffn_up=CPU.",
    "n_gpu_layers": "Layers of the target on its devices. auto: as many as fit.",
    "n_gpu_layers_draft": "Layers of the draft on its devices. auto: as many as fit.",
    "n_threads": "CPU threads of the target. Default: all cores; 1 for a model below 64 MB.",
    "n_threads_draft": "CPU threads of the draft. Default: all cores; 1 on a GPU and for a model below 64 MB.",
    "cpu_strict_draft": "1: each thread of the draft has one CPU of -Cd and -Crd, in turn, from the last one on; "
    "without these it changes nothing. Default: 0, each thread may use all of them.",
}


def of_host(role: str, table: dict[str, Opt]) -> dict[str, Opt]:
    """The engine's options that place the one model of a host, with help for a model alone. role: "draft" or
    "verify"."""
    size, device = ("-cd", "-devd") if role == "draft" else ("-c", "-dev")
    seeing = f"Device that encodes pictures; none: the CPU. Default: the first of {device}, or the first GPU."
    helps = {**_ALONE, "n_parallel": _SLOTS.format(size), "rpc": _RPC.format(device), "mmproj_device": seeing}
    unwanted = of_one_model("draft" if role == "verify" else "verify", table) | set(ClientOptions.__annotations__)
    unwanted |= {"cache_ram", *LookupOptions.__annotations__}  # a host keeps nothing of its clients' texts
    unwanted.add("mmproj_draft")  # and its draft is shown no pictures
    return {name: replace(o, help=helps.get(name, o.help)) for name, o in table.items() if name not in unwanted}
