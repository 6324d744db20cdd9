"""Numbers are checked, and one bad text costs no other its vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np
import pytest

from vecload.contracts import EngineCapabilities
from vecload.documents import TokenBatch
from vecload.embedding import Embedded, Embedding, Text, Window
from vecload.errors import EngineDiedError, EngineError
from vecload.report.run_report import RunReport

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix

WIDTH = 4
BAD = 666


class ScriptedEngine:
    """Answers each batch at once with what a function makes of it."""

    capabilities = EngineCapabilities(max_tokens_per_batch=64, max_texts_per_batch=8)

    def __init__(self, answer: Callable[[TokenBatch], FloatMatrix]) -> None:
        self._answer = answer
        self.batches: list[TokenBatch] = []

    def start(self) -> None: ...

    def submit(self, batch: TokenBatch) -> Future[FloatMatrix]:
        self.batches.append(batch)
        future: Future[FloatMatrix] = Future()
        try:
            future.set_result(self._answer(batch))
        except EngineError as error:
            future.set_exception(error)
        return future

    def close(self) -> None: ...


def sums(batch: TokenBatch) -> FloatMatrix:
    return np.array([[ids.sum()] * WIDTH for ids in batch], dtype=np.float32)


def embed(engine: ScriptedEngine, texts: Iterable[list[int]]) -> list[Embedded]:
    embedding = Embedding(engine, WIDTH, RunReport())
    window = Window(10**6)
    window.texts = {str(n): Text(np.array(ids, dtype=np.int32)) for n, ids in enumerate(texts)}
    embedding.submit(window)
    found: list[Embedded] = []
    while not embedding.idle:
        found += embedding.collect(block=True)
    return found


def test_each_text_gets_its_own_vector() -> None:
    texts = [[n] * (n % 7 + 1) for n in range(1, 60)]
    engine = ScriptedEngine(sums)
    found = embed(engine, texts)
    assert len(found) == 59
    assert all(one.vector is not None and one.vector[0] == one.text.ids.sum() for one in found)
    assert all(batch.tokens <= 64 and len(batch) <= 8 for batch in engine.batches)


def nan_for_bad(batch: TokenBatch) -> FloatMatrix:
    vectors = sums(batch)
    vectors[[BAD in ids for ids in batch]] = np.nan
    return vectors


def zeros_for_bad(batch: TokenBatch) -> FloatMatrix:
    vectors = sums(batch)
    vectors[[BAD in ids for ids in batch]] = 0
    return vectors


def fewer_with_bad(batch: TokenBatch) -> FloatMatrix:
    return sums(batch)[: len(batch) - any(BAD in ids for ids in batch)]


def narrower_with_bad(batch: TokenBatch) -> FloatMatrix:
    return sums(batch)[:, : WIDTH - any(BAD in ids for ids in batch)]


def failure_with_bad(batch: TokenBatch) -> FloatMatrix:
    if any(BAD in ids for ids in batch):
        raise EngineError("The engine refused a text.")
    return sums(batch)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (nan_for_bad, "NaN"),
        (zeros_for_bad, "zeros"),
        (fewer_with_bad, "shape"),
        (narrower_with_bad, "shape"),
        (failure_with_bad, "refused"),
    ],
)
def test_the_bad_text_stands_alone_in_the_end(answer: Callable[[TokenBatch], FloatMatrix], message: str) -> None:
    texts = [[n, n] for n in range(1, 30)] + [[BAD]]
    found = embed(ScriptedEngine(answer), texts)
    [bad] = [one for one in found if one.vector is None]
    assert bad.text.ids.tolist() == [BAD]
    assert message in bad.error
    assert len(found) == 30


def test_an_engine_that_died_blames_no_text() -> None:
    def die(batch: TokenBatch) -> FloatMatrix:
        raise EngineDiedError("The engine died.")

    with pytest.raises(EngineDiedError):
        embed(ScriptedEngine(die), [[1], [2]])
