"""The embedded Qdrant folder as a user meets it, beside the engine of `qdrant-edge-py`: write, open again, search.

    pip install qdrant-edge-py
    python benchmarks/qdrant_folder.py 10000 50000

Points of 384 dimensions with about 1,000 characters of text and five metadata fields, vectors ready, 1,000 a request.
Each measurement runs in a process of its own, so the memory is its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vecload.documents import Json, VectorBatch, point_id, text_hash
from vecload.testing.sink_kit import make_payload, make_record
from vecload_connectors.sinks.qdrant import QDRANT

DIMENSIONS = 384
BATCH = 1_000
SEARCHES = 20


def batches(points: int) -> Iterator[VectorBatch]:
    random = np.random.default_rng(0)
    fields: dict[str, Json] = {"year": 2026, "language": "en", "weight": 2.5, "draft": True, "day": "2026-01-01"}
    for start in range(0, points, BATCH):
        texts = [f"{i} " + "words of a chunk " * 58 for i in range(start, min(start + BATCH, points))]
        vectors = random.normal(size=(len(texts), DIMENSIONS)).astype(np.float32)
        ids = [point_id("docs", "guide.md", text_hash(text), 0) for text in texts]
        yield VectorBatch(ids, vectors, [make_payload(text, metadata=fields) for text in texts])


def folder(points: int, path: Path) -> tuple[float, float, float]:
    """Seconds to write, to open again, and for one search."""
    warnings.simplefilter("ignore")
    settings = QDRANT.settings(url=f"qdrant:{path}")
    sink = QDRANT.open(settings, "docs")
    sink.create(make_record(DIMENSIONS))
    write = 0.0
    for batch in batches(points):
        start = time.monotonic()
        sink.upsert(batch)
        write += time.monotonic() - start
    sink.close()
    sink = QDRANT.open(settings, "docs")
    start = time.monotonic()
    assert sink.count() == points
    again = time.monotonic() - start
    start = time.monotonic()
    for _ in range(SEARCHES):
        sink.search(batch.vectors[0], 10)
    search = (time.monotonic() - start) / SEARCHES
    sink.close()
    return write, again, search


def edge(points: int, path: Path) -> tuple[float, float, float]:
    import qdrant_edge as q

    path.mkdir()
    vectors = q.EdgeVectorParams(size=DIMENSIONS, distance=q.Distance.Cosine)
    shard = q.EdgeShard.create(str(path), q.EdgeConfig(vectors=vectors))
    write = 0.0
    for batch in batches(points):
        start = time.monotonic()
        rows: list[Any] = [
            q.Point(id=uuid.UUID(bytes=i), vector=vector, payload=dict(payload))
            for i, vector, payload in zip(batch.ids, batch.vectors.tolist(), batch.payloads, strict=True)
        ]
        shard.update(q.UpdateOperation.upsert_points(rows))
        write += time.monotonic() - start
    start = time.monotonic()
    shard.flush()
    write += time.monotonic() - start
    shard.close()
    start = time.monotonic()
    shard = q.EdgeShard.load(str(path))
    assert shard.count(q.CountRequest(exact=True)) == points
    again = time.monotonic() - start
    start = time.monotonic()
    query = q.QueryRequest(query=q.Query.Nearest(batch.vectors[0].tolist()), limit=10, with_payload=True)
    for _ in range(SEARCHES):
        shard.query(query)
    search = (time.monotonic() - start) / SEARCHES
    shard.close()
    return write, again, search


def main() -> None:
    if sys.argv[1] in ("folder", "edge"):
        kind, points = sys.argv[1], int(sys.argv[2])
        with tempfile.TemporaryDirectory() as path:
            write, again, search = (folder if kind == "folder" else edge)(points, Path(path) / "vectors")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"| {kind} | {points:,} | {write:.1f} s | {again:.1f} s | {search * 1000:.0f} ms | {memory:.1f} GB |")
        return
    print("| | points | write | open again | one search | memory |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    for count in sys.argv[1:]:
        for kind in ("folder", "edge"):
            subprocess.run([sys.executable, __file__, kind, count], check=True)


if __name__ == "__main__":
    main()
