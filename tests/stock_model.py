"""A model that llama-cpp-python evaluates, without duo."""

from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class Model:
    """A model on the CPU that evaluates one sequence."""

    def __init__(self, path: Path) -> None:
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        assert self.model, path
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def close(self) -> None:
        llama_cpp.llama_model_free(self.model)

    def greedy(self, prompt: str, n_tokens: int = 24) -> tuple[list[int], Floats]:
        """The continuation, and the logits at every position of prompt and continuation."""
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_threads, params.n_threads_batch = 256, 1, 1
        context = llama_cpp.llama_init_from_model(self.model, params)
        space = (llama_cpp.llama_token * 128)()
        text = prompt.encode()
        n_prompt = llama_cpp.llama_tokenize(self.vocab, text, len(text), space, 128, True, True)
        logits = [self._decode(context, space[:n_prompt], 0)]
        tokens: list[int] = []
        while len(tokens) < n_tokens:
            tokens.append(int(logits[-1][-1].argmax()))
            logits.append(self._decode(context, tokens[-1:], n_prompt + len(tokens) - 1))
        llama_cpp.llama_free(context)
        return tokens, np.concatenate(logits)

    def _decode(self, context: Any, tokens: list[int], pos: int) -> Floats:
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, pos + i, True
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        assert llama_cpp.llama_decode(context, batch) == 0
        shape = (llama_cpp.llama_vocab_n_tokens(self.vocab),)
        rows = [llama_cpp.llama_get_logits_ith(context, i) for i in range(len(tokens))]
        logits = np.stack([np.ctypeslib.as_array(row, shape) for row in rows])
        llama_cpp.llama_batch_free(batch)
        return logits
