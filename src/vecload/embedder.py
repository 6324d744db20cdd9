"""Vectors inside a program of one's own: the very ones that `vecload sync` stores.

with vecload.Embedder("Qwen/Qwen3-Embedding-0.6B") as embedder:
    vectors = embedder.embed_documents(["first text", "second text"])   # float32, shape (2, 1024)
    vector = embedder.embed_query("which one?")                         # float32, shape (1024,)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from vecload import registry
from vecload.batching import plan
from vecload.config import validated
from vecload.embedding import packed
from vecload.errors import EngineError, UsageError
from vecload.models import Model, ModelOverrides, Pooling
from vecload.text.clean import clean

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType

    import numpy.typing as npt

    from vecload.documents import FloatMatrix, TokenBatch

WINDOW_TEXTS = 2048
"""How many texts are tokenised and planned at a time."""


class Embedder:
    """A model and the engine that runs it. Thread-safe; the engine starts with the first text.

    `model` is a hub name, a folder, or `package:NAME`. `engine` is a kind, or a mapping as in `vecload.yaml`:
    ``{"kind": "vllm", "args": {"dtype": "bfloat16"}}``. The other settings weigh more than the model's own files.

    Raises UsageError (also for a setting that is wrong) and MissingDependencyError. Needs no `__main__` guard.
    """

    def __init__(
        self,
        model: str,
        *,
        engine: str | Mapping[str, Any] = "vllm",
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        max_tokens: int | None = None,
        document_prompt: str | None = None,
        query_prompt: str | None = None,
    ) -> None:
        overrides = ModelOverrides(
            pooling=pooling,
            normalize=normalize,
            max_tokens=max_tokens,
            document_prompt=document_prompt,
            query_prompt=query_prompt,
        )
        settings = {"kind": engine} if isinstance(engine, str) else dict(engine)
        connector = registry.engine(settings.pop("kind", "vllm"))
        self.model = Model.resolve(model, overrides=overrides)
        self._engine = connector.open(validated(connector.settings, settings, "engine"), self.model)
        self._lock = threading.Lock()
        self._started = self._closed = False

    @property
    def dimensions(self) -> int:
        return self.model.space.dimensions

    def embed_documents(self, texts: Sequence[str]) -> FloatMatrix:
        """The vectors of texts that are searched through: float32, shape (len(texts), dimensions), in their order.

        Texts are cleaned as `sync` does (no NUL, no lone surrogates) and get the model's document prompt; of one over
        the model's limit the head is embedded. Raises EngineError.
        """
        if isinstance(texts, str):
            raise UsageError("embed_documents takes a list of texts, not one text.")
        return self._embed(texts, self.model.space.document_prompt)

    def embed_query(self, text: str) -> FloatMatrix:
        """The vector of one question, with the model's query prompt: float32, shape (dimensions,)."""
        vector: FloatMatrix = self._embed([text], self.model.space.query_prompt)[0]
        return vector

    def start(self) -> None:
        """Starts the engine now rather than with the first text. Raises EngineError."""
        with self._lock:
            if self._closed:
                raise EngineError("The embedder was closed.")
            if not self._started:
                self._engine.start()
                self._started = True

    def close(self) -> None:
        """Ends the engine. Nothing is lost without it: the engine ends with the program."""
        with self._lock:
            self._closed = True
            self._engine.close()

    def __enter__(self) -> Embedder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _embed(self, texts: Sequence[str], prompt: str) -> FloatMatrix:
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        if not len(texts):
            return vectors
        self.start()
        limits = self._engine.capabilities
        waiting: deque[tuple[npt.NDArray[np.intp], Future[FloatMatrix]]] = deque()
        with ThreadPoolExecutor(1) as tokenising:
            window = tokenising.submit(self._tokenise, texts[:WINDOW_TEXTS], prompt)
            for start in range(0, len(texts), WINDOW_TEXTS):
                tokens, ahead = window.result(), start + WINDOW_TEXTS
                # While the engine embeds this window, the next is tokenised.
                window = tokenising.submit(self._tokenise, texts[ahead : ahead + WINDOW_TEXTS], prompt)
                ids = list(tokens)
                for indices in plan(np.diff(tokens.offsets), limits.max_tokens_per_batch, limits.max_texts_per_batch):
                    if len(waiting) >= limits.batches_in_flight:
                        self._collect(*waiting.popleft(), vectors)
                    waiting.append((start + indices, self._engine.submit(packed([ids[i] for i in indices]))))
        while waiting:
            self._collect(*waiting.popleft(), vectors)
        return vectors

    def _tokenise(self, texts: Sequence[str], prompt: str) -> TokenBatch:
        cleaned = [clean(text) for text in texts]
        return self.model.tokenizer().encode(cleaned, prompt=prompt, max_tokens=self.model.max_tokens)[0]

    def _collect(self, indices: npt.NDArray[np.intp], future: Future[FloatMatrix], vectors: FloatMatrix) -> None:
        rows = future.result()
        if rows.shape != (len(indices), self.dimensions):
            raise EngineError(
                f"The engine gave vectors of shape {rows.shape} for {len(indices)} texts, and the model's files say "
                f"{self.dimensions} dimensions."
            )
        if not np.isfinite(rows).all():
            text = int(indices[int(np.argmin(np.isfinite(rows).all(axis=1)))])
            raise EngineError(f"The vector of text {text} is not finite; another transform.engine.args.dtype may help.")
        vectors[indices] = rows
