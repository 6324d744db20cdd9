"""The worker: holds vLLM in a process of its own and answers batches of token ids with vectors.

Started by `vecload.engines.process` as `python -m vecload.engines.worker`; speaks frames (see `frames`) over its
standard input and output. Only the main thread touches vLLM: two callers at a time corrupt its heap.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

from vecload.engines import guard

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix, TokenBatch

_STEPS_AHEAD = 3


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
        worker, ready = Worker.start(settings)
    except Exception as error:
        frames.write_text(replies, frames.FAILED, frames.NO_BATCH, start_failure(error, settings))
        raise
    frames.write_text(replies, frames.READY, frames.NO_BATCH, ready)
    worker.serve(requests, replies)


@dataclass(slots=True)
class _Batch:
    number: int
    vectors: list[Any]
    open: int
    """How many of its texts have no vector yet."""


class Worker:
    """Feeds an engine core (see `vllm_compat.PoolingCore`) with the texts of batches, and answers with vectors."""

    def __init__(self, core: Any, arguments: dict[str, Any], model: dict[str, Any]) -> None:
        """`arguments` are those that the core was made with."""
        self._core = core
        self._max_len = arguments["max_model_len"]
        self._normalize = model["normalize"]
        self._vocabulary = model["config"].get("vocab_size")
        self._under_way: dict[str, tuple[_Batch, int, int]] = {}
        """The texts that the core works on: their batch, which of its texts they are, and how many tokens long."""
        self._tokens = 0
        """How many tokens are under way."""
        # One step that runs, one that is made ready meanwhile, and one to choose from.
        self._enough = _STEPS_AHEAD * arguments["max_num_batched_tokens"]

    @classmethod
    def start(cls, settings: dict[str, Any]) -> tuple[Worker, str]:
        """Loads the model; the worker, and in JSON what vecload is told of it."""
        from vecload.engines import vllm_compat

        vllm_compat.set_environment(settings["args"])
        from vllm import LLM

        arguments = vllm_compat.engine_arguments(settings["model"], settings["args"], settings["engines"])
        worker = cls(vllm_compat.PoolingCore(LLM(**arguments)), arguments, settings["model"])
        device = "cpu" if vllm_compat.on_cpu() else "gpu"
        ready = {"device": device, "step_tokens": arguments["max_num_batched_tokens"], "pid": os.getpid()}
        return worker, json.dumps(ready)

    def serve(self, requests: BinaryIO, replies: BinaryIO) -> None:
        """Answers batches until it is asked to end.

        Texts of the next batches join the core while the last ones of the batch before are under way, so that it
        never runs dry. Batches may finish in another order than they came.
        """
        waiting: queue.Queue[tuple[int, TokenBatch] | None] = queue.Queue()
        threading.Thread(target=_read_ahead, args=(requests, waiting), daemon=True).start()
        # Answers are sent from a thread of their own: the core never waits until vecload has read one.
        with ThreadPoolExecutor(1) as sending:
            self._serve(waiting, sending, replies)

    def _serve(
        self, waiting: queue.Queue[tuple[int, TokenBatch] | None], sending: ThreadPoolExecutor, replies: BinaryIO
    ) -> None:
        from vecload.engines import frames, vllm_compat

        def refuse(number: int, reason: str) -> None:
            sending.submit(frames.write_text, replies, frames.FAILED, number, reason)

        ended = False
        while not ended or self._under_way:
            while not ended and self._tokens < self._enough:
                try:
                    item = waiting.get(block=not self._under_way)
                except queue.Empty:
                    break
                if item is None:
                    ended = True
                    break
                try:
                    self._begin(*item)
                except ValueError as error:
                    refuse(item[0], one_line(error))
            try:
                done = self._step()
            except Exception as error:
                # vecload sends the batches again in halves; nothing else is worth another try in this process.
                if not vllm_compat.out_of_memory(error):
                    raise
                for number in self._give_up():
                    refuse(number, f"out of memory: {one_line(error)}")
                continue
            for batch in done:
                sending.submit(self._answer, batch, replies)

    def _begin(self, number: int, batch: TokenBatch) -> None:
        self._check(batch)
        flat, ends = batch.ids.tolist(), batch.offsets.tolist()
        begun = _Batch(number, [None] * len(batch), len(batch))
        for position, (start, end) in enumerate(pairwise(ends)):
            self._under_way[self._core.add(flat[start:end])] = (begun, position, end - start)
            self._tokens += end - start

    def _step(self) -> list[_Batch]:
        """One step of the core, if anything is under way; the batches that it finished."""
        done: list[_Batch] = []
        if not self._under_way:
            return done
        for name, vector in self._core.step():
            if name not in self._under_way:  # it was given up while the core had it in hand
                continue
            batch, position, tokens = self._under_way.pop(name)
            self._tokens -= tokens
            batch.vectors[position] = vector
            batch.open -= 1
            if not batch.open:
                done.append(batch)
        return done

    def _give_up(self) -> list[int]:
        """Drops everything under way; the numbers of the batches."""
        self._core.abort(list(self._under_way))
        numbers = sorted({batch.number for batch, _, _ in self._under_way.values()})
        self._under_way.clear()
        self._tokens = 0
        return numbers

    def _answer(self, batch: _Batch, replies: BinaryIO) -> None:
        from vecload.engines import frames

        try:
            vectors = self._rows(batch)
        except Exception as error:  # vecload must not wait for ever for this batch
            frames.write_text(replies, frames.FAILED, batch.number, one_line(error))
        else:
            frames.write_vectors(replies, batch.number, vectors)

    def _rows(self, batch: _Batch) -> FloatMatrix:
        import numpy as np

        from vecload.engines import vllm_compat

        vectors = vllm_compat.as_rows(batch.vectors)
        if self._normalize:
            norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
            vectors = vectors / np.maximum(norms, 1e-12)[:, None].astype(np.float32)
        return vectors

    def _check(self, batch: TokenBatch) -> None:
        """Raises ValueError for what vLLM would refuse in mid-batch, or answer with a crash (an id out of range)."""
        import numpy as np

        lengths, limit = np.diff(batch.offsets), self._max_len
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
