"""What a Qdrant server is sent: settings, the deferred index, request sizes, restarts. Over the wire-form stand-in.

The folder ignores most of this, so the requests themselves are looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
import numpy as np
import pytest
from pydantic import SecretStr, ValidationError
from qdrant_client import grpc as api
from qdrant_client import models

from tests.servers.qdrant_grpc import MAX_REQUEST_BYTES, Failure, State, WireServer, wire_server
from tests.world import World
from vecload.contracts import Sink
from vecload.documents import VectorBatch
from vecload.errors import RefusedError, RejectedError, SinkError
from vecload.testing.sink_kit import (
    DIMENSIONS,
    HARD_PAYLOAD,
    assert_vectors,
    by_id,
    make_batch,
    make_payload,
    make_record,
    same_types,
)
from vecload_connectors.sinks.qdrant import QDRANT
from vecload_connectors.sinks.qdrant.settings import QdrantSettings

GREEN, YELLOW, GREY, RED = api.Green, api.Yellow, api.Grey, api.Red


@pytest.fixture
def wire() -> Iterator[WireServer]:
    with wire_server() as server:
        yield server


def open_wire(wire: WireServer, collection: str = "docs", **settings: Any) -> Sink:
    return QDRANT.open(QdrantSettings(url=wire.url, grpc_port=wire.grpc_port, **settings), collection)


def created(wire: WireServer) -> api.CreateCollection:
    (request,) = (r for r in wire.sent(api.CreateCollection) if r.collection_name == "docs__1")
    return request


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 500
    return message


# ---------------------------------------------------------------- settings


def test_defaults_leave_the_server_its_own(wire: WireServer) -> None:
    open_wire(wire).create(make_record())
    request = created(wire)
    params = request.vectors_config.params
    assert (params.size, params.distance) == (DIMENSIONS, api.Cosine)
    assert not params.HasField("on_disk")
    for field in ("on_disk_payload", "shard_number", "replication_factor", "quantization_config"):
        assert not request.HasField(field)
    indexes = {r.field_name: r.field_type for r in wire.sent(api.CreateFieldIndexCollection)}
    assert indexes == {"source": api.FieldTypeKeyword, "document": api.FieldTypeKeyword}


def test_settings_reach_the_server(wire: WireServer) -> None:
    sink = open_wire(
        wire,
        vector_name="text",
        on_disk=True,
        on_disk_payload=False,
        quantization="scalar",
        always_ram=True,
        shard_number=3,
        replication_factor=2,
        m=32,
        ef_construct=200,
        index="live",
        payload_indexes={
            "metadata.language": "keyword",
            "metadata.page no": "integer",
            "metadata.a.b": "float",
            "metadata.draft": "bool",
            "metadata.day": "datetime",
            "text": "text",
        },
    )
    assert not sink.capabilities.deferred_index
    sink.create(make_record())
    request = created(wire)
    params = request.vectors_config.params_map.map["text"]
    assert (params.size, params.on_disk) == (DIMENSIONS, True)
    assert request.on_disk_payload is False
    assert (request.shard_number, request.replication_factor) == (3, 2)
    assert (request.hnsw_config.m, request.hnsw_config.ef_construct) == (32, 200)
    assert request.quantization_config.scalar.type == api.Int8
    assert request.quantization_config.scalar.always_ram is True
    (records,) = (r for r in wire.sent(api.CreateCollection) if r.collection_name == "_vecload")
    assert records.replication_factor == 2
    indexes = wire.sent(api.CreateFieldIndexCollection)
    assert all(index.wait for index in indexes)
    assert {index.field_name: index.field_type for index in indexes} == {
        "source": api.FieldTypeKeyword,
        "document": api.FieldTypeKeyword,
        'metadata."language"': api.FieldTypeKeyword,
        'metadata."page no"': api.FieldTypeInteger,
        'metadata."a.b"': api.FieldTypeFloat,
        'metadata."draft"': api.FieldTypeBool,
        'metadata."day"': api.FieldTypeDatetime,
        "text": api.FieldTypeText,
    }


def test_binary_quantization(wire: WireServer) -> None:
    open_wire(wire, quantization="binary", always_ram=False).create(make_record())
    quantization = created(wire).quantization_config
    assert quantization.WhichOneof("quantization") == "binary"
    assert quantization.binary.HasField("always_ram")
    assert quantization.binary.always_ram is False


def test_writes_wait_until_they_are_applied(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    batch = make_batch(["a", "b"])
    sink.upsert(batch)
    sink.update_payload(batch.ids, batch.payloads)
    sink.delete(batch.ids)
    kinds: list[Any] = [api.UpsertPoints, api.UpdateBatchPoints, api.DeletePoints]
    for kind in kinds:
        requests = wire.sent(kind)
        assert requests
        assert all(request.wait for request in requests)


@pytest.mark.parametrize(
    "wrong",
    [
        {"quantization": "product"},
        {"always_ram": True},
        {"vector_name": "a/b"},
        {"vector_name": ""},
        {"vector_name": "ä" * 101},
        {"payload_indexes": {"metadata.x": "geo"}},
        {"payload_indexes": {"language": "keyword"}},
        {"payload_indexes": {"metadata.": "keyword"}},
        {"payload_indexes": {'metadata.a"b': "keyword"}},
        {"shard_number": 0},
        {"m": 0},
        {"ef_construct": 3},
        {"index": "later"},
        {"index_timeout": 0},
        {"unknown": 1},
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as error:
        QdrantSettings(**wrong, api_key=SecretStr("very-secret"))
    assert "very-secret" not in str(error.value)


def test_the_page_names_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "qdrant.md").read_text()
    missing = [name for name in QdrantSettings.model_fields if f"`{name}`" not in page]
    assert missing == []


def test_named_vectors_are_written_read_and_searched(wire: WireServer) -> None:
    sink = open_wire(wire, vector_name="text")
    sink.create(make_record())
    batch = make_batch(["a", "b", "c"])
    sink.upsert(batch)
    assert set(wire.sent(api.UpsertPoints)[-1].points[0].vectors.vectors.vectors) == {"text"}
    found = by_id(sink.fetch(batch.ids, vectors=True))
    assert_vectors(found, batch.ids, batch.vectors)
    assert sink.search(batch.vectors[1], 1)[0].id == batch.ids[1]
    assert len(list(sink.scan())) == 3


# ---------------------------------------------------------------- the deferred index


def test_the_index_is_left_out_and_built_later(wire: WireServer) -> None:
    sink = open_wire(wire, m=24, ef_construct=128)
    assert sink.capabilities.deferred_index
    sink.create(replace(make_record(), index="pending"))
    assert created(wire).hnsw_config.m == 0
    wire.states += [State(GREEN, 0, 500_000), State(YELLOW, 0, 500_000), State(GREEN, 490_000, 500_000)]
    sink.build_index()
    (update,) = wire.sent(api.UpdateCollection)
    assert update.collection_name == "docs__1"
    assert (update.hnsw_config.m, update.hnsw_config.ef_construct) == (24, 128)
    assert len(wire.states) == 1, "it did not wait until the work was done"
    sink.build_index()
    assert len(wire.sent(api.UpdateCollection)) == 2


def test_an_optimizer_that_sleeps_after_a_restart_is_woken(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    wire.states += [State(GREY), State(GREEN)]
    sink.build_index()
    assert [update.HasField("optimizers_config") for update in wire.sent(api.UpdateCollection)] == [False, True]


def test_a_wait_that_runs_out_says_how_far_it_is(wire: WireServer) -> None:
    sink = open_wire(wire, index_timeout=1)
    sink.create(make_record())
    wire.states.append(State(YELLOW, 120, 5_000))
    with pytest.raises(SinkError, match=r"120 of about 5000.*run the same command again") as error:
        sink.build_index()
    one_line(error)


def test_a_failed_optimizer_is_told_in_its_own_words(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    wire.states.append(State(RED, error="no space\nleft"))
    with pytest.raises(SinkError, match="no space left") as error:
        sink.build_index()
    one_line(error)


def test_closing_ends_the_wait(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    wire.states.append(State(YELLOW))
    errors: list[SinkError] = []

    def build() -> None:
        try:
            sink.build_index()
        except SinkError as error:
            errors.append(error)

    thread = threading.Thread(target=build)
    thread.start()
    while "Update" not in wire.requests:
        pass
    sink.close()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_a_run_that_gave_up_waiting_is_finished_by_one_with_nothing_to_do(wire: WireServer, tmp_path: Path) -> None:
    world = World(tmp_path, wire.url)
    world.settings["sink"] = {"grpc_port": wire.grpc_port, "index_timeout": 1}
    world.write_many(3)
    wire.states.append(State(YELLOW, 0, 12))
    with pytest.raises(SinkError, match="run the same command again"):
        world.sync()
    points = len(world.points())
    assert points >= 3
    wire.states[:] = [State(GREEN, points, points)]
    updates = len(wire.sent(api.UpdateCollection))
    assert world.sync().exit_code == 0
    assert len(wire.sent(api.UpdateCollection)) == updates + 1
    assert len(world.points()) == points
    assert world.sync().exit_code == 0
    assert len(wire.sent(api.UpdateCollection)) == updates + 1, "a built index was built again"


# ---------------------------------------------------------------- sizes


def test_large_points_go_in_requests_under_the_limit(wire: WireServer) -> None:
    """2,000 points of 4,096 dimensions with 50 KB of payload: 130 MB."""
    sink = open_wire(wire)
    sink.create(make_record(4_096))
    vectors = np.random.default_rng(0).normal(size=(1_000, 4_096)).astype(np.float32)
    for half in range(2):
        small = make_batch([f"{half} {i}" for i in range(1_000)])
        payloads = [make_payload("ä" * 25_000, metadata={"n": i}) for i in range(1_000)]
        sink.upsert(VectorBatch(small.ids, vectors, payloads))
        sizes = [request.ByteSize() for request in wire.sent(api.UpsertPoints)]
        assert max(sizes) < MAX_REQUEST_BYTES / 2
        wire.messages.clear()
    assert sink.count() == 2_000


def test_a_point_over_the_limit_is_rejected_alone(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    batch = make_batch(["a", "b"])
    large = make_payload("x" * (33 << 20))
    before = wire.requests.count("Upsert")
    with pytest.raises(RejectedError, match=r"33\.0 MiB") as error:
        sink.upsert(VectorBatch(batch.ids, batch.vectors, [batch.payloads[0], large]))
    one_line(error)
    assert wire.requests.count("Upsert") == before, "the good point was sent before the bad one was seen"
    sink.upsert(VectorBatch(batch.ids[:1], batch.vectors[:1], batch.payloads[:1]))
    assert sink.count() == 1


def test_payload_updates_are_cut_too(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    batch = make_batch([f"{i}" for i in range(60)])
    sink.upsert(batch)
    sink.update_payload(batch.ids, [make_payload("y" * 1_000_000) for _ in batch.ids])
    requests = wire.sent(api.UpdateBatchPoints)
    assert sum(len(request.operations) for request in requests) == 60
    assert max(request.ByteSize() for request in requests) < MAX_REQUEST_BYTES / 2


# ---------------------------------------------------------------- bad points and hard types


@pytest.mark.parametrize(
    ("value", "words"), [(np.nan, "NaN or infinity"), (np.inf, "NaN or infinity"), (0.0, "all zeros")]
)
def test_vectors_that_could_never_be_found_are_not_sent(wire: WireServer, value: float, words: str) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    batch = make_batch(["a", "b"])
    batch.vectors[1] = value
    before = len(wire.requests)
    with pytest.raises(RejectedError, match=words) as error:
        sink.upsert(batch)
    assert "guide.md" in one_line(error)
    assert len(wire.requests) == before


def test_types_survive_the_wire(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    batch = make_batch(["a"])
    hard: Any = HARD_PAYLOAD["metadata"]
    payload = make_payload("a", metadata={**hard, "n" * 300: 1.0, "": [1, 1.0, None, {"": ""}]})
    sink.upsert(VectorBatch(batch.ids, batch.vectors, [payload]))
    (point,) = sink.fetch(batch.ids)
    assert same_types(point.payload, payload)


def test_an_integer_over_64_bits_is_rejected_in_words(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    batch = make_batch(["a"])
    with pytest.raises(RejectedError, match="does not fit Qdrant's protocol") as error:
        sink.upsert(VectorBatch(batch.ids, batch.vectors, [make_payload("a", metadata={"n": 2**63})]))
    one_line(error)
    sink.upsert(batch)
    for number in (2**63, -(2**63) - 1, float("nan")):
        with pytest.raises(RejectedError, match=r"64 bits|not JSON") as error:
            sink.update_payload(batch.ids, [make_payload("a", metadata={"n": [number]})])
        one_line(error)


# ---------------------------------------------------------------- restarts and errors


def test_a_restart_in_mid_run_loses_and_doubles_nothing(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    batches = [make_batch([f"{n} {i}" for i in range(50)], document=f"{n}.md", seed=n) for n in range(6)]
    sink.upsert(batches[0])
    wire.stop()
    threads = [threading.Thread(target=sink.upsert, args=(batch,)) for batch in batches[1:5]]
    for thread in threads:
        thread.start()
    wire.start()
    for thread in threads:
        thread.join()
    sink.upsert(batches[5])
    assert by_id(sink.scan()).keys() == {point_id for batch in batches for point_id in batch.ids}


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("RESOURCE_EXHAUSTED", "Insufficient storage: disk usage is at 95%"),
        ("INTERNAL", "Service internal error: No space left on device: WAL buffer size exceeds available disk space"),
        ("INVALID_ARGUMENT", "Bad request: Max points count limit of 5 reached!"),
        ("FAILED_PRECONDITION", "Storage locked: maintenance"),
        ("PERMISSION_DENIED", "Forbidden"),
    ],
)
def test_what_waiting_and_splitting_do_not_mend_stops_at_once(wire: WireServer, code: str, detail: str) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    wire.failures.append(Failure(grpc.StatusCode[code], detail))
    with pytest.raises(SinkError, match=detail.split(": ")[-1][:20]) as error:
        sink.upsert(make_batch(["a"]))
    assert not isinstance(error.value, RejectedError)
    one_line(error)


def test_a_request_over_the_whole_rate_is_split_and_not_repeated(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    detail = "Write rate limit exceeded, request larger than rate limiter capacity, please try to split your request"
    wire.failures.append(Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, detail))
    with pytest.raises(RejectedError, match="try to split"):
        sink.upsert(make_batch(["a", "b"]))


# ---------------------------------------------------------------- someone else's collection, and names


@pytest.mark.parametrize(
    ("vectors", "there"),
    [
        (models.VectorParams(size=5, distance=models.Distance.COSINE), r"unnamed vectors of 5 dimensions \(Cosine\)"),
        (models.VectorParams(size=DIMENSIONS, distance=models.Distance.DOT), r"8 dimensions \(Dot\)"),
        ({"title": models.VectorParams(size=DIMENSIONS, distance=models.Distance.COSINE)}, r"named 'title' of 8"),
        ({}, "no dense vectors"),
    ],
)
def test_a_collection_made_again_in_another_shape_is_refused(wire: WireServer, vectors: Any, there: str) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    wire.local.delete_collection("docs__1")
    wire.local.create_collection("docs__1", vectors_config=vectors)
    alias = models.CreateAlias(collection_name="docs__1", alias_name="docs")
    wire.local.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    with pytest.raises(
        RefusedError, match=there + r".*this job writes unnamed vectors of 8 dimensions \(Cosine\)"
    ) as e:
        open_wire(wire).inspect()
    one_line(e)


def test_a_collection_made_again_in_the_same_shape_is_noticed(wire: WireServer) -> None:
    open_wire(wire).create(make_record())
    cosine = models.VectorParams(size=DIMENSIONS, distance=models.Distance.COSINE)
    wire.local.delete_collection("docs__1")
    wire.local.create_collection("docs__1", vectors_config=cosine)
    alias = models.CreateAlias(collection_name="docs__1", alias_name="docs")
    wire.local.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    with pytest.raises(RefusedError, match="dropped and made again") as error:
        open_wire(wire).inspect()
    one_line(error)


def test_another_vector_name_is_refused(wire: WireServer) -> None:
    open_wire(wire, vector_name="text").create(make_record())
    with pytest.raises(RefusedError, match=r"named 'text'.*sink\.vector_name"):
        open_wire(wire).inspect()


def test_a_foreign_collection_is_described(wire: WireServer) -> None:
    cosine = models.VectorParams(size=DIMENSIONS, distance=models.Distance.COSINE)
    wire.local.create_collection("docs", vectors_config=cosine)
    wire.local.upsert("docs", [models.PointStruct(id=1, vector=[1.0] * DIMENSIONS)])
    with pytest.raises(RefusedError, match=r"'docs'.*not made by vecload.*1 points.*8 dimensions") as error:
        open_wire(wire).inspect()
    one_line(error)


@pytest.mark.parametrize("name", ["it's; DROP TABLE x", "手册", "a" * 100, "naïve-name.v2 %s {x}", "手" * 80])
def test_hard_names_work(wire: WireServer, name: str) -> None:
    sink = open_wire(wire, name)
    sink.create(make_record())
    sink.upsert(make_batch(["a"]))
    sink.close()
    again = open_wire(wire, name)
    assert again.inspect() is not None
    assert again.count() == 1
