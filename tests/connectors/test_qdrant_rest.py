"""Qdrant over REST (`prefer_grpc: false`): the conformance suite, and what is sent, over a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.servers.qdrant_rest import MAX_REQUEST_BYTES, Answer, RestServer, rest_server
from vecload.contracts import Sink
from vecload.documents import VectorBatch
from vecload.errors import RejectedError, SinkError
from vecload.testing.sink_kit import HARD_PAYLOAD, SinkConformance, make_batch, make_payload, make_record, same_types
from vecload_connectors.sinks.qdrant import QDRANT
from vecload_connectors.sinks.qdrant.settings import QdrantSettings


def open_rest(server: RestServer, collection: str = "docs", **settings: Any) -> Sink:
    return QDRANT.open(QdrantSettings(url=server.url, prefer_grpc=False, **settings), collection)


@pytest.fixture(scope="module")
def shared() -> Iterator[RestServer]:
    with rest_server() as server:
        yield server


class TestQdrantRestForm(SinkConformance):
    @pytest.fixture(autouse=True)
    def _server(self, shared: RestServer) -> None:
        self.server = shared

    def open_sink(self, collection: str) -> Sink:
        return open_rest(self.server, collection)


@pytest.fixture
def rest() -> Iterator[RestServer]:
    with rest_server() as server:
        yield server


def test_what_is_sent(rest: RestServer) -> None:
    sink = open_rest(
        rest, on_disk=True, quantization="binary", shard_number=2, payload_indexes={"metadata.n": "integer"}
    )
    sink.create(replace(make_record(), index="pending"))
    (body,) = rest.sent("PUT", "/collections/docs__1")
    mark = body.pop("metadata")
    assert set(mark) == {"vecload"}
    assert body == {
        "vectors": {"size": 8, "distance": "Cosine", "on_disk": True},
        "hnsw_config": {"m": 0, "ef_construct": 100},
        "quantization_config": {"binary": {}},
        "shard_number": 2,
    }
    assert rest.sent("PUT", "/collections/docs__1/index") == [
        {"field_name": "source", "field_schema": "keyword"},
        {"field_name": "document", "field_schema": "keyword"},
        {"field_name": 'metadata."n"', "field_schema": "integer"},
    ]
    sink.build_index()
    assert rest.sent("PATCH", "/collections/docs__1") == [{"hnsw_config": {"m": 16, "ef_construct": 100}}]
    batch = make_batch(["a"])
    sink.upsert(batch)
    sink.delete(batch.ids)
    writes = [request for request in rest.requests if "/points" in request.path and "docs__1" in request.path]
    assert [request.query for request in writes] == ["wait=true", "wait=true"]


def test_types_survive(rest: RestServer) -> None:
    sink = open_rest(rest)
    sink.create(make_record())
    batch = make_batch(["a"])
    metadata: dict[str, Any] = {"n" * 300: 1.0, "": [1, 1.0, None, {"": None}], "none": None, "large": 2**63 - 1}
    hard: Any = HARD_PAYLOAD["metadata"]
    payload = make_payload("a", metadata={**hard, **metadata})
    sink.upsert(VectorBatch(batch.ids, batch.vectors, [payload]))
    assert same_types(sink.fetch(batch.ids)[0].payload, payload)
    sink.update_payload(batch.ids, [{**payload, "ordinal": 7}])
    assert same_types(sink.fetch(batch.ids)[0].payload, {**payload, "ordinal": 7})


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, float("nan"), float("inf")])
def test_numbers_that_json_would_change_are_rejected(rest: RestServer, number: float) -> None:
    sink = open_rest(rest)
    sink.create(make_record())
    batch = make_batch(["a"])
    with pytest.raises(RejectedError, match=r"64 bits|not JSON"):
        sink.upsert(VectorBatch(batch.ids, batch.vectors, [make_payload("a", metadata={"n": [number]})]))


def test_vectors_as_text_stay_under_the_limit(rest: RestServer) -> None:
    """Each float takes up to 25 bytes as text: 500 points of 4,096 dimensions are 8 MB in memory and 44 on the way."""
    sink = open_rest(rest)
    sink.create(make_record(4_096))
    small = make_batch([f"{i}" for i in range(500)])
    vectors = np.random.default_rng(0).normal(scale=1e-5, size=(500, 4_096)).astype(np.float32)
    sink.upsert(VectorBatch(small.ids, vectors, small.payloads))
    assert max(request.size for request in rest.requests) < MAX_REQUEST_BYTES / 2
    assert sink.count() == 500


@pytest.mark.parametrize("retry_after", ["1", "Wed, 21 Oct 2026 07:28:00 GMT", None])
def test_a_rate_limit_is_waited_out(rest: RestServer, retry_after: str | None) -> None:
    sink = open_rest(rest)
    sink.create(make_record())
    rest.failures.append(Answer(429, "Write rate limit exceeded", retry_after))
    sink.upsert(make_batch(["a"]))
    assert sink.count() == 1


@pytest.mark.parametrize("status", [408, 500, 502, 503])
def test_transient_errors_are_tried_again(rest: RestServer, status: int) -> None:
    sink = open_rest(rest)
    sink.create(make_record())
    rest.failures.append(Answer(status))
    sink.upsert(make_batch(["a"]))
    assert sink.count() == 1


@pytest.mark.parametrize(
    ("status", "words", "rejected"),
    [
        (400, "JSON payload (40000000 bytes) is larger than allowed", True),
        (413, "Payload Too Large", True),
        (422, "Validation error in JSON body", True),
        (429, "request larger than rate limiter capacity, please try to split your request", True),
        (401, "refused the API key", False),
        (403, "refused the API key", False),
        (404, "Not found: Collection `docs__1` doesn't exist!", False),
        (507, "Insufficient storage: disk usage is at 95%", False),
        (500, "Service internal error: No space left on device", False),
        (403, "Storage locked: maintenance", False),
    ],
)
def test_errors_are_told_apart(rest: RestServer, status: int, words: str, rejected: bool) -> None:
    sink = open_rest(rest)
    sink.create(make_record())
    rest.failures.append(Answer(status, words))
    before = len(rest.requests)
    with pytest.raises(SinkError) as error:
        sink.upsert(make_batch(["a"]))
    assert isinstance(error.value, RejectedError) is rejected
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert len(rest.requests) == before + 1, "it was tried again"
