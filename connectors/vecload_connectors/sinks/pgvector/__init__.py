"""The pgvector sink: a table of PostgreSQL (`postgresql://user@host/database`), with pgvector 0.8 or newer.

How points are stored: a collection is a table of that name with the columns `id` (uuid), `source`, `document`,
`ordinal`, `text`, `metadata` (jsonb), `embedding` (vector), which readers may rely on, and `start`, `end`, `headings`
(jsonb) and `text_hash`. There is an index on `(source, document)` and an HNSW index for cosine distance: over
`embedding` up to 2,000 dimensions, over `embedding::halfvec(d)` up to 4,000, so there order by
`embedding::halfvec(d) <=> query::halfvec(d)`. `metadata @> '{"lang": "de"}'` tells equality in the metadata.

What vecload knows of its tables is kept in the table `vecload_collections` of the same schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vecload.connectorkit import check_collection_name
from vecload.contracts import SinkConnector
from vecload.errors import MissingDependencyError

from .settings import PgvectorSettings

if TYPE_CHECKING:
    from vecload.contracts import Sink


def open_sink(settings: PgvectorSettings, collection: str) -> Sink:
    try:
        import psycopg  # noqa: F401 (to know that it is there)
    except ImportError:
        raise MissingDependencyError("The pgvector sink", "pgvector") from None
    from .connections import Connections, server_name
    from .sink import CAPABILITIES, PgvectorSink
    from .statements import RECORDS

    # PostgreSQL cuts longer names off without a word, so two of them could meet in one table.
    check_collection_name(collection, store="PostgreSQL", max_bytes=63, reserved=(RECORDS,))
    server = server_name(settings.url)
    connections = Connections(settings.url, settings.schema_, CAPABILITIES.concurrent_writers)
    return PgvectorSink(connections, server, settings.schema_, collection)


PGVECTOR = SinkConnector(
    kind="pgvector",
    settings=PgvectorSettings,
    open=open_sink,
    schemes=("postgresql", "postgres"),
    extra="pgvector",
    drivers=("psycopg",),
)
