"""The GPU's part of the pipeline: a window of texts -> batches by token budget -> engine -> checked vectors."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from vecload.batching import plan
from vecload.contracts import Engine
from vecload.documents import TokenBatch
from vecload.errors import EngineDiedError, EngineError
from vecload.planning import PlannedDocument
from vecload.report.run_report import RunReport

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix, IntVector

WINDOW_BATCHES = 8
"""A window holds about this many full batches: enough to sort by length, little enough to lose in a crash."""

WINDOW_DOCUMENTS = 4096
"""A window is full at this many documents too: most need no vector when only metadata changed."""


@dataclass(slots=True)
class Text:
    """One text of a window, and each place that it stands at: equal text is embedded once."""

    ids: IntVector
    places: list[tuple[PlannedDocument, int]] = field(default_factory=list)


class Window:
    """The texts of the documents planned so far, until there are enough to plan batches over."""

    def __init__(self, max_tokens: int) -> None:
        self.documents: list[PlannedDocument] = []
        self.texts: dict[str, Text] = {}
        self._max_tokens = max_tokens
        self._tokens = 0

    def add(self, documents: Sequence[PlannedDocument]) -> None:
        self.documents += documents
        for document in documents:
            for position, ids in document.tokens.items():
                key = str(document.payloads[position]["text_hash"])
                text = self.texts.get(key)
                if text is None:
                    text = self.texts[key] = Text(ids)
                    self._tokens += len(ids)
                text.places.append((document, position))
            document.tokens = {}

    @property
    def full(self) -> bool:
        return self._tokens >= self._max_tokens or len(self.documents) >= WINDOW_DOCUMENTS


@dataclass(frozen=True, slots=True)
class Embedded:
    """A text with its vector, float32 of shape (dimensions,); or with the reason why there is none."""

    text: Text
    vector: FloatMatrix | None
    error: str = ""


class Embedding:
    """Keeps the engine supplied. Not thread-safe: one thread submits and collects."""

    def __init__(self, engine: Engine, dimensions: int, report: RunReport) -> None:
        self._engine = engine
        self._dimensions = dimensions
        self._report = report
        self._planned: deque[list[Text]] = deque()
        self._running: dict[Future[FloatMatrix], list[Text]] = {}
        self._busy_since = 0.0

    @property
    def window_tokens(self) -> int:
        return WINDOW_BATCHES * self._engine.capabilities.max_tokens_per_batch

    @property
    def idle(self) -> bool:
        return not self._running and not self._planned

    @property
    def hungry(self) -> bool:
        """No planned batch is left over: the next window should come."""
        return not self._planned

    def submit(self, window: Window) -> None:
        texts = list(window.texts.values())
        lengths = np.array([len(text.ids) for text in texts], dtype=np.int32)
        capabilities = self._engine.capabilities
        for batch in plan(lengths, capabilities.max_tokens_per_batch, capabilities.max_texts_per_batch):
            self._planned.append([texts[i] for i in batch])
        self._feed()

    def abandon_waiting(self) -> None:
        """Gives up the batches that the engine has not been given yet: the run was interrupted."""
        self._planned.clear()

    def collect(self, *, block: bool) -> Iterator[Embedded]:
        """What the engine has finished; with `block`, at least one batch of what is under way.

        Raises EngineDiedError when the engine is gone.
        """
        if not self._running:
            return
        if block:
            wait(self._running, return_when=FIRST_COMPLETED)
        for future in [future for future in self._running if future.done()]:
            texts = self._running.pop(future)
            self._feed()
            yield from self._checked(texts, future)
        now = time.monotonic()
        self._report.spent("embed", seconds=now - self._busy_since)
        self._busy_since = now

    def _feed(self) -> None:
        if not self._running and self._planned:
            self._busy_since = time.monotonic()
        while self._planned and len(self._running) < self._engine.capabilities.batches_in_flight:
            self._start(self._planned.popleft())

    def _start(self, texts: list[Text]) -> None:
        batch = packed([text.ids for text in texts])
        self._running[self._engine.submit(batch)] = texts
        self._report.count(tokens=batch.tokens)

    def _checked(self, texts: list[Text], future: Future[FloatMatrix]) -> Iterator[Embedded]:
        """Numbers are not trusted: a wrong count or width, NaN, Inf or all zeros refuses the batch.

        A refused batch is split until the bad text stands alone, so that one text costs no other its vector.
        """
        try:
            vectors = future.result()
            error = self._fault(vectors, len(texts))
        except EngineDiedError:
            raise
        except EngineError as failure:
            error = str(failure)
        if not error:
            for text, vector in zip(texts, vectors, strict=True):
                yield Embedded(text, vector)
        elif len(texts) == 1:
            yield Embedded(texts[0], None, error)
        else:
            middle = len(texts) // 2
            self._planned.extendleft([texts[middle:], texts[:middle]])
            self._feed()

    def _fault(self, vectors: FloatMatrix, count: int) -> str:
        if vectors.shape != (count, self._dimensions):
            return f"The engine returned vectors of shape {vectors.shape} instead of {(count, self._dimensions)}."
        if not np.isfinite(vectors).all():
            return "The engine returned a vector that holds NaN or infinity."
        if not vectors.any(axis=1).all():
            return "The engine returned a vector of zeros."
        return ""


def packed(ids: Sequence[IntVector]) -> TokenBatch:
    """Token ids of n texts as one packed batch."""
    offsets = np.zeros(len(ids) + 1, dtype=np.int32)
    np.cumsum([len(one) for one in ids], out=offsets[1:])
    return TokenBatch(np.concatenate(ids).astype(np.int32, copy=False), offsets)
