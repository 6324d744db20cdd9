"""Acknowledges every write and keeps nothing but a count, so that what remains to be measured is vecload itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from vecload.contracts import CollectionRecord, SinkCapabilities
from vecload.documents import Hit, Json, Point, VectorBatch

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix

CAPABILITIES = SinkCapabilities(max_request_bytes=16 << 20, max_request_points=1_000, concurrent_writers=4)


class NullSink:
    capabilities = CAPABILITIES

    def __init__(self, collection: str) -> None:
        self.id = f"null:#{collection}"
        self._lock = threading.Lock()
        self._upserted = 0

    def inspect(self) -> CollectionRecord | None:
        return None

    def create(self, record: CollectionRecord) -> None:
        pass

    def save_record(self, record: CollectionRecord) -> None:
        pass

    def build_index(self) -> None:
        """Nothing to do: `create` leaves nothing out."""

    def upsert(self, batch: VectorBatch) -> None:
        with self._lock:
            self._upserted += len(batch)

    def update_payload(self, ids: Sequence[bytes], payloads: Sequence[Mapping[str, Json]]) -> None:
        pass

    def delete(self, ids: Sequence[bytes]) -> None:
        pass

    def fetch(self, ids: Sequence[bytes], *, vectors: bool = False, payloads: bool = True) -> list[Point]:
        return []

    def scan(self, source: str | None = None, document: str | None = None) -> Iterator[Point]:
        return iter(())

    def count(self) -> int:
        """How many points were upserted, not how many are kept."""
        return self._upserted

    def search(self, vector: FloatMatrix, limit: int, filter: Mapping[str, Json] | None = None) -> list[Hit]:
        return []

    def close(self) -> None:
        pass
