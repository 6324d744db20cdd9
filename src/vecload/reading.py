"""The first half of the pipeline, on threads of its own: list -> diff against the ledger -> read -> plan.

Bounded queues between the steps keep memory flat: a slow engine makes the readers wait, and so the listing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from vecload.contracts import Source
from vecload.documents import Container, Document, Problem, Skipped, key_text
from vecload.errors import SourceError
from vecload.ledger import DeadLetter, Scope
from vecload.planning import PlannedDocument, Planner, Read
from vecload.report.run_report import RunReport
from vecload.tracking import ContainerProgress, ContainerTracker

CONTAINERS_AHEAD = 256
DOCUMENTS_AHEAD = 512
PLANS_AHEAD = 4
PLANNERS = max(2, min(8, os.cpu_count() or 2))
READ_BYTES = 256 << 20
"""Content read and not planned yet, beside what each reader holds: a bucket of large files must fit the memory."""
BATCH_DOCUMENTS = 256
BATCH_BYTES = 4 << 20
"""A batch of documents is planned together: one look into the ledger, one call of the tokenizer."""


T = TypeVar("T")


class Stopped(Exception):
    """The run is ending early; whoever waits on a queue gives up."""


class Reading:
    """Runs from `start` to its end, or to `stop`. `plans` yields what it finds."""

    def __init__(
        self,
        source: Source,
        scope: Scope,
        planner: Planner,
        tracker: ContainerTracker,
        report: RunReport,
        *,
        trust_tags: bool,
        fingerprint: str,
        own_files: Sequence[Path],
    ) -> None:
        """`trust_tags` False reads every container, whatever its tag says.

        The content fingerprint joins each tag: with other chunk settings every container has changed. `own_files` are
        what vecload itself writes (a sink's folder, the ledger); a source around them does not list them.
        """
        self.complete = False
        """The listing ended without an error or a problem: what it did not yield is not there."""
        self._source = source
        self._scope = scope
        self._planner = planner
        self._tracker = tracker
        self._report = report
        self._trust_tags = trust_tags
        self._fingerprint = hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
        self._own_keys = _keys_below(source.capabilities.root, own_files)
        self._containers: queue.Queue[Container | None] = queue.Queue(CONTAINERS_AHEAD)
        self._read: queue.Queue[tuple[Read, ContainerProgress] | None] = queue.Queue(DOCUMENTS_AHEAD)
        self._plans: queue.Queue[list[PlannedDocument] | None] = queue.Queue(PLANS_AHEAD)
        self._unplanned = ByteBudget(READ_BYTES)
        self._stop = threading.Event()
        self._problems = False
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        readers, planners = self._source.capabilities.concurrent_reads, PLANNERS
        self._spawn("list", 1, self._list_all, self._containers, readers)
        self._spawn("read", readers, self._read_all, self._read, planners)
        self._spawn("plan", planners, self._plan_all, self._plans, 1)

    def plans(self, patience: float) -> Iterator[list[PlannedDocument]]:
        """What must be done, as it is found; an empty list when nothing new came within `patience` seconds."""
        while True:
            try:
                plan = self._plans.get(timeout=patience)
            except queue.Empty:
                yield []
                continue
            if plan is None:
                return
            yield plan

    def check(self) -> None:
        """Raises what ended the reading early, if anything did."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Reads nothing more, and waits for the threads to end."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    # ------------------------------------------------------------ the steps

    def _list_all(self) -> None:
        listing = iter(self._source.list())
        try:
            while not self._stop.is_set():
                with self._report.working("list"):
                    group = list(islice(listing, BATCH_DOCUMENTS))
                if not group:
                    self.complete = not self._problems
                    self._report.listing_complete = True
                    return
                self._choose(group)
        except SourceError as error:
            # What was listed before is still brought in; without a whole listing nothing is deleted.
            self._error = error

    def _choose(self, group: Sequence[Container | Skipped | Problem]) -> None:
        group = [
            self._tagged(item) if isinstance(item, Container) else item for item in group if not self._is_own(item)
        ]
        containers = [item for item in group if isinstance(item, Container)]
        known = self._scope.containers([container.key for container in containers])
        for item in group:
            if isinstance(item, Skipped):
                self._report.add(self._report.documents, listed=1)
                self._report.skip(item.reason)
                self._report.count(documents_done=1)
            elif isinstance(item, Problem):
                self._problems = True
                key = key_text(item.key)
                self._scope.bury([DeadLetter(key, key, "list", item.reason, item.message, item.transient)])
                self._report.add(self._report.documents, failed=1)
            else:
                row = known.get(item.key)
                if row is not None and item.tag is not None and row.tag == item.tag and self._trust_tags:
                    skipped = sum(row.skipped.values())
                    self._report.add(self._report.documents, listed=row.documents + skipped, unchanged=row.documents)
                    self._report.count(documents_done=row.documents + skipped)
                    for reason, count in row.skipped.items():
                        self._report.skip(reason, count)
                else:
                    with self._report.waiting("list"):
                        self._put(self._containers, item)

    def _tagged(self, container: Container) -> Container:
        return replace(container, tag=container.tag and f"{container.tag} {self._fingerprint}")

    def _is_own(self, item: Container | Skipped | Problem) -> bool:
        key = str(item.key)
        return any(key == own or key.startswith(f"{own}/") for own in self._own_keys)

    def _read_all(self) -> None:
        while (container := self._get(self._containers)) is not None:
            progress = self._tracker.begin(container)
            items = iter(self._source.read(container))
            while True:
                with self._report.working("read"):
                    item = next(items, None)
                if item is None:
                    break
                progress.item_read()
                with self._report.waiting("read"):
                    self._take_room(_size(item))
                    self._put(self._read, (item, progress))
            progress.reading_ended()

    def _plan_all(self) -> None:
        ended = False
        while not ended:
            with self._report.waiting("plan"):
                first = self._get(self._read)
            if first is None:
                return
            batch, size = [first], _size(first[0])
            del first
            while len(batch) < BATCH_DOCUMENTS and size < BATCH_BYTES:
                try:
                    item = self._read.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    ended = True
                    break
                batch.append(item)
                size += _size(item[0])
            planned = self._planner.plan(batch)
            del batch
            self._unplanned.give_back(size)
            if planned:
                self._put(self._plans, planned)

    # ------------------------------------------------------------ threads and queues

    def _spawn(self, name: str, threads: int, work: Callable[[], None], output: queue.Queue[Any], readers: int) -> None:
        """Runs a step on `threads` threads; when the last of them ends, each of the next step's is told so."""
        running = threads
        lock = threading.Lock()

        def run() -> None:
            nonlocal running
            try:
                work()
            except Stopped:
                pass
            except BaseException as error:
                self._error = self._error or error
                self._stop.set()
            with lock:
                running -= 1
                last = running == 0
            if last:
                for _ in range(readers):
                    self._put_end(output)

        for number in range(threads):
            thread = threading.Thread(target=run, name=f"vecload-{name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _put(self, target: queue.Queue[T | None], item: T) -> None:
        while not self._stop.is_set():
            try:
                target.put(item, timeout=0.2)
                return
            except queue.Full:
                continue
        raise Stopped

    def _take_room(self, size: int) -> None:
        while not self._unplanned.take(size, timeout=0.2):
            if self._stop.is_set():
                raise Stopped

    def _put_end(self, target: queue.Queue[Any]) -> None:
        while True:
            try:
                target.put(None, timeout=0.2)
                return
            except queue.Full:
                if self._stop.is_set():  # nobody takes from it any more: make room
                    with contextlib.suppress(queue.Empty):
                        target.get_nowait()

    def _get(self, origin: queue.Queue[T | None]) -> T | None:
        while not self._stop.is_set():
            try:
                return origin.get(timeout=0.2)
            except queue.Empty:
                continue
        raise Stopped


class ByteBudget:
    """So many bytes at a time, and one item of any size when there is no other."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = threading.Condition()

    def take(self, size: int, timeout: float) -> bool:
        """Whether there was room within `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._used or self._used + size <= self._limit, timeout):
                return False
            self._used += size
            return True

    def give_back(self, size: int) -> None:
        with self._changed:
            self._used -= size
            self._changed.notify_all()


def _keys_below(root: Path | None, files: Sequence[Path]) -> list[str]:
    return [] if root is None else [str(file.relative_to(root)) for file in files if file.is_relative_to(root)]


def _size(item: Read) -> int:
    return len(item.content) if isinstance(item, Document) else 0
