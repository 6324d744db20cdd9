"""Building the index that a first load left out, and telling when it is done.

From the server's source, version 1.19: `local_shard_status` in lib/collection/src/shards/local_shard/mod.rs gives
`red` when an operation or an optimizer failed, `yellow` while segments are optimized or wait for it, `grey` when they
wait and nothing has started the optimizers since a restart (they are not started by themselves then; any update of
the collection's parameters does it: documentation, Collections, "Grey collection status"), else `green`. Another `m`
makes every segment that is due for an index one that waits, so the status is not green between the request and the end
of the work. Segments under `indexing_threshold` (kB of vectors) get no graph and are searched whole, green or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vecload.errors import SinkError

if TYPE_CHECKING:
    from qdrant_client import models

    from .settings import QdrantSettings

_LARGEST_DEFAULT_THRESHOLD = 20_000
"""kB; what versions take as `indexing_threshold` when none is set: 20,000, later 10,000."""
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


def build(
    call: Callable[[Callable[[Any], Any]], Any],
    target: str,
    settings: QdrantSettings,
    dimensions: int,
    stopped: threading.Event,
) -> None:
    """Sets the real `m` and waits. Raises SinkError when the wait runs out or an optimizer failed."""
    from qdrant_client import models

    hnsw = models.HnswConfigDiff(m=settings.m, ef_construct=settings.ef_construct)
    call(lambda client: client.update_collection(target, hnsw_config=hnsw))
    wake = models.OptimizersConfigDiff()
    end = time.monotonic() + settings.index_timeout
    pause = _FIRST_PAUSE
    greens = 0
    while True:
        info: models.CollectionInfo = call(lambda client: client.get_collection(target))
        status = info.status
        if status == models.CollectionStatus.RED:
            raise SinkError(f"Qdrant could not build the index of {target!r}: {_reason(info)}; see the server's log.")
        greens = greens + 1 if status == models.CollectionStatus.GREEN and enough_indexed(info, dimensions) else 0
        # Twice in a row: the nodes of a cluster take up the new parameters one after the other.
        if greens == 2:
            return
        if status == models.CollectionStatus.GREY:
            call(lambda client: client.update_collection(target, optimizers_config=wake))
        if time.monotonic() + pause > end or stopped.wait(pause):
            raise SinkError(
                f"Qdrant has indexed {info.indexed_vectors_count or 0} of about {info.points_count or 0} points of "
                f"{target!r} (status {status.value}) and goes on by itself; all points are written and can be "
                "searched: run the same command again to wait for the rest (sink.index_timeout sets for how long)."
            )
        pause = min(2 * pause, _LONGEST_PAUSE)


def enough_indexed(info: models.CollectionInfo, dimensions: int) -> bool:
    """Whether what is not indexed fits into segments that are too small for an index."""
    threshold = info.config.optimizer_config.indexing_threshold
    if threshold == 0:  # the server's operator switched indexing off
        return True
    kilobytes = _LARGEST_DEFAULT_THRESHOLD if threshold is None else threshold
    small = (info.segments_count or 1) * (kilobytes * 1024 // (4 * dimensions))
    return (info.points_count or 0) - (info.indexed_vectors_count or 0) <= small


def _reason(info: models.CollectionInfo) -> str:
    error = getattr(info.optimizer_status, "error", None)
    return " ".join(str(error).split())[:300] if error else "the collection's status is red"
