"""The worker: holds vLLM in a process of its own and answers batches of token ids with vectors.

Started by `vecload.engines.process` as `python -m vecload.engines.worker`; speaks frames (see `frames`) over its
standard input and output. Only the main thread touches vLLM: two callers at a time corrupt its heap.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import TYPE_CHECKING, Any, BinaryIO

from vecload.engines import guard

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix, TokenBatch


def main() -> None:
    guard.divide(requests=0)
    # vLLM prints to standard output; the frames keep a descriptor of their own, and what is printed joins the log.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    # Imported after the fork: the guard stays small, and a fork under numpy's threads is never safe.
    from vecload.engines import frames

    settings = frames.read_settings(requests)
    try:
        worker = Worker(settings)
    except Exception as error:
        frames.write_text(replies, frames.FAILED, frames.NO_BATCH, start_failure(error, settings))
        raise
    frames.write_text(replies, frames.READY, frames.NO_BATCH, worker.ready())
    worker.serve(requests, replies)


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        from vecload.engines import vllm_compat

        self._model: dict[str, Any] = settings["model"]
        vllm_compat.set_environment(settings["args"])
        from vllm import LLM

        self._arguments = vllm_compat.engine_arguments(self._model, settings["args"])
        self._llm = LLM(**self._arguments)
        self._vocabulary = self._model["config"].get("vocab_size")

    def ready(self) -> str:
        import json

        from vecload.engines import vllm_compat

        device = "cpu" if vllm_compat.on_cpu() else "gpu"
        return json.dumps(
            {"device": device, "step_tokens": self._arguments["max_num_batched_tokens"], "pid": os.getpid()}
        )

    def serve(self, requests: BinaryIO, replies: BinaryIO) -> None:
        """Answers batch after batch until it is asked to end."""
        from vecload.engines import frames, vllm_compat

        waiting: queue.Queue[tuple[int, TokenBatch] | None] = queue.Queue()
        threading.Thread(target=_read_ahead, args=(requests, waiting), daemon=True).start()
        while (item := waiting.get()) is not None:
            number, batch = item
            try:
                frames.write_vectors(replies, number, self.embed(batch))
            except Exception as error:
                frames.write_text(replies, frames.FAILED, number, one_line(error))
                if vllm_compat.engine_is_dead(error):
                    raise

    def embed(self, batch: TokenBatch) -> FloatMatrix:
        import numpy as np

        from vecload.engines import vllm_compat

        self._check(batch)
        vectors = vllm_compat.pooled(self._llm, batch)
        if self._model["normalize"]:
            norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
            vectors = vectors / np.maximum(norms, 1e-12)[:, None].astype(np.float32)
        return vectors

    def _check(self, batch: TokenBatch) -> None:
        """Raises ValueError for what vLLM would refuse in mid-batch, or answer with a crash (an id out of range)."""
        import numpy as np

        lengths = np.diff(batch.offsets)
        limit = self._arguments["max_model_len"]
        if lengths.min() < 1:
            raise ValueError(f"text {lengths.argmin()} of the batch has no tokens")
        if lengths.max() > limit:
            raise ValueError(
                f"text {lengths.argmax()} of the batch has {lengths.max()} tokens, and the engine takes {limit} "
                "(raise transform.engine.args.max_model_len, or lower transform.max_tokens)"
            )
        if batch.ids.min() < 0 or (self._vocabulary and batch.ids.max() >= self._vocabulary):
            raise ValueError(f"a token id is outside the model's vocabulary of {self._vocabulary}")


def _read_ahead(requests: BinaryIO, waiting: queue.Queue[tuple[int, TokenBatch] | None]) -> None:
    """Reads batches while vLLM works, so that the next is always at hand."""
    from vecload.engines import frames

    try:
        while (item := frames.read_batch(requests)) is not None:
            waiting.put(item)
    except EOFError:
        pass
    waiting.put(None)


def start_failure(error: Exception, settings: dict[str, Any]) -> str:
    """Why the engine did not start, in one sentence."""
    reason = one_line(error)
    try:
        import vllm

        from vecload.engines import vllm_compat

        architecture = settings["model"]["architecture"]
        if vllm_compat.is_unknown(architecture, reason):
            return f"vLLM {vllm.__version__} does not know the model's architecture '{architecture}' ({reason})"
        return f"vLLM {vllm.__version__} did not start: {reason}"
    except ImportError:
        return f"vLLM cannot be imported: {reason}"


def one_line(error: Exception) -> str:
    """The gist of an exception: validation errors come as several lines with the inputs in them."""
    text = str(error)
    if "Value error, " in text:
        text = text.partition("Value error, ")[2].partition(" [type=")[0]
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= 400 else text[:400] + "…"


if __name__ == "__main__":
    main()
