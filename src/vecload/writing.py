"""The sink's part of the pipeline: points -> requests by the sink's own limits -> acknowledged -> ledger -> deletes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vecload.contracts import Sink
from vecload.documents import Json, VectorBatch
from vecload.errors import RejectedError
from vecload.ledger import DeadLetter, DocumentRow, Scope
from vecload.planning import PlannedDocument
from vecload.report.run_report import RunReport
from vecload.tracking import ContainerTracker

if TYPE_CHECKING:
    import numpy.typing as npt

COMMIT_DOCUMENTS = 500
COMMIT_SECONDS = 1.0
"""The ledger is told of finished documents in groups: each commit waits for the disk."""
SEND_SECONDS = 2.0
"""A request is sent when it is full, or this old: a slow engine must not keep points from the store for long."""
DELETE_IDS = 1000


@dataclass(slots=True)
class _Write:
    """One point to write; `vector` None: only its payload."""

    document: PlannedDocument
    position: int
    vector: npt.NDArray[np.float32] | None
    reused: bool = False

    @property
    def size(self) -> int:
        """Bytes in a request, from above: the payload as ASCII JSON, the vector in float32, and the id."""
        vector = 0 if self.vector is None else self.vector.nbytes
        return self.document.payload_bytes[self.position] + vector + 64


class Writing:
    """Not thread-safe: one thread puts and settles, the requests run on the sink's number of threads."""

    def __init__(self, sink: Sink, scope: Scope, tracker: ContainerTracker, report: RunReport) -> None:
        self._sink = sink
        self._scope = scope
        self._tracker = tracker
        self._report = report
        self._pool = ThreadPoolExecutor(sink.capabilities.concurrent_writers, thread_name_prefix="vecload-write")
        self._vectors = _Buffer(sink)
        self._payloads = _Buffer(sink)
        self._running: dict[Future[None], list[_Write]] = {}
        self._finished: list[PlannedDocument] = []
        self._committed = time.monotonic()

    def begin(self, documents: Sequence[PlannedDocument]) -> None:
        """Tells the ledger what may come to stand in the sink, before any of it does; then writes what is at hand."""
        begun = [document for document in documents if not document.diff.empty]
        rows = [replace(d.row, state="writing", content_hash=None, stale=d.diff.stale) for d in begun]
        self._scope.begin_writing(rows)
        for document in documents:
            document.unwritten = len(document.diff.embed) + len(document.diff.update)
            self._report.add(self._report.chunks, unchanged=document.diff.unchanged)
            for position in document.diff.update:
                self._put(self._payloads, _Write(document, position, None))
            for position, vector in document.vectors.items():
                self._put(self._vectors, _Write(document, position, vector, reused=True))
            document.vectors = {}
            if not document.unwritten:
                self._finished.append(document)

    def put(self, document: PlannedDocument, position: int, vector: npt.NDArray[np.float32], *, reused: bool) -> None:
        self._put(self._vectors, _Write(document, position, vector, reused))

    def give_up(self, document: PlannedDocument, position: int, stage: str, reason: str, message: str) -> None:
        """This point cannot be had. The document keeps its old points beside what else of it is written."""
        document.failed = True
        letter = DeadLetter(document.row.key, document.container.key, stage, reason, message, chunk=position)
        self._scope.bury([letter])
        self._written(document)

    def settle(self, *, block: bool) -> None:
        """Takes acknowledgements. With `block`, sends what is buffered and waits until all is acknowledged.

        Raises SinkError when the sink failed for good.
        """
        if block:
            self._send(self._vectors)
            self._send(self._payloads)
            with self._report.waiting("upsert"):
                while self._running:
                    wait(self._running, return_when=FIRST_COMPLETED)
                    self._acknowledge()
            self._commit()
        else:
            for buffer in (self._vectors, self._payloads):
                if buffer.age > SEND_SECONDS:
                    self._send(buffer)
            self._acknowledge()
            late = time.monotonic() - self._committed > COMMIT_SECONDS
            if len(self._finished) >= COMMIT_DOCUMENTS or (self._finished and late):
                self._commit()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    # ------------------------------------------------------------ requests

    def _put(self, buffer: _Buffer, write: _Write) -> None:
        if not buffer.fits(write):
            self._send(buffer)
        buffer.add(write)

    def _send(self, buffer: _Buffer) -> None:
        writes = buffer.take()
        if not writes:
            return
        # Two requests for each writer: one on its way, one ready.
        while len(self._running) >= 2 * self._sink.capabilities.concurrent_writers:
            with self._report.waiting("upsert"):
                wait(self._running, return_when=FIRST_COMPLETED)
            self._acknowledge()
        self._submit(writes)

    def _submit(self, writes: list[_Write]) -> None:
        self._running[self._pool.submit(self._write, writes)] = writes

    def _write(self, writes: list[_Write]) -> None:
        with self._report.working("upsert"):
            ids = [w.document.ids[w.position] for w in writes]
            payloads = [w.document.payloads[w.position] for w in writes]
            vectors = [w.vector for w in writes if w.vector is not None]
            if vectors:
                self._sink.upsert(VectorBatch(ids, np.stack(vectors), payloads))
            elif self._sink.capabilities.payload_update:
                self._sink.update_payload(ids, payloads)
            else:
                self._rewrite(ids, payloads)

    def _rewrite(self, ids: Sequence[bytes], payloads: Sequence[dict[str, Json]]) -> None:
        """A payload update for a store that has none: with the vectors that stand there."""
        found = {point.id: point.vector for point in self._sink.fetch(ids, vectors=True, payloads=False)}
        here = [(i, p, found[i]) for i, p in zip(ids, payloads, strict=True) if found.get(i) is not None]
        if here:
            vectors = np.stack([vector for _, _, vector in here if vector is not None])
            self._sink.upsert(VectorBatch([i for i, _, _ in here], vectors, [p for _, p, _ in here]))

    # ------------------------------------------------------------ acknowledgements

    def _acknowledge(self) -> None:
        for future in [future for future in self._running if future.done()]:
            writes = self._running.pop(future)
            try:
                future.result()
            except RejectedError as error:
                self._split(writes, str(error))
                continue
            for write in writes:
                self._count(write)
                self._written(write.document)

    def _split(self, writes: list[_Write], error: str) -> None:
        """A refused request is halved until the bad point stands alone."""
        if len(writes) == 1:
            self.give_up(writes[0].document, writes[0].position, "upsert", "rejected", error)
            return
        middle = len(writes) // 2
        self._submit(writes[:middle])
        self._submit(writes[middle:])

    def _count(self, write: _Write) -> None:
        if write.vector is None:
            self._report.add(self._report.chunks, payload_updated=1)
        else:
            self._report.add(self._report.chunks, upserted=1, reused=int(write.reused), embedded=int(not write.reused))

    def _written(self, document: PlannedDocument) -> None:
        document.unwritten -= 1
        if not document.unwritten:
            self._finished.append(document)

    # ------------------------------------------------------------ ledger and stale points

    def _commit(self) -> None:
        """Records the finished documents, then deletes the points that they no longer have."""
        finished, self._finished = self._finished, []
        self._committed = time.monotonic()
        done = [document for document in finished if not document.failed]
        rows = [replace(d.row, state="deleting" if d.diff.stale else "current", stale=d.diff.stale) for d in done]
        self._scope.finish_writing(rows)
        delete_stale(self._sink, self._scope, [row for row in rows if row.stale], self._report)
        for document in finished:
            self._report.count(documents_done=1)
            if document.failed:
                self._report.add(self._report.documents, failed=1)
                document.container.document_failed(transient=False)
                continue
            kind = "new" if document.is_new else "unchanged" if document.diff.empty else "changed"
            self._report.add(self._report.documents, **{kind: 1})
            document.container.document_done()
        self._tracker.flush()


