"""Functions of a program that see each token before it is chosen: llama_cpp's logits_processor, stopping_criteria."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from duo.errors import BadValueError, DuoError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from duo.generation.result import Result

    Ids = npt.NDArray[np.int32]
    Scores = npt.NDArray[np.float32]
    Processor = Callable[[Ids, Scores], Scores]
    Criterion = Callable[[Ids, Scores], bool]


def criteria_of(criteria: Any) -> tuple[Criterion, ...]:
    """criteria: a function, a list of them, or None. A callable list is called itself, as in llama_cpp."""
    if criteria is None:
        return ()
    return tuple(criteria) if isinstance(criteria, list | tuple) and not callable(criteria) else (criteria,)


class Hook:
    """The core calls it in the target's thread, once for each token and in their order, whatever the mode.

    processor, criteria: a function, a list of them, or None. A callable list of criteria is called itself, as in
    llama_cpp.
    """

    def __init__(self, processor: Any, criteria: Any) -> None:
        several = processor if isinstance(processor, list | tuple) else [processor]
        self._processors: tuple[Processor, ...] = () if processor is None else tuple(several)
        self._criteria = criteria_of(criteria)
        self._error: BaseException | None = None
        self._thread = 0  # id of the thread that runs the hook; 0: none

    def __bool__(self) -> bool:
        return bool(self._processors or self._criteria)

    def __call__(self, ids: Ids, scores: Scores) -> bool:
        """Changes the scores in place. False: the text ends here. Raises what the program's functions raise."""
        self._thread = threading.get_ident()
        try:
            logits = scores.copy() if self._criteria else scores  # what a criterion writes there changes nothing
            for processor in self._processors:
                self._change(scores, processor(ids, scores))
            verdicts = [bool(criterion(ids, logits)) for criterion in self._criteria]  # all are asked, as in llama_cpp
            return True not in verdicts
        except BaseException as e:
            self._error = e
            raise
        finally:
            self._thread = 0

    @staticmethod
    def _change(scores: Scores, returned: Any) -> None:
        import numpy as np

        try:
            with np.errstate(over="ignore"):  # beyond 32 bits: infinity, which is refused below
                changed = np.asarray(returned, np.float32)
        except (TypeError, ValueError):
            changed = np.empty(0, np.float32)
        if changed.shape != scores.shape:
            what = f"shape {returned.shape}" if isinstance(returned, np.ndarray) else type(returned).__name__
            raise BadValueError(f"the logits_processor returned {what}; return scores of shape {scores.shape}")
        scores[:] = changed
        if not (scores < np.inf).all():  # of NaN, too
            raise BadValueError("the logits_processor returned NaN or infinity; -inf forbids a token")

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is inside one of the functions."""
        return self._thread == threading.get_ident()

    def end(self) -> None:
        """The text has ended: lets the functions go, which the core would keep until its next text."""
        self._processors = self._criteria = ()

    def raise_error(self, result: Result) -> None:
        """Raises what a function raised, if one did. result: the text so far, for a DuoError."""
        e, self._error = self._error, None
        if isinstance(e, StopIteration | StopAsyncIteration | GeneratorExit):  # readers would take it for the end
            raise DuoError(f"a logits_processor or stopping_criteria raised {type(e).__name__}", result) from e
        if isinstance(e, DuoError):
            e.result = result
        if e is not None:
            raise e
