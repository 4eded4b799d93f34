"""The options of `duo bench --url`: which servers, what they are asked with, and what counts as good."""

from typing import Annotated

from typing_extensions import TypedDict

from duo.options.markers import Field
from duo.options.option import opt

Milliseconds = Annotated[float, Field(ge=0.001, le=1e9, allow_inf_nan=False)]


class EndpointOptions(TypedDict, total=False):
    """Servers with OpenAI's routes that are measured."""

    url: Annotated[
        list[str],
        opt(
            [],
            "Measure a server with OpenAI's routes instead of models loaded here. Several servers are compared. The "
            "URL ends with the host, with /v1, or with the route: /v1/completions (the default) or "
            "/v1/chat/completions.",
            "--url",
            metavar="[NAME=]URL",
        ),
    ]
    url_model: Annotated[
        str | None,
        opt(None, "Model to request from each --url. Default: the first one that the server lists.", "--url-model",
            metavar="NAME"),
    ]  # fmt: skip
    api_key_file: Annotated[
        str | None,
        opt(None, "File whose first line is the key for each --url. Default: the environment variable DUO_API_KEY.",
            "--api-key-file", metavar="FILE"),
    ]  # fmt: skip
    limit_ttft: Annotated[
        Milliseconds | None,
        opt(None, "Goodput of --url counts answers whose first token comes within this time, in ms.", "--limit-ttft",
            metavar="MS"),
    ]  # fmt: skip
    limit_tpot: Annotated[
        Milliseconds | None,
        opt(None, "Goodput of --url counts answers that take at most this time per later token, in ms.", "--limit-tpot",
            metavar="MS"),
    ]  # fmt: skip
    timeout: Annotated[
        Annotated[float, Field(ge=0.1, le=1e6, allow_inf_nan=False)],
        opt(600.0, "Seconds of silence after which a server of --url counts as dead.", "--timeout", metavar="SECONDS"),
    ]
    count_chunks: Annotated[
        bool,
        opt(False, "If a server of --url does not report the number of tokens (usage), count its pieces of text "
                   "instead.",
            "--count-chunks/--no-count-chunks"),
    ]  # fmt: skip
