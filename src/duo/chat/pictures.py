"""Pictures and sound in messages and prompts. Each is a marker in the text until the target reads it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from duo.errors import BadValueError
from duo.support.picture_file import N_MOST
from duo.support.sound_file import is_sound
from duo.support.wording import quoted

MARKER = "<__media__>"  # llama.cpp's, in prompts that programs write
KINDS = ("image_url", "input_image", "image", "input_audio")

Fetch = Callable[[str], bytes]  # the file that a URL names; raises BadValueError


# What servers of files say that do not know the type.
UNKNOWN_KINDS = ("application/octet-stream", "binary/octet-stream")


def data_url(url: str) -> bytes:
    """What a data: URL holds. Raises BadValueError: it is another kind of URL, of no picture and no sound, or no
    base64."""
    head, comma, data = url.partition(",")
    if head[:5].lower() != "data:" or not comma:
        raise BadValueError(
            f"{quoted(url, 60)} is no data: URL, and other pictures are not fetched here; send the data"
        )
    if not head.endswith(";base64"):
        raise BadValueError(f"the picture's URL {quoted(head, 60)} is not base64; write data:image/png;base64,...")
    kind = head[5:].partition(";")[0].lower()
    if kind and not kind.startswith(("image/", "audio/")) and kind not in UNKNOWN_KINDS:
        raise BadValueError(f"a picture's URL is of the type {quoted(kind, 40)}; write data:image/png;base64,...")
    return decoded(data)


def decoded(data: str) -> bytes:
    """The bytes of a base64 text. Raises BadValueError: it is no base64."""
    try:
        return base64.b64decode(re.sub(r"\s", "", data).encode(), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise BadValueError("a picture's data is not base64; encode its file") from None


def part_of(data: bytes) -> dict[str, Any]:
    """A picture's file, or one of sound, as part of a message."""
    if not is_sound(data):
        return {"type": "image_url", "image_url": {"url": url_of(data)}}
    kind = {b"RIFF": "wav", b"fLaC": "flac"}.get(data[:4], "mp3")
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": kind}}


def url_of(data: bytes) -> str:
    """A picture's file as a URL that holds it."""
    kinds = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"BM": "bmp"}
    kind = next((name for start, name in kinds.items() if data.startswith(start)), "png")
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


class Pictures:
    """The pictures and sounds of a conversation, in their order. The marker is random, so that no message holds it by
    chance."""

    def __init__(self, fetch: Fetch = data_url) -> None:
        import secrets

        self._fetch = fetch
        self.marker = f"<__media_{secrets.token_hex(8)}__>"
        self.files: list[bytes] = []

    def taken_out_of(self, messages: object) -> object:
        """The messages with markers in place of pictures; messages without pictures stay as they are. Raises
        BadValueError."""
        if not isinstance(messages, list | tuple):
            return messages
        return [self._message(i, m) for i, m in enumerate(messages)]

    def _message(self, i: int, m: Any) -> Any:
        content = m.get("content") if isinstance(m, Mapping) else None
        if not isinstance(content, list | tuple) or not any(is_picture(p) for p in content):
            return m
        text, after_marker = "", False
        for part in content:
            if is_picture(part):
                text += self._add(i, part)
                after_marker = True
                continue
            words = part.get("text") if isinstance(part, Mapping) and part.get("type") in _TEXTS else None
            if not isinstance(words, str):
                return m  # check_messages says what is wrong
            text += ("" if after_marker or not text else "\n") + words  # as llama.cpp joins them (common/chat.cpp)
            after_marker = False
        return {**m, "content": text}

    def _add(self, i: int, part: Mapping[str, Any]) -> str:
        if len(self.files) >= N_MOST:
            raise BadValueError(f"the conversation has more than {N_MOST} pictures; leave some out")
        try:
            self.files.append(self._file(part))
        except BadValueError as e:
            raise BadValueError(f"message {i}: {e}") from None
        return self.marker

    def _file(self, part: Mapping[str, Any]) -> bytes:
        if part["type"] == "input_audio":
            return self._sound(part.get("input_audio"))
        source = part.get("image_url") if part["type"] != "image" else part.get("source", part.get("url"))
        if isinstance(source, Mapping) and source.get("type") == "base64" and isinstance(source.get("data"), str):
            return decoded(source["data"])  # Anthropic's
        url = source.get("url") if isinstance(source, Mapping) else source
        if not isinstance(url, str) or not url:
            raise BadValueError("a picture has no URL; write {'type': 'image_url', 'image_url': {'url': 'data:...'}}")
        return self._fetch(url)

    def _sound(self, audio: Any) -> bytes:
        """OpenAI's: base64 in `data`. llama-server takes a URL there, too, and does not look at `format`."""
        data = audio.get("data", audio.get("url")) if isinstance(audio, Mapping) else None
        if not isinstance(data, str) or not data:
            raise BadValueError(
                "sound has no data; write {'type': 'input_audio', 'input_audio': {'data': BASE64, 'format': 'wav'}}"
            )
        return self._fetch(data) if ":" in data[:32] else decoded(data)

    def between(self, text: str) -> list[str | bytes]:
        """The text, and the pictures where their markers are. It may be the beginning of the whole text."""
        return between(text, self.marker, self.files[: text.count(self.marker)])


_TEXTS = ("text", "input_text", "output_text")


def is_picture(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in KINDS


def is_seen(part: object) -> bool:
    """Whether it is a picture, and not sound."""
    return is_picture(part) and isinstance(part, Mapping) and part["type"] != "input_audio"


def between(text: str, marker: str, files: Iterable[bytes]) -> list[str | bytes]:
    """The text, and the pictures where it has markers; without a marker they come before it. Raises BadValueError:
    there are not as many markers as pictures."""
    pictures = list(files)
    pieces = text.split(marker)
    if len(pieces) == 1:
        return [*pictures, text]
    if len(pieces) != len(pictures) + 1:
        raise BadValueError(
            f"the prompt has {len(pieces) - 1} markers ({MARKER}) and {len(pictures)} pictures were given; give one "
            "for each marker"
        )
    out: list[str | bytes] = []
    for i, piece in enumerate(pieces):
        out += [*([piece] if piece else []), *pictures[i : i + 1]]
    return out
