"""Checks a file of sound before it is decoded: its kind, and its length where the header says it."""

from __future__ import annotations

import struct

from duo.errors import BadValueError
from duo.support.picture_file import N_BYTES_MOST

N_SECONDS_MOST = 5 * 60  # of a prompt; libmtmd ends the process if some models (LFM2-Audio) get little more
N_MOST = 4  # files of a prompt: each may take the decoder seconds
FORMATS = "WAV, MP3 or FLAC"


def is_sound(data: bytes) -> bool:
    """Whether a file is sound and no picture, as libmtmd decides (is_audio_file in mtmd-helper.cpp)."""
    wave = data[:4] == b"RIFF" and data[8:12] == b"WAVE"
    mpeg = data[:3] == b"ID3" or (data[:1] == b"\xff" and data[1:2] >= b"\xe0")
    return len(data) >= 12 and (wave or mpeg or data[:4] == b"fLaC")


def check_sounds(files: list[bytes]) -> None:
    """Raises BadValueError: there are too many, or one is too long."""
    if len(files) > N_MOST:
        raise BadValueError(f"the prompt has {len(files)} files of sound; give at most {N_MOST}")
    for i, data in enumerate(files, 1):
        if len(data) > N_BYTES_MOST:
            raise BadValueError(f"sound {i} has {len(data) >> 20} MiB; give at most {N_BYTES_MOST >> 20} MiB")
        if data[:4] == b"RIFF":
            _check_wave(data, f"sound {i}")


def check_length(n_samples: int, rate: int) -> None:
    """Checks the length of all sound of a prompt. Raises BadValueError."""
    if n_samples > rate * N_SECONDS_MOST:
        raise BadValueError(f"the prompt has more than {N_SECONDS_MOST // 60} minutes of sound; give a part of it")


def _check_wave(data: bytes, which: str) -> None:
    """Its chunks must lie in the file: miniaudio believes them."""
    at, rate = 12, 0
    try:
        while True:
            name, n = struct.unpack_from("<4sI", data, at)
            if name == b"fmt ":
                rate = struct.unpack_from("<I", data, at + 16)[0]
            elif name == b"data":
                break
            at += 8 + n + n % 2
    except struct.error:
        raise BadValueError(f"{which} is damaged: it has no samples; save it anew") from None
    if rate == 0:
        raise BadValueError(f"{which} is damaged: its header is wrong; save it anew")
    if min(n, len(data) - at - 8) > rate * N_SECONDS_MOST:
        raise BadValueError(f"{which} is longer than {N_SECONDS_MOST // 60} minutes; give a part of it")
