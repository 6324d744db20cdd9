"""The pgvector sink: a table of PostgreSQL (`postgresql://user@host/database`, embedded `pgvector:./folder`).

It needs pgvector 0.8 or newer.

How points are stored: a collection is a table of that name with the columns `id` (uuid), `source`, `document`,
`ordinal`, `text`, `metadata` (jsonb), `embedding` (vector), which readers may rely on, and `start`, `end`, `headings`
(jsonb) and `text_hash`; chosen metadata fields are columns of their own. There is an index on `(source, document)` and,
after the first load, an HNSW index for cosine distance: over `embedding` up to 2,000 dimensions, over
`embedding::halfvec(d)` up to 4,000, so there order by `embedding::halfvec(d) <=> query::halfvec(d)`.

What vecload knows of its tables is kept in the table `vecload_collections` of the same schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vecload.connectorkit import check_collection_name
from vecload.contracts import SinkConnector
from vecload.errors import MissingDependencyError

from .settings import EMBEDDED_SCHEME, PgvectorSettings

if TYPE_CHECKING:
    from vecload.contracts import Sink


def open_sink(settings: PgvectorSettings, collection: str) -> Sink:
    try:
        import psycopg  # noqa: F401 (to know that it is there)
    except ImportError:
        raise MissingDependencyError("The pgvector sink", "pgvector") from None
    from .connections import Connections, server_name
    from .embedded import EmbeddedServer
    from .sink import CAPABILITIES, PgvectorSink
    from .statements import RECORDS
    from .table import Table

    # PostgreSQL cuts longer names off without a word, so two of them could meet in one table.
    check_collection_name(collection, store="PostgreSQL", max_bytes=63, reserved=(RECORDS,))
    writers = CAPABILITIES.concurrent_writers
    url = settings.url or ""
    if url.startswith(EMBEDDED_SCHEME):
        server = EmbeddedServer(url.removeprefix(EMBEDDED_SCHEME), settings.run_as)
        connections = Connections(server.conninfo, settings.schema_, writers, on_close=server.close)
        table = Table(connections, str(server.folder), settings, collection, lambda: server.exists)
        return PgvectorSink(table, settings)
    name = server_name(url)
    connections = Connections(lambda: url, settings.schema_, writers)
    return PgvectorSink(Table(connections, name, settings, collection, lambda: True), settings)


PGVECTOR = SinkConnector(
    kind="pgvector",
    settings=PgvectorSettings,
    open=open_sink,
    schemes=("postgresql", "postgres", "pgvector"),
    extra="pgvector",
    drivers=("psycopg",),
)
