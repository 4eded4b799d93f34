"""The options of `duo serve`: where it listens, whom it serves, and its limits."""

from typing import Annotated, Literal

from typing_extensions import TypedDict

from duo.options.markers import Field
from duo.options.option import Int, Opt, opt

Seconds = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]


class ServeOptions(TypedDict, total=False):
    """One server."""

    host: Annotated[
        str,
        opt(
            "127.0.0.1",
            "Addresses to listen on, comma-separated. unix:/path, or a name that ends in .sock, is a Unix socket.",
            "--host",
            env="HOST",
            metavar="ADDRESS,...",
        ),
    ]
    port: Annotated[
        Annotated[Int, Field(ge=0, le=65535)],
        opt(8080, "Port. 0: any free port, which is printed.", "--port", env="PORT"),
    ]
    api_prefix: Annotated[str, opt("", "Prefix of all routes.", "--api-prefix", env="API_PREFIX")]
    alias: Annotated[
        str | None,
        opt(
            None,
            "Names of the model, comma-separated. Answers carry the first one in alphabetical order, as in "
            "llama-server. Default: the name of the pair or of the target's file.",
            "-a",
            "--alias",
            env="ALIAS",
            metavar="NAME,...",
        ),
    ]
    queue: Annotated[
        Annotated[Int, Field(ge=0, le=100_000)] | None,
        opt(None, "Maximum number of texts that wait for one of the -np slots. Requests beyond that get status 429. "
                  "Default: 8 for each slot.",
            "--queue"),
    ]  # fmt: skip
    drain: Annotated[
        Seconds,
        opt(30.0, "Seconds that running texts get to end after SIGTERM. New requests get status 503 meanwhile.",
            "--drain", metavar="SECONDS"),
    ]  # fmt: skip
    timeout: Annotated[
        Annotated[float, Field(ge=0.1, le=1e6, allow_inf_nan=False)],
        opt(3600.0, "Seconds after which a client that does not read its answer is disconnected.", "-to", "--timeout",
            env="TIMEOUT", metavar="SECONDS"),
    ]  # fmt: skip
    keep_alive: Annotated[
        Annotated[Int, Field(ge=1, le=86400)],
        opt(75, "Seconds that a connection stays open between requests. A balancer in front should use a shorter "
                "time.",
            "--keep-alive", metavar="SECONDS"),
    ]  # fmt: skip
    header_timeout: Annotated[
        Annotated[float, Field(ge=0.1, le=1e6, allow_inf_nan=False)],
        opt(10.0, "Seconds that a client has to send the headers of a request.", "--header-timeout", metavar="SECONDS"),
    ]
    body_timeout: Annotated[
        Annotated[float, Field(ge=0.1, le=1e6, allow_inf_nan=False)],
        opt(60.0, "Seconds that a client has to send the body of a request.", "--body-timeout", metavar="SECONDS"),
    ]
    max_body: Annotated[
        Annotated[float, Field(ge=0.001, le=1e4, allow_inf_nan=False)],
        opt(
            16.0, "Maximum size of a request's body in MiB. A larger one gets status 413.", "--max-body", metavar="MIB"
        ),
    ]
    sse_ping_interval: Annotated[
        Annotated[Int, Field(ge=-1, le=86400)],
        opt(30, "Seconds of silence after which a stream sends a comment, to keep the connection open; -1: never.",
            "--sse-ping-interval", env="SSE_PING_INTERVAL", metavar="SECONDS"),
    ]  # fmt: skip
    api_key: Annotated[
        str | None,
        Opt(
            None,
            "Keys that clients may send, comma-separated. Other users can see a command line, so --api-key-file is "
            "safer.",
            ("--api-key",),
            ("LLAMA_API_KEY",),  # llama-server's
            "KEY,...",
        ),
    ]
    api_key_file: Annotated[
        str | list[str] | None,
        opt(None, "File with one key per line.", "--api-key-file", env="API_KEY_FILE", metavar="FILE"),
    ]
    allowed_hosts: Annotated[
        str | None,
        opt(None, "Names by which clients may call the server (Host header), comma-separated; *: any. Names of "
                  "this machine, addresses, and names without a dot (not over 127.0.0.1) are always allowed. Default: "
                  "no others if no key is needed; otherwise any.", "--allowed-hosts", metavar="NAME,..."),
    ]  # fmt: skip
    cors_origins: Annotated[
        str,
        opt("localhost", "Web pages that may use the server, besides its own: localhost, * (all), or origins, "
                         "comma-separated.", "--cors-origins", env="CORS_ORIGINS", metavar="ORIGIN,..."),
    ]  # fmt: skip
    ssl_key_file: Annotated[
        str | None,
        opt(None, "Private key (PEM). With it the server speaks HTTPS.", "--ssl-key-file", env="SSL_KEY_FILE",
            metavar="FILE"),
    ]  # fmt: skip
    ssl_cert_file: Annotated[
        str | None,
        opt(None, "Certificate of --ssl-key-file (PEM).", "--ssl-cert-file", env="SSL_CERT_FILE", metavar="FILE"),
    ]
    insecure: Annotated[
        bool,
        opt(False, "Do not warn that other machines may use the server without a key, because the network is trusted.",
            "--insecure/--no-insecure"),
    ]  # fmt: skip
    slots: Annotated[
        bool, opt(True, "Serve /slots, which says what each slot is doing.", "--slots/--no-slots", env="ENDPOINT_SLOTS")
    ]
    metrics: Annotated[
        bool,
        opt(True, "Serve /metrics, with figures for Prometheus.", "--metrics/--no-metrics", env="ENDPOINT_METRICS"),
    ]
    metrics_compat: Annotated[
        Literal["none", "llamacpp"],
        opt("none", "llamacpp: /metrics repeats its figures under llama.cpp's names.", "--metrics-compat"),
    ]
    models_dir: Annotated[
        str | None,
        opt(None, "Serve the models of this folder, and those in the hub's cache, each in a process that starts "
                  "when a request names it. A folder in it holds the parts of one model, its projector and its draft "
                  "(draft-*.gguf, mtp-*.gguf, ...).",
            "--models-dir", env="MODELS_DIR", metavar="FOLDER"),
    ]  # fmt: skip
    models_preset: Annotated[
        str | None,
        opt(None, "File with the models to serve and their options: a section for each, [*] for all; KEY = VALUE.",
            "--models-preset", env="MODELS_PRESET", metavar="FILE.ini"),
    ]  # fmt: skip
    models_max: Annotated[
        Annotated[Int, Field(ge=0, le=100_000)],
        opt(
            4,
            "Maximum number of these models that are loaded at a time; 0: no limit.",
            "--models-max",
            env="MODELS_MAX",
        ),
    ]
    models_autoload: Annotated[
        bool,
        opt(True, "Load a model when a request names it; otherwise only POST /models/load does.",
            "--models-autoload/--no-models-autoload", env="MODELS_AUTOLOAD"),
    ]  # fmt: skip
    embedding: Annotated[
        bool,
        opt(False, "Serve /v1/embeddings with an embedding model, and no texts.", "--embedding/--no-embedding",
            "--embeddings/--no-embeddings", env="EMBEDDINGS"),
    ]  # fmt: skip
    rerank: Annotated[
        bool,
        opt(False, "Serve /v1/rerank with a reranking model, and no texts. The same as --embedding --pooling rank.",
            "--rerank/--no-rerank", "--reranking/--no-reranking", env="RERANKING"),
    ]  # fmt: skip
    pooling: Annotated[
        Literal["none", "mean", "cls", "last", "rank"] | None,
        opt(None, "How the vectors of tokens become the vector of a text. Default: the model's own.", "--pooling",
            env="POOLING"),
    ]  # fmt: skip
    embd_normalize: Annotated[
        Annotated[Int, Field(ge=-1, le=1000)],
        opt(2, "Normalisation of embeddings: -1 none, 0 largest number, 1 taxicab, 2 Euclidean, N p-norm.",
            "--embd-normalize"),
    ]  # fmt: skip
    tags: Annotated[
        str | None,
        opt(
            None,
            "Tags that lists of models show for this model, comma-separated.",
            "--tags",
            env="TAGS",
            metavar="TAG,...",
        ),
    ]
    props: Annotated[
        bool, opt(False, "Answer POST /props. It changes nothing.", "--props/--no-props", env="ENDPOINT_PROPS")
    ]
    reuse_port: Annotated[
        bool,
        opt(False, "Let other servers listen on the same port.", "--reuse-port/--no-reuse-port", env="REUSE_PORT"),
    ]
    cors_methods: Annotated[
        str,
        opt("GET,POST,OPTIONS", "Methods that pages of --cors-origins may use.", "--cors-methods", env="CORS_METHODS",
            metavar="METHOD,..."),
    ]  # fmt: skip
    cors_headers: Annotated[
        str,
        opt(
            "*",
            "Headers that pages of --cors-origins may send.",
            "--cors-headers",
            env="CORS_HEADERS",
            metavar="NAME,...",
        ),
    ]
    cors_credentials: Annotated[
        bool | None,
        opt(None, "Pages of --cors-origins may send cookies and keys. Default: yes, unless all pages may use the "
                  "server.",
            "--cors-credentials/--no-cors-credentials", env="CORS_CREDENTIALS"),
    ]  # fmt: skip
    path: Annotated[
        str | None,
        opt(None, "Serve the files of this folder instead of the page.", "--path", env="STATIC_PATH",
            metavar="FOLDER"),
    ]  # fmt: skip
    slot_save_path: Annotated[
        str | None,
        opt(None, "Folder for the files of POST /slots/ID?action=save: the caches of target and draft.",
            "--slot-save-path", metavar="FOLDER"),
    ]  # fmt: skip
    media_path: Annotated[
        str | None,
        opt(None, "Folder with pictures that requests may name by file: URLs, relative to it.", "--media-path",
            metavar="FOLDER"),
    ]  # fmt: skip
    media_url: Annotated[
        bool,
        opt(False, "Fetch pictures that requests name by http: and https: URLs, never from private addresses.",
            "--media-url/--no-media-url"),
    ]  # fmt: skip
    log_prompts_dir: Annotated[
        str | None,
        opt(None, "Write the prompts of each request to a file in this folder, which is created if it is missing.",
            "--log-prompts-dir", metavar="FOLDER"),
    ]  # fmt: skip
    sleep_idle_seconds: Annotated[
        Annotated[Int, Field(ge=-1, le=10_000_000)],
        opt(-1, "Seconds without a request after which the models are freed; the next request loads them again. -1: "
            "never.", "--sleep-idle-seconds", env="SLEEP_IDLE_SECONDS", metavar="SECONDS"),
    ]  # fmt: skip
    prefill_assistant: Annotated[
        bool,
        opt(True, "Take an assistant's message at the end of a chat as the beginning of the answer.",
            "--prefill-assistant/--no-prefill-assistant", env="PREFILL_ASSISTANT"),
    ]  # fmt: skip
    skip_chat_parsing: Annotated[
        bool,
        opt(False, "Leave thoughts and tool calls in the content, as the model wrote them.",
            "--skip-chat-parsing/--no-skip-chat-parsing", env="SKIP_CHAT_PARSING"),
    ]  # fmt: skip
    ui: Annotated[bool, opt(True, "Serve a page at /.", "--ui/--no-ui", "--webui/--no-webui", env="UI")]
    ui_config: Annotated[
        str | None,
        opt(None, "Defaults of the page's settings, a JSON object with the names of llama.cpp's page: theme, "
                  "systemMessage, max_tokens, temperature, top_k and others of sampling.",
            "--ui-config", "--webui-config", env="UI_CONFIG", metavar="JSON"),
    ]  # fmt: skip
    ui_config_file: Annotated[
        str | None,
        opt(None, "File with this object.", "--ui-config-file", "--webui-config-file", env="UI_CONFIG_FILE",
            metavar="FILE"),
    ]  # fmt: skip
