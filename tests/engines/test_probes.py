"""The probe vectors: kept as text, compared by cosine."""

from __future__ import annotations

import numpy as np
import pytest

from vecload import probes


def test_vectors_come_back_to_the_bit() -> None:
    vectors = np.random.default_rng(1).normal(size=(8, 12)).astype(np.float32)
    assert (probes.decode(probes.encode(vectors), 12) == vectors).all()
    with pytest.raises(ValueError, match="reshape"):
        probes.decode(probes.encode(vectors), 13)


def test_a_small_difference_agrees_and_one_foreign_vector_does_not() -> None:
    vectors = np.random.default_rng(1).normal(size=(8, 384)).astype(np.float32)
    assert probes.agree(vectors, vectors * 3 + np.float32(0.01))
    other = vectors.copy()
    other[5] = -other[5]
    assert not probes.agree(vectors, other)
    assert not probes.agree(vectors, vectors[:, :300])


def test_a_vector_that_is_not_finite_never_agrees() -> None:
    vectors = np.ones((8, 4), dtype=np.float32)
    broken = vectors.copy()
    broken[0, 0] = np.nan
    assert not probes.agree(vectors, broken)
    assert not probes.agree(broken, broken)


def test_there_are_eight_texts_that_never_change() -> None:
    assert len(set(probes.TEXTS)) == 8
