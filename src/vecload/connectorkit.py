"""What connectors share: retrying, names, ids. Importing it loads no driver.

A sink wraps each request in :meth:`Retrier.call` and tells the errors of its driver apart with one function, which
returns a :class:`Fault`. So how long vecload waits for a store that is down is decided in one place.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar
from urllib.parse import urlsplit, urlunsplit

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_any,
    stop_before_delay,
    stop_when_event_set,
    wait_random_exponential,
)

from vecload.documents import VectorBatch
from vecload.errors import RejectedError, SinkError, UsageError

T = TypeVar("T")

_log = logging.getLogger("vecload")
_backoff = wait_random_exponential(multiplier=0.4, max=30.0)

PATIENCE = 600.0
"""Seconds for which a request to a store that worked before is tried again."""
FIRST_PATIENCE = 5.0
"""The same before anything worked: a wrong address should be told within seconds, not after ten minutes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What an error of a store means.

    `transient`: the same request may succeed later. `rejected`: the store refuses these points, others may pass.
    `permanent`: nothing will pass until a person acts. `message` is one sentence without secrets; `retry_after` is
    what the store itself asked for, in seconds.
    """

    kind: Literal["transient", "permanent", "rejected"]
    message: str
    retry_after: float | None = None


class Retrier:
    """Calls a store, tries again after transient faults, and turns the last error into one for a person.

    `classify` returns None for an exception that does not come from the store; that one passes through unchanged.
    Safe to use from several threads. After :meth:`stop` nothing is tried again and whoever waits gives up at once.
    """

    def __init__(
        self,
        classify: Callable[[Exception], Fault | None],
        patience: float = PATIENCE,
        first_patience: float = FIRST_PATIENCE,
    ) -> None:
        self._classify = classify
        self._patience = patience
        self._first_patience = first_patience
        self._worked = False
        self._stopped = threading.Event()

    def call(self, request: Callable[[], T]) -> T:
        """The result of `request`. Raises SinkError or RejectedError."""
        retrying = Retrying(
            retry=retry_if_exception(self._is_transient),
            wait=self._wait,
            stop=stop_any(
                stop_when_event_set(self._stopped),
                stop_before_delay(self._patience if self._worked else self._first_patience),
            ),
            sleep=sleep_using_event(self._stopped),
            before_sleep=self._report,
            reraise=True,
        )
        try:
            result = retrying(request)
        except Exception as error:
            fault = self._classify(error)
            if fault is None:
                raise
            raise (RejectedError if fault.kind == "rejected" else SinkError)(fault.message) from error
        self._worked = True
        return result

    def stop(self) -> None:
        self._stopped.set()

    def _is_transient(self, error: BaseException) -> bool:
        fault = self._classify(error) if isinstance(error, Exception) else None
        return fault is not None and fault.kind == "transient"

    def _fault(self, state: RetryCallState) -> Fault | None:
        error = state.outcome.exception() if state.outcome else None
        return self._classify(error) if isinstance(error, Exception) else None

    def _wait(self, state: RetryCallState) -> float:
        fault = self._fault(state)
        return max(_backoff(state), (fault.retry_after or 0.0) if fault else 0.0)

    def _report(self, state: RetryCallState) -> None:
        fault = self._fault(state)
        # The first wait of a request is worth a line; the following ones only for who asked for more.
        level = logging.WARNING if state.attempt_number == 1 else logging.INFO
        _log.log(level, "%s Trying again in %.1f s.", fault.message if fault else "", state.upcoming_sleep)


def redact_url(url: str) -> str:
    """The URL without user, password, query and fragment: fit for messages and the ledger."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def check_collection_name(
    name: str, *, store: str, max_bytes: int, forbidden: str = "\0", reserved: Iterable[str] = ()
) -> None:
    """Raises UsageError unless the store can hold a collection of this name, unchanged."""
    if not name:
        raise UsageError(f"The collection's name is empty; {store} needs one (--collection NAME).")
    if name in reserved:
        raise UsageError(
            f"The collection's name {name!r} is taken by vecload's own records in {store}; choose another."
        )
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise UsageError(f"The collection's name {name!r} is not valid Unicode; choose another.") from None
    if size > max_bytes:
        raise UsageError(
            f"The collection's name {name[:20]!r}… has {size} bytes and {store} takes at most {max_bytes}; "
            "choose a shorter one."
        )
    bad = sorted({c for c in name if c in forbidden})
    if bad:
        raise UsageError(
            f"The collection's name {name!r} holds {', '.join(map(repr, bad))}, which {store} does not take; "
            "choose another."
        )


def id_to_uuid(point_id: bytes) -> str:
    """The 16 bytes of a point id as UUID text."""
    return str(uuid.UUID(bytes=point_id))


def uuid_to_id(text: str) -> bytes:
    """The 16 bytes of a UUID text."""
    return uuid.UUID(text).bytes


def last_positions(ids: Sequence[bytes]) -> list[int]:
    """The positions to keep so that each id stands once and the last one wins, in order."""
    return sorted({point_id: position for position, point_id in enumerate(ids)}.values())


def without_doubles(batch: VectorBatch) -> VectorBatch:
    """The batch with each id once, the last of equal ids: stores disagree on what a double within a request does."""
    keep = last_positions(batch.ids)
    if len(keep) == len(batch):
        return batch
    return VectorBatch([batch.ids[i] for i in keep], batch.vectors[keep], [batch.payloads[i] for i in keep])
