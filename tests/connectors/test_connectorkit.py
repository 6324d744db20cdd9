"""What connectors share."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from vecload.connectorkit import Fault, Retrier, id_to_uuid, redact_url, uuid_to_id, without_doubles
from vecload.documents import VectorBatch
from vecload.errors import RejectedError, SinkError
from vecload.testing.sink_kit import make_batch


class StoreError(Exception):
    """Carries the fault that the store means by it."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


def classify(error: Exception) -> Fault | None:
    return error.fault if isinstance(error, StoreError) else None


def answers(*faults: Fault | None) -> tuple[Callable[[], str], list[Fault | None]]:
    """A request that fails with each of the faults in turn, and what is left of them."""
    left = list(faults)

    def request() -> str:
        fault = left.pop(0)
        if fault is not None:
            raise StoreError(fault)
        return "done"

    return request, left


DOWN = Fault("transient", "The store is down.")


def test_transient_faults_are_tried_again() -> None:
    request, left = answers(DOWN, DOWN, None)
    assert Retrier(classify).call(request) == "done"
    assert left == []


@pytest.mark.parametrize(("kind", "error"), [("permanent", SinkError), ("rejected", RejectedError)])
def test_other_faults_are_not(kind: str, error: type[SinkError]) -> None:
    request, left = answers(Fault(kind, "No."), None)  # type: ignore[arg-type]  # a literal in each case
    with pytest.raises(error, match=r"^No\.$"):
        Retrier(classify).call(request)
    assert left == [None]


def test_what_is_not_the_stores_passes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        Retrier(classify).call(lambda: 1 // 0)


def test_patience_ends_with_the_stores_sentence() -> None:
    with pytest.raises(SinkError, match=r"^The store is down\.$"):
        Retrier(classify, first_patience=0.5).call(answers(*[DOWN] * 100)[0])


def test_patience_is_longer_once_something_worked() -> None:
    retrier = Retrier(classify, first_patience=0.0)
    with pytest.raises(SinkError):
        retrier.call(answers(DOWN, None)[0])
    retrier.call(answers(None)[0])
    assert retrier.call(answers(DOWN, None)[0]) == "done"


def test_a_wait_that_the_store_asks_for_beyond_the_patience_is_not_begun() -> None:
    request, left = answers(Fault("transient", "Come back in an hour.", retry_after=3_600), None)
    with pytest.raises(SinkError, match="hour"):
        Retrier(classify, first_patience=60).call(request)
    assert left == [None]


def test_stop_ends_a_wait() -> None:
    waiting = threading.Event()

    def request() -> None:
        waiting.set()
        raise StoreError(Fault("transient", "Come back in an hour.", retry_after=3_600))

    retrier = Retrier(classify, first_patience=10_000)
    errors: list[Exception] = []

    def call() -> None:
        try:
            retrier.call(request)
        except SinkError as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert waiting.wait(10)
    retrier.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_the_last_of_equal_ids_stays() -> None:
    batch = make_batch(["a", "b", "c", "d"])
    ids = [batch.ids[0], batch.ids[1], batch.ids[0], batch.ids[3]]
    kept = without_doubles(VectorBatch(ids, batch.vectors, batch.payloads))
    assert list(kept.ids) == [batch.ids[1], batch.ids[0], batch.ids[3]]
    assert kept.vectors.tolist() == batch.vectors[1:].tolist()
    assert list(kept.payloads) == list(batch.payloads[1:])


def test_ids_and_uuids() -> None:
    point = make_batch(["a"]).ids[0]
    assert uuid_to_id(id_to_uuid(point)) == point


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:p@ss@host:5432/db?password=x#y", "postgresql://host:5432/db"),
        ("https://host/path", "https://host/path"),
        ("qdrant:/srv/vectors", "qdrant:/srv/vectors"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert redact_url(url) == shown
