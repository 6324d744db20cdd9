"""Engines for tests: one whose vectors are a hash of the tokens, and one that breaks what another gives."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from vecload.contracts import Engine, EngineCapabilities, EngineConnector

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix, TokenBatch
    from vecload.models import Model


class DeterministicSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    delay_seconds: float = Field(default=0, ge=0, description="how long each batch takes")
    max_tokens_per_batch: int = Field(default=16384, ge=1, description="the token budget of a batch")
    max_texts_per_batch: int = Field(default=256, ge=1, description="the number of texts in a batch")


class DeterministicEngine:
    """Needs no vLLM: equal token ids give equal unit vectors, others all but orthogonal ones.

    One batch at a time on a thread of its own, so that futures complete later, as those of a real engine.
    """

    def __init__(self, settings: DeterministicSettings, model: Model) -> None:
        self.capabilities = EngineCapabilities(
            max_tokens_per_batch=settings.max_tokens_per_batch, max_texts_per_batch=settings.max_texts_per_batch
        )
        self._delay = settings.delay_seconds
        self._dimensions = model.space.dimensions
        self._thread = ThreadPoolExecutor(1, "vecload-deterministic")

    def start(self) -> None: ...

    def submit(self, batch: TokenBatch) -> Future[FloatMatrix]:
        return self._thread.submit(self._embed, batch)

    def close(self) -> None:
        self._thread.shutdown()

    def _embed(self, batch: TokenBatch) -> FloatMatrix:
        time.sleep(self._delay)
        # SHAKE gives as many bytes as a vector has dimensions: each is one coordinate, -127.5 .. 127.5.
        hashes = b"".join(hashlib.shake_128(ids.tobytes()).digest(self._dimensions) for ids in batch)
        vectors = np.frombuffer(hashes, dtype=np.uint8).reshape(len(batch), self._dimensions).astype(np.float32) - 127.5
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


class FaultyEngine:
    """Passes each result of another engine through `fault(batch, vectors)`, which may change it or raise."""

    def __init__(self, engine: Engine, fault: Callable[[TokenBatch, FloatMatrix], FloatMatrix]) -> None:
        self.capabilities = engine.capabilities
        self._engine = engine
        self._fault = fault

    def start(self) -> None:
        self._engine.start()
        self.capabilities = self._engine.capabilities

    def submit(self, batch: TokenBatch) -> Future[FloatMatrix]:
        outcome: Future[FloatMatrix] = Future()

        def pass_on(inner: Future[FloatMatrix]) -> None:
            try:
                outcome.set_result(self._fault(batch, inner.result()))
            except Exception as error:
                outcome.set_exception(error)

        self._engine.submit(batch).add_done_callback(pass_on)
        return outcome

    def close(self) -> None:
        self._engine.close()


DETERMINISTIC = EngineConnector(kind="deterministic", settings=DeterministicSettings, open=DeterministicEngine)
