"""The child process of duo.make_draft.quantize: one call of llama_model_quantize.

Arguments: libllama, and the request as JSON (see `Request`). llama.cpp's log goes to standard error: its lines say how
many tensors are done, how large the file is, and why it failed. It uses only the standard library, so it starts in
milliseconds. A child can be stopped in the middle, which a call in the program itself cannot, and an assertion of
llama.cpp that fails ends the child only.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from typing import TypedDict

INT_TAG = 0  # LLAMA_KV_OVERRIDE_TYPE_INT
Q8_0, TYPE_COUNT_MOST = 7, 256  # llama_ftype of the default parameters; no ggml_type is larger


class Request(TypedDict):
    source: str
    out: str  # is not written if dry_run
    ftype: int  # llama_ftype
    only_copy: bool  # the weights keep their types
    dry_run: bool  # says the size only
    n_threads: int
    prune: list[int]  # layers to leave out, ascending
    numbers: dict[str, int]  # header keys
    types: list[tuple[str, int]]  # (pattern of tensors' names, ggml_type)


class Params(ctypes.Structure):
    """llama_model_quantize_params in llama.h."""

    _fields_ = [
        ("nthread", ctypes.c_int32),
        ("ftype", ctypes.c_int),
        ("output_tensor_type", ctypes.c_int),
        ("token_embedding_type", ctypes.c_int),
        ("allow_requantize", ctypes.c_bool),
        ("quantize_output_tensor", ctypes.c_bool),
        ("only_copy", ctypes.c_bool),
        ("pure", ctypes.c_bool),
        ("keep_split", ctypes.c_bool),
        ("dry_run", ctypes.c_bool),
        ("imatrix", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("tt_overrides", ctypes.c_void_p),
        ("prune_layers", ctypes.c_void_p),
        ("max_buf_size", ctypes.c_size_t),
    ]


class _Value(ctypes.Union):
    _fields_ = [
        ("val_i64", ctypes.c_int64),
        ("val_f64", ctypes.c_double),
        ("val_bool", ctypes.c_bool),
        ("val_str", ctypes.c_char * 128),
    ]


class KvOverride(ctypes.Structure):
    """llama_model_kv_override in llama.h."""

    _fields_ = [("tag", ctypes.c_int), ("key", ctypes.c_char * 128), ("value", _Value)]


class TensorOverride(ctypes.Structure):
    """llama_model_tensor_override in llama.h."""

    _fields_ = [("pattern", ctypes.c_char_p), ("type", ctypes.c_int)]


def _end_with_parent() -> None:
    """Only the parent holds the other end of standard input."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    libllama, text = sys.argv[1:]
    request: Request = json.loads(text)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _end_with_parent()
    llama = ctypes.CDLL(libllama, mode=ctypes.RTLD_GLOBAL)
    defaults = llama.llama_model_quantize_default_params
    defaults.restype = Params
    llama.llama_backend_init()
    params = defaults()
    if params.ftype != Q8_0 or not 0 < params.output_tensor_type < TYPE_COUNT_MOST or params.allow_requantize:
        print("this llama.cpp has other parameters than duo knows", file=sys.stderr)
        return 1
    params.nthread = request["n_threads"]
    params.ftype = request["ftype"]
    params.only_copy, params.dry_run = request["only_copy"], request["dry_run"]
    params.allow_requantize = True
    numbers = (KvOverride * (len(request["numbers"]) + 1))()  # the last one is empty
    for into, (key, value) in zip(numbers, request["numbers"].items(), strict=False):
        into.tag, into.key, into.value.val_i64 = INT_TAG, key.encode(), value
    types = (TensorOverride * (len(request["types"]) + 1))()
    for of_tensors, (pattern, kind) in zip(types, request["types"], strict=False):
        of_tensors.pattern, of_tensors.type = pattern.encode(), kind
    prune = (ctypes.c_int32 * (len(request["prune"]) + 1))(*request["prune"], -1)
    if request["numbers"]:
        params.kv_overrides = ctypes.addressof(numbers)
    if request["types"]:
        params.tt_overrides = ctypes.addressof(types)
    if request["prune"]:
        params.prune_layers = ctypes.addressof(prune)
    run = llama.llama_model_quantize
    run.restype = ctypes.c_uint32
    run.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Params)]
    code: int = run(os.fsencode(request["source"]), os.fsencode(request["out"]), ctypes.byref(params))
    return code


if __name__ == "__main__":
    # No clean-up: libggml's threads may still run.
    sys.stdout.flush()
    os._exit(main())
