"""The server's options, checked and read."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duo.errors import BadValueError
from duo.options.serve import ServeOptions
from duo.options.validate import serve_options
from duo.server.media import Media
from duo.server.page_settings import PageSettings
from duo.server.prompt_files import made_folder
from duo.server.visitors import Visitors
from duo.support.comma_separated import comma_separated


@dataclass(frozen=True)
class ServerSettings:
    """What the app needs to know. `of` makes it of the options of `duo serve`."""

    names: tuple[str, ...]  # of the model, the first one for answers
    n_queue: int | None = None  # texts that wait; None: by the slots
    keys: tuple[bytes, ...] = field(default=(), repr=False)  # hashes of those that clients may send; none: everybody
    api_prefix: str = ""
    visitors: Visitors = field(default_factory=Visitors)
    timeout_s: float = 3600.0
    keep_alive_s: int = 75
    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    n_body: int = 16 << 20  # bytes
    ping_s: float = 30.0  # 0: never
    slots: bool = True
    metrics: bool = True
    metrics_of_llama_cpp: bool = False
    ui: bool = True
    page: PageSettings = field(default_factory=PageSettings)
    verbose: bool = False  # answers of chats and completions tell all, unless a request says no
    embeds: bool = False  # it answers with vectors, and writes nothing
    norm: int = 2  # of the vectors (duo.generation.embeddings.normalized)
    tags: tuple[str, ...] = ()  # of the model
    props: bool = False  # whether POST /props is answered
    cors_methods: tuple[str, ...] = ("GET", "POST", "OPTIONS")
    cors_headers: tuple[str, ...] = ("*",)
    cors_credentials: bool | None = None  # None: unless any page may come
    files: Path | None = None  # a folder in place of the page
    prompt_folder: Path | None = None  # for files of all prompts; None: there are none
    slot_folder: Path | None = None  # for files of what the slots hold; None: there are none
    media: Media = field(default_factory=Media)  # pictures that requests name
    prefills: bool = True  # an assistant's message that stands last is gone on with
    parses: bool = True  # answers are read for thoughts and calls of tools
    reasoning: bool = True  # thoughts are no part of an answer, unless a request says so
    thoughts: Mapping[str, Any] = field(default_factory=dict)  # what its template is told of them, if it asks
    variables: Mapping[str, Any] = field(default_factory=dict)  # of the chat template

    @classmethod
    def of(cls, given: dict[str, Any], name: str, **more: Any) -> ServerSettings:
        """name: of the model, unless the options name it. Raises BadValueError."""
        o = serve_options(given)
        names = tuple(sorted(set(comma_separated(o["alias"] or name))))  # llama-server has them in a std::set
        if not names:
            raise BadValueError(f"--alias {o['alias']!r} names nothing; leave it out")
        keys = keys_of(o["api_key"], o["api_key_file"])
        prefix = o["api_prefix"].rstrip("/")
        if prefix and not prefix.startswith("/"):
            raise BadValueError(f"--api-prefix {o['api_prefix']!r} does not begin with /; write /{prefix}")
        return cls(
            names=names,
            n_queue=o["queue"],
            keys=keys,
            api_prefix=prefix,
            visitors=Visitors.of(o["allowed_hosts"], o["cors_origins"], keyed=bool(keys)),
            timeout_s=o["timeout"],
            keep_alive_s=o["keep_alive"],
            header_timeout_s=o["header_timeout"],
            body_timeout_s=o["body_timeout"],
            n_body=int(o["max_body"] * (1 << 20)),
            ping_s=max(0, o["sse_ping_interval"]),
            slots=o["slots"],
            metrics=o["metrics"],
            # Whoever asks for figures as of llama-server, which has none by default, wants them by its names, too.
            metrics_of_llama_cpp=o["metrics_compat"] == "llamacpp"
            or (bool(given.get("metrics")) and "metrics_compat" not in given),
            ui=o["ui"] and o["path"] is None,
            page=PageSettings.of(o["ui_config"], o["ui_config_file"]),
            embeds=embeds_of(o),
            norm=o["embd_normalize"],
            tags=tuple(comma_separated(o["tags"])),
            props=o["props"],
            cors_methods=tuple(x.upper() for x in comma_separated(o["cors_methods"])),
            cors_headers=tuple(comma_separated(o["cors_headers"])),
            cors_credentials=o["cors_credentials"],
            files=folder_of(o["path"], "--path"),
            prompt_folder=made_folder(o["log_prompts_dir"]),
            slot_folder=folder_of(o["slot_save_path"], "--slot-save-path"),
            media=Media(folder_of(o["media_path"], "--media-path"), o["media_url"]),
            prefills=o["prefill_assistant"],
            parses=not o["skip_chat_parsing"],
            **more,
        )

    def knows_key(self, key: bytes) -> bool:
        """Whether a client may send it. Takes as long for a wrong key as for a right one."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, own) for own in self.keys) > 0


def embeds_of(o: ServeOptions) -> bool:
    """Whether the server answers with vectors. Raises BadValueError: options that need it, without it."""
    if o["rerank"] and o["pooling"] not in (None, "rank"):
        raise BadValueError(f"--rerank needs --pooling rank, and it is {o['pooling']}; leave --pooling out")
    return o["embedding"] or o["rerank"]


def folder_of(path: str | None, flag: str) -> Path | None:
    """Raises BadValueError: it is no folder."""
    if path is not None and not os.path.isdir(path):
        raise BadValueError(f"{path} ({flag}) is no folder; make it first")
    return None if path is None else Path(path)


def _digest(key: bytes) -> bytes:
    """Of one length, so that a comparison does not tell the key's."""
    return hashlib.sha256(key).digest()


def keys_of(listed: str | None, files: str | list[str] | None) -> tuple[bytes, ...]:
    """Hashes of the keys of --api-key and --api-key-file. Raises BadValueError."""
    keys = comma_separated(listed)
    if listed is not None and not keys:
        raise BadValueError("--api-key names no key; leave it out")
    for file in [files] if isinstance(files, str) else files or ():
        try:
            lines = Path(file).read_text("utf-8").splitlines()
        except (OSError, ValueError) as e:
            why = getattr(e, "strerror", None) or "it is not UTF-8"
            raise BadValueError(
                f"the key file {file} (--api-key-file) cannot be read ({why}); check the path"
            ) from None
        of_file = [line.strip() for line in lines if line.strip()]
        if not of_file:
            raise BadValueError(f"the key file {file} (--api-key-file) holds no key; write one on each line")
        keys += of_file
    return tuple(_digest(k.encode("utf-8", "surrogateescape")) for k in dict.fromkeys(keys))