class _Buffer:
    """Writes of one kind on their way into one request."""

    def __init__(self, sink: Sink) -> None:
        self._limits = sink.capabilities
        self._writes: list[_Write] = []
        self._bytes = 0
        self._begun = 0.0

    @property
    def age(self) -> float:
        """Seconds since its first write; 0 when it is empty."""
        return time.monotonic() - self._begun if self._writes else 0.0

    def fits(self, write: _Write) -> bool:
        return (
            len(self._writes) < self._limits.max_request_points
            and self._bytes + write.size <= self._limits.max_request_bytes
        )

    def add(self, write: _Write) -> None:
        if not self._writes:
            self._begun = time.monotonic()
        self._writes.append(write)
        self._bytes += write.size

    def take(self) -> list[_Write]:
        writes, self._writes, self._bytes = self._writes, [], 0
        return writes


def delete_stale(sink: Sink, scope: Scope, rows: Sequence[DocumentRow], report: RunReport) -> None:
    """Deletes the stale points of these documents, and tells the ledger once that is acknowledged."""
    ids = [point for row in rows for point in row.stale]
    with report.working("delete"):
        for start in range(0, len(ids), DELETE_IDS):
            sink.delete(ids[start : start + DELETE_IDS])
    scope.deleted(rows)
    report.add(report.chunks, deleted=len(ids))
