"""The Qdrant sink: an embedded folder (`qdrant:./vectors`), or a server (`qdrant+http://host:6333`).

How points are stored: the id is the point id as a UUID; the vector is the unnamed one, or `vector_name`, cosine
distance; the payload's keys are stored flat: `text`, `source`, `document`, `ordinal`, `start`, `end`, `headings`,
`text_hash`, `metadata` (an object). A server gets keyword indexes on `source` and `document`.

`--collection handbook` makes the collection `handbook__1` with the alias `handbook`. What vecload knows of its
collections is kept in the side collection `_vecload`.

The folder is read with `QdrantClient(path=...)` and belongs to one process at a time. It is searched without an index:
good for tens of thousands of points; use a server beyond.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vecload.connectorkit import check_collection_name, redact_url
from vecload.contracts import SinkConnector
from vecload.errors import MissingDependencyError, UsageError

from .settings import FORBIDDEN_IN_NAMES, QdrantSettings

if TYPE_CHECKING:
    from vecload.contracts import Sink

    from .stores import Store


def open_sink(settings: QdrantSettings, collection: str) -> Sink:
    try:
        import qdrant_client  # noqa: F401 (to know that it is there)
    except ImportError:
        raise MissingDependencyError("The Qdrant sink", "qdrant") from None
    from .sink import RECORDS, QdrantSink

    # 255 is the server's limit for a name, of which the version suffix takes some.
    check_collection_name(
        collection, store="Qdrant", max_bytes=240, forbidden=FORBIDDEN_IN_NAMES, reserved=(RECORDS, ".", "..")
    )
    return QdrantSink(_store(settings), settings, collection)


def _store(settings: QdrantSettings) -> Store:
    from .stores import Folder, Server

    url = settings.url
    if not url:
        raise UsageError(
            "The Qdrant sink has no url: set sink.url, VECLOAD_SINK__URL or QDRANT_URL "
            "(qdrant:./folder, or qdrant+http://host:6333)."
        )
    address = url.removeprefix("qdrant+")
    if address.startswith(("http://", "https://")):
        if not urlsplit(address).hostname:
            raise UsageError(f"The Qdrant sink's url {redact_url(url)!r} names no host.")
        return Server(redact_url(address).rstrip("/"), settings)
    path = url.removeprefix("qdrant:")
    if not path or "://" in url:
        raise UsageError(
            f"The Qdrant sink's url {redact_url(url)!r} is neither a folder (qdrant:./folder) "
            "nor a server (qdrant+http://host:6333)."
        )
    return Folder(Path(path).expanduser().resolve())


QDRANT = SinkConnector(
    kind="qdrant",
    settings=QdrantSettings,
    open=open_sink,
    schemes=("qdrant", "qdrant+http", "qdrant+https"),
    extra="qdrant",
    drivers=("qdrant_client",),
)
