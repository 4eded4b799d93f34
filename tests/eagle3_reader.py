"""An EAGLE-3 head as libllama computes it, called directly: what the trained network is compared with."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import TracebackType
from typing import Any

import llama_cpp
import numpy as np
from gguf_files import Array

from duo import _core

_core.take_log()  # llama_cpp's own prints every line
_lib = llama_cpp.llama_cpp._lib
_keep_states = getattr(_lib, "_Z26llama_set_embeddings_nextnP13llama_contextbb")  # noqa: B009 - no name for Python
_keep_states.argtypes, _keep_states.restype = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool], None
_states = getattr(_lib, "_Z26llama_get_embeddings_nextnP13llama_context")  # noqa: B009
_states.argtypes, _states.restype = [ctypes.c_void_p], ctypes.POINTER(ctypes.c_float)


class Eagle3Reader:
    """One head on the CPU."""

    def __init__(self, path: Path) -> None:
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = False  # PyTorch configures AMX tiles in this thread, too, and ggml relies on its own
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        assert self._model, path
        context = llama_cpp.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch, context.n_threads = 256, 64, 64, 1
        context.n_threads_batch, context.type_k, context.type_v = 1, 0, 0  # 32 bits
        context.flash_attn_type = 0
        self._context = llama_cpp.llama_init_from_model(self._model, context)
        assert self._context
        _keep_states(self._context, True, True)
        self._n_embd = llama_cpp.llama_model_n_embd(self._model)
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def encode(self, features: Array) -> Array:
        """[rows][n_features] -> states [rows][n_embd]."""
        self._batch(llama_cpp.llama_encode, None, features, 0)
        return self._rows(_states(self._context), len(features), self._n_embd)

    def decode(self, tokens: list[int], states: Array, *, first: int) -> tuple[Array, Array]:
        """Rows (token, state) at positions first, ...: logits [rows][n_vocab], and the rows' own states."""
        self._batch(llama_cpp.llama_decode, tokens, states, first)
        logits = self._rows(llama_cpp.llama_get_logits(self._context), len(tokens), self._n_vocab)
        return logits, self._rows(_states(self._context), len(tokens), self._n_embd)

    def _batch(self, call: Any, tokens: list[int] | None, rows: Array, first: int) -> None:
        rows = np.ascontiguousarray(rows, np.float32)
        n = len(rows)
        batch = llama_cpp.llama_batch_init(n, rows.shape[1], 1)
        batch.n_tokens = n
        ctypes.memmove(batch.embd, rows.ctypes.data, rows.nbytes)
        ids = (ctypes.c_int32 * n)(*(tokens or []))
        if tokens is not None:
            batch.token = ids
        for i in range(n):
            batch.pos[i], batch.logits[i] = first + i, True
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        code = call(self._context, batch)
        batch.token = None  # Python's memory
        llama_cpp.llama_batch_free(batch)
        assert code == 0

    @staticmethod
    def _rows(data: Any, n: int, width: int) -> Array:
        return np.ctypeslib.as_array(data, (n, width)).copy()

    def __enter__(self) -> Eagle3Reader:
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _b: TracebackType | None) -> None:
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)
