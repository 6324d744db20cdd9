"""The conformance suite over every sink, against the real thing where it can be had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.servers.milvus import MilvusServer
from tests.servers.postgres import PostgresServer
from tests.servers.qdrant_grpc import WireServer, wire_server
from vecload.contracts import Sink
from vecload.testing.sink_kit import SinkConformance, make_batch, make_record
from vecload_connectors.sinks.milvus import MILVUS
from vecload_connectors.sinks.milvus.settings import MilvusSettings
from vecload_connectors.sinks.null import NULL
from vecload_connectors.sinks.null.settings import NullSettings
from vecload_connectors.sinks.pgvector import PGVECTOR
from vecload_connectors.sinks.pgvector.settings import PgvectorSettings
from vecload_connectors.sinks.qdrant import QDRANT
from vecload_connectors.sinks.qdrant.settings import QdrantSettings

QDRANT_URL = os.environ.get("QDRANT_URL")


class TestQdrantFolder(SinkConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "vectors"

    def open_sink(self, collection: str) -> Sink:
        return QDRANT.open(QdrantSettings(url=f"qdrant:{self.folder}"), collection)


@pytest.fixture(scope="module")
def wire() -> Iterator[WireServer]:
    with wire_server() as server:
        yield server


class TestQdrantWireForm(SinkConformance):
    """gRPC requests and answers, over a stand-in for the server (see tests.servers.qdrant_grpc)."""

    @pytest.fixture(autouse=True)
    def _server(self, wire: WireServer) -> None:
        self.server = wire

    def open_sink(self, collection: str) -> Sink:
        return QDRANT.open(QdrantSettings(url=self.server.url, grpc_port=self.server.grpc_port), collection)


@pytest.mark.skipif(QDRANT_URL is None, reason="QDRANT_URL names no Qdrant server to test against")
@pytest.mark.parametrize("prefer_grpc", [True, False], ids=["grpc", "rest"])
class TestQdrantServer(SinkConformance):
    """A real server. It leaves collections named `kit-…` behind."""

    @pytest.fixture(autouse=True)
    def _protocol(self, prefer_grpc: bool) -> None:
        self.prefer_grpc = prefer_grpc

    def open_sink(self, collection: str) -> Sink:
        return QDRANT.open(QdrantSettings(url=QDRANT_URL, prefer_grpc=self.prefer_grpc), collection)


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


class TestPgvector(SinkConformance):
    @pytest.fixture(autouse=True)
    def _server(self, database: str) -> None:
        self.url = database

    def open_sink(self, collection: str) -> Sink:
        return PGVECTOR.open(PgvectorSettings(url=self.url), collection)


class TestMilvusLite(SinkConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "milvus.db"

    def open_sink(self, collection: str) -> Sink:
        return MILVUS.open(MilvusSettings(url=f"milvus:{self.folder}"), collection.replace("-", "_"))


class TestMilvusServer(SinkConformance):
    @pytest.fixture(autouse=True)
    def _server(self, milvus: MilvusServer) -> None:
        self.server = milvus

    def open_sink(self, collection: str) -> Sink:
        settings = MilvusSettings(url=f"milvus+{self.server.uri}", token=SecretStr(self.server.token))
        return MILVUS.open(settings, collection.replace("-", "_"))


def test_null_acknowledges_and_keeps_nothing() -> None:
    sink = NULL.open(NullSettings(url="null:"), "docs")
    batch = make_batch(["a", "b"])
    sink.create(make_record())
    sink.upsert(batch)
    sink.update_payload(batch.ids, batch.payloads)
    sink.delete(batch.ids[:1])
    assert sink.id == "null:#docs"
    assert sink.inspect() is None
    assert sink.count() == 2
    assert sink.fetch(batch.ids) == []
    assert list(sink.scan()) == []
    assert sink.search(batch.vectors[0], 5) == []
