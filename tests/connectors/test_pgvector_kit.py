"""The conformance suite over pgvector's other forms: an older server, the embedded one, and each kind of index."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import PostgresServer
from vecload.contracts import Sink
from vecload.testing.sink_kit import SinkConformance
from vecload_connectors.sinks.pgvector import PGVECTOR
from vecload_connectors.sinks.pgvector.settings import PgvectorSettings


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture(scope="module")
def older_database(older_postgres: PostgresServer) -> str:
    return older_postgres.new_database()


class TestOlderServer(SinkConformance):
    @pytest.fixture(autouse=True)
    def _server(self, older_database: str) -> None:
        self.url = older_database

    def open_sink(self, collection: str) -> Sink:
        return PGVECTOR.open(PgvectorSettings(url=self.url), collection)


class TestLiveIndex(SinkConformance):
    """Every write goes into an HNSW index, and some of the metadata into columns."""

    @pytest.fixture(autouse=True)
    def _server(self, database: str) -> None:
        self.url = database

    def open_sink(self, collection: str) -> Sink:
        columns = {"language": "text", "page no": "bigint", "draft": "boolean", "weight": "double precision"}
        hard = {"whole float": "double precision", "nested": "jsonb", "largest": "numeric", "long": "text"}
        settings = PgvectorSettings.model_validate({"url": self.url, "index": "live", "columns": columns | hard})
        return PGVECTOR.open(settings, collection)


@pytest.fixture(scope="module")
def server_folder() -> Iterator[Path]:
    # Not tmp_path, which only the owner may enter.
    folder = Path(tempfile.mkdtemp(prefix="vecload-embedded-"))
    folder.chmod(0o755)
    yield folder / "vectors"
    shutil.rmtree(folder)


class TestEmbedded(SinkConformance):
    @pytest.fixture(autouse=True)
    def _server(self, server_folder: Path, server_user: str | None) -> Iterator[None]:
        self.settings = PgvectorSettings(url=f"pgvector:{server_folder}", run_as=server_user)
        # One user throughout, so that the server is not started for each test.
        keeper = PGVECTOR.open(self.settings, "keeper")
        keeper.inspect()
        yield
        keeper.close()

    def open_sink(self, collection: str) -> Sink:
        return PGVECTOR.open(self.settings, collection)
