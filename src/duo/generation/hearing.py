"""A projector of a few hundred bytes, for the process that decodes sound: libmtmd asks a projector for the rate."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from pathlib import Path

from duo.errors import BadValueError, DuoError
from duo.support.home_process import HomeProcess, PerProcess

RATE = 16_000  # of all kinds that hear, but for those that make speech
_lock = PerProcess(threading.Lock)
_files: list[str] = []


def hearing(rate: int) -> str:
    """The path of the file, which is removed when the program ends. rate: samples a second. Raises BadValueError: no
    projector hears at this rate; DuoError."""
    if rate != RATE:
        raise BadValueError(f"this model hears {rate} samples a second, and duo can give {RATE}; take another model")
    with _lock():
        if not _files or not Path(_files[0]).is_file():  # the system clears old temporary files
            try:
                folder = tempfile.mkdtemp(prefix="duo-hearing-")
                atexit.register(_remove, folder, HomeProcess())
                _files[:] = [_written(Path(folder, "hearing.gguf"))]
            except OSError as e:
                raise DuoError(f"no temporary file can be written ({e.strerror}); free some space") from None
        return _files[0]


def _remove(folder: str, home: HomeProcess) -> None:
    if home.is_this:  # not in a fork, which inherits the functions of atexit
        shutil.rmtree(folder, ignore_errors=True)


def _written(to: Path) -> str:
    """Writes a file of Qwen2-Audio's kind without layers (clip.cpp), and returns its path."""
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(to, "clip")
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string("clip.projector_type", "qwen2a")
    for name, n in (
        ("embedding_length", 4), ("feed_forward_length", 4), ("block_count", 0), ("attention.head_count", 1),
        ("projection_dim", 4), ("num_mel_bins", 80),
    ):  # fmt: skip
        writer.add_uint32(f"clip.audio.{name}", n)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    for name in ("a.conv1d.1", "a.conv1d.2", "mm.a.fc"):
        writer.add_tensor(f"{name}.weight", np.zeros((4, 4), np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(to)
