"""Plans batches: token lengths in, groups of indices out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def plan(lengths: npt.NDArray[np.int32], max_tokens: int, max_texts: int) -> list[npt.NDArray[np.intp]]:
    """Groups the texts, longest first, into batches within a token budget and a number of texts.

    `lengths` is of shape (n,), in tokens. Each index 0..n-1 is in exactly one batch. A text over the budget stands
    alone. Neighbours in length share a batch, so that an engine that pads wastes little, and the longest come first,
    so that a budget that does not fit the memory shows at once.
    """
    order = np.argsort(-lengths, kind="stable")
    batches: list[npt.NDArray[np.intp]] = []
    start = tokens = 0
    for position, length in enumerate(lengths[order].tolist()):
        if position > start and (tokens + length > max_tokens or position - start >= max_texts):
            batches.append(order[start:position])
            start, tokens = position, 0
        tokens += length
    if start < len(order):
        batches.append(order[start:])
    return batches
