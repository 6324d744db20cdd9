from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vecload.batching import plan

LENGTHS = st.lists(st.integers(1, 3000), max_size=300)


@given(LENGTHS, st.integers(1, 5000), st.integers(1, 50))
def test_each_text_once_and_no_batch_over_its_limits(lengths: list[int], max_tokens: int, max_texts: int) -> None:
    batches = plan(np.array(lengths, dtype=np.int32), max_tokens, max_texts)
    assert sorted(i for batch in batches for i in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= max_texts
        assert sum(lengths[i] for i in batch) <= max_tokens or len(batch) == 1


@given(LENGTHS)
def test_the_longest_come_first(lengths: list[int]) -> None:
    batches = plan(np.array(lengths, dtype=np.int32), 4000, 16)
    planned = [lengths[i] for batch in batches for i in batch.tolist()]
    assert planned == sorted(lengths, reverse=True)


def test_a_batch_is_filled_before_the_next_begins() -> None:
    assert [len(batch) for batch in plan(np.full(10, 100, dtype=np.int32), 400, 100)] == [4, 4, 2]
