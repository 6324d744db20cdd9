"""Follows each container from its reading to the last acknowledgement of its documents."""

from __future__ import annotations

import threading
from collections import Counter

from vecload.documents import Container
from vecload.ledger import ContainerRow, Scope


class ContainerTracker:
    """Collects the containers that are through, and tells the ledger in groups."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._lock = threading.Lock()
        self._through: list[ContainerProgress] = []
        self.incomplete = 0
        """Containers of several documents that were not read to their end."""

    def begin(self, container: Container) -> ContainerProgress:
        return ContainerProgress(container, self)

    def through(self, progress: ContainerProgress) -> None:
        with self._lock:
            self._through.append(progress)

    def flush(self) -> None:
        """Records which containers were read to their end, and which need no reading until their tags change."""
        with self._lock:
            through, self._through = self._through, []
        if not through:
            return
        self.incomplete += sum(p.incomplete and p.several for p in through)
        self._scope.containers_read([p.key for p in through if not p.incomplete])
        # What failed for a passing reason is read again by the next run, whatever its tag says.
        self._scope.containers_done([p.row() for p in through if not p.retry])


class ContainerProgress:
    """One container in this run. Thread-safe."""

    def __init__(self, container: Container, tracker: ContainerTracker) -> None:
        self.key = container.key
        self.incomplete = False
        """It was not read to its end, so nothing is known of what it did not yield."""
        self.retry = False
        self._tag = container.tag
        self._tracker = tracker
        self._lock = threading.Lock()
        self._open = 1  # the reading itself
        self._documents = 0
        self._skipped: Counter[str] = Counter()

    def item_read(self) -> None:
        with self._lock:
            self._open += 1

    def document_done(self) -> None:
        """A document is in the sink as it should be."""
        with self._lock:
            self._documents += 1
        self._close_one()

    def skipped(self, reason: str) -> None:
        with self._lock:
            self._skipped[reason] += 1
        self._close_one()

    def document_failed(self, *, transient: bool, whole: bool = False) -> None:
        """A document, or with `whole` the container itself, became a dead letter."""
        with self._lock:
            self.retry |= transient
            self.incomplete |= whole
        self._close_one()

    def reading_ended(self) -> None:
        self._close_one()

    @property
    def several(self) -> bool:
        return self._documents > 0

    def row(self) -> ContainerRow:
        return ContainerRow(self.key, self._tag, self._documents, dict(self._skipped))

    def _close_one(self) -> None:
        with self._lock:
            self._open -= 1
            through = self._open == 0
        if through:
            self._tracker.through(self)
