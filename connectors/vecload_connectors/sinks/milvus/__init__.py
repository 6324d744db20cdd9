"""The Milvus sink: an embedded folder (`milvus:./milvus.db`, Milvus Lite 3), or a server (`milvus+http://host:19530`).

How points are stored: a collection has the fields `id` (VARCHAR, the point id as UUID text, the primary key), `source`,
`document`, `text`, `text_hash` (VARCHAR), `ordinal`, `start`, `end` (INT64), `headings` (ARRAY of VARCHAR), `metadata`
(JSON) and `embedding` (FLOAT_VECTOR, index AUTOINDEX, cosine). `metadata["lang"] == "de"` filters on the metadata. A
string holds at most 65,535 bytes, and on a server the metadata of a point at most 65,536 bytes of JSON.

`--collection handbook` makes the collection `handbook__1` with the alias `handbook`. What vecload knows of its
collections is kept in the side collection `_vecload`.

The folder belongs to one process at a time, and what it acknowledged survives the end of that process, though maybe
not a power cut (Milvus Lite waits for the disk only when it writes its log away). Works with servers from 2.3.5.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from vecload.connectorkit import check_collection_name, redact_url
from vecload.contracts import SinkConnector
from vecload.errors import MissingDependencyError, UsageError

from .settings import MilvusSettings

if TYPE_CHECKING:
    from vecload.contracts import Sink

    from .stores import Store


def open_sink(settings: MilvusSettings, collection: str) -> Sink:
    try:
        import pymilvus  # noqa: F401 (to know that it is there)
    except ImportError:
        raise MissingDependencyError("The Milvus sink", "milvus") from None
    from .sink import RECORDS, MilvusSink

    # 255 is the server's limit for a name, of which the version suffix takes some.
    check_collection_name(collection, store="Milvus", max_bytes=240, reserved=(RECORDS,))
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", collection):
        raise UsageError(
            f"The collection's name {collection!r} does not suit Milvus, which takes letters a-z, digits and "
            "underscores, and no digit first; choose another."
        )
    return MilvusSink(_store(settings), collection, settings.consistency_level)


def _store(settings: MilvusSettings) -> Store:
    from .stores import Lite, Server

    url = settings.url
    if not url:
        raise UsageError(
            "The Milvus sink has no url: set sink.url, VECLOAD_SINK__URL or MILVUS_URI "
            "(milvus:./milvus.db, or milvus+http://host:19530)."
        )
    address = url.removeprefix("milvus+")
    if address.startswith(("http://", "https://")):
        return Server(_address(address), _token(address, settings), settings)
    path = url.removeprefix("milvus:")
    if "://" in url or not path.endswith(".db"):
        raise UsageError(
            f"The Milvus sink's url {redact_url(url)!r} is neither a Milvus Lite folder, whose name ends in .db "
            "(milvus:./milvus.db), nor a server (milvus+http://host:19530)."
        )
    if settings.database:
        raise UsageError("The setting sink.database is for a Milvus server; leave it out with a Milvus Lite folder.")
    return Lite(Path(path).expanduser().resolve())


def _address(url: str) -> str:
    """`http://host:port`, checked."""
    parts = urlsplit(url)
    try:
        complete = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        complete = False
    if not complete:
        raise UsageError(f"The Milvus sink's url {redact_url(url)!r} names no host, or a port that is no number.")
    if parts.path.strip("/"):
        raise UsageError(
            f"The Milvus sink's url {redact_url(url)!r} has a path; name the database with the setting sink.database."
        )
    return redact_url(url).rstrip("/")


def _token(url: str, settings: MilvusSettings) -> str:
    """What stands for the user: a token, or `user:password`, from the settings or else from the URL."""
    if settings.token:
        return settings.token.get_secret_value()
    parts = urlsplit(url)
    user = settings.user or unquote(parts.username or "")
    password = settings.password.get_secret_value() if settings.password else unquote(parts.password or "")
    return f"{user}:{password}" if user else ""


MILVUS = SinkConnector(
    kind="milvus",
    settings=MilvusSettings,
    open=open_sink,
    schemes=("milvus", "milvus+http", "milvus+https"),
    extra="milvus",
    drivers=("pymilvus",),
)
