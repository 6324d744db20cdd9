"""The whole plugin contract: sources, parsers, engines, sinks, and what each says of itself.

Every protocol is synchronous and blocking; the core owns the threads. A connector is found through the entry-point
groups `vecload.sources`, `vecload.sinks`, `vecload.engines` and `vecload.parsers`; the entry point names a
`SourceConnector`, `SinkConnector`, `EngineConnector` or `Parser` object. Its module is imported when the connector is
looked up, so it imports its driver only inside `open`.

Errors: raise `SourceError`, `SinkError`, `RejectedError`, `RefusedError` or `UsageError` (vecload.errors) with one
sentence for a person. Anything else that escapes is treated as a fault of the connector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from vecload.documents import Container, Document, Hit, Json, Point, Problem, Skipped, TokenBatch, VectorBatch

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

    from vecload.documents import FloatMatrix
    from vecload.models import Model


# ---------------------------------------------------------------- sources


@dataclass(frozen=True, slots=True)
class SourceCapabilities:
    weak_tags: bool = False
    """Tags are built from modification times, which `--checksum` does not trust."""
    concurrent_reads: int = 8
    """How many `read` calls may run at the same time, each on a thread of its own."""
    max_document_bytes: int = 64 << 20
    """The largest content that a document of it has; parsers refuse more."""
    root: Path | None = None
    """The folder of this machine below which its containers lie, with keys relative to it."""


class Source(Protocol):
    """Lists containers, cheaply and as a stream; reads one when asked."""

    id: str
    """The canonical root, never the endpoint: two runs over the same data must give the same id."""
    capabilities: SourceCapabilities

    def list(self) -> Iterator[Container | Skipped | Problem]:
        """Every container. A `Problem` means the listing is not complete, so nothing is deleted after it.

        Raises SourceError when the source as a whole cannot be listed (missing directory, wrong credentials): also in
        mid-listing, since a listing cut short must never look complete.
        """

    def read(self, container: Container) -> Iterator[Document | Skipped | Problem]:
        """The documents of one container, as a stream. Called from several threads.

        A `Problem` whose key is the container's own means that the container was not read to its end.
        """

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SourceConnector:
    kind: str
    settings: type[BaseModel]
    """A pydantic model, `extra="forbid"`, with a description for each field; `url` is the field that a URL sets."""
    open: Callable[[Any], Source]
    """Takes a validated instance of `settings`. Raises MissingDependencyError, UsageError, SourceError."""
    schemes: tuple[str, ...] = ()
    """URL schemes that mean this kind, without `://`."""
    suffixes: tuple[str, ...] = ()
    """Path endings that mean this kind, such as `.parquet`; they weigh more than a scheme."""
    extra: str | None = None
    drivers: tuple[str, ...] = ()
    """Import names that must be found for it to work; `vecload connectors` shows which are missing."""


# ---------------------------------------------------------------- parsers


class Parser(Protocol):
    """Turns a document's bytes into text. Runs in a process of its own with limits on time and memory."""

    name: str
    version: int
    """Raised whenever the text it gives changes: documents parsed by an older one are chunked again."""
    suffixes: tuple[str, ...]
    extra: str | None

    def matches(self, head: bytes) -> bool:
        """Whether the content (its first 4 KiB) is of this parser's format. Content weighs more than the name."""

    def parse(self, content: bytes) -> str:
        """The document's text; headings as Markdown lines (`## Title`). Raises ValueError with a reason if broken."""


# ---------------------------------------------------------------- engines


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    max_tokens_per_batch: int
    """The token budget of one submitted batch."""
    max_texts_per_batch: int
    batches_in_flight: int = 2
    """How many submitted batches keep the engine busy: one at work, the others ready."""


class Engine(Protocol):
    """Token ids in, pooled vectors out. Starts when `start` is called, not before."""

    capabilities: EngineCapabilities

    def start(self) -> None:
        """Blocks until the model is loaded. Raises EngineError with one sentence."""

    def submit(self, batch: TokenBatch) -> Future[FloatMatrix]:
        """The vectors, float32 of shape (len(batch), dimensions), normalised where the model says so."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineConnector:
    kind: str
    settings: type[BaseModel]
    open: Callable[[Any, Model], Engine]
    extra: str | None = None
    drivers: tuple[str, ...] = ()


# ---------------------------------------------------------------- sinks


@dataclass(frozen=True, slots=True)
class SinkCapabilities:
    """What the store can take; the core reads these and never asks which store it is."""

    max_request_bytes: int
    """Well under the store's own limit; the core cuts requests by an estimate of their encoded size."""
    max_request_points: int
    concurrent_writers: int
    max_text_bytes: int | None = None
    """The longest string in UTF-8 bytes; None: no limit of its own."""
    max_dimensions: int | None = None
    too_wide_advice: str = "choose a model with fewer dimensions, or another store"
    """What a person can do about wider vectors, for the message that refuses them."""
    payload_update: bool = True
    """`update_payload` works without sending the vector again."""
    aliases: bool = False
    deferred_index: bool = False
    """`create` makes no vector index yet; `build_index` does, which is far faster after a first load than during it."""


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """What makes two vectors comparable. Another space is refused; `model` is only shown, `model_hash` decides."""

    model: str
    model_hash: str
    pooling: str
    normalize: bool
    dimensions: int
    document_prompt: str
    query_prompt: str

    def same_as(self, other: VectorSpace) -> bool:
        return all(
            a == b for (k, a), (_, b) in zip(asdict(self).items(), asdict(other).items(), strict=True) if k != "model"
        )


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """What a sink keeps beside a collection, in a side collection or table, never as a point among the data."""

    incarnation: str
    """A random id: a collection that was dropped and made again has another one."""
    space: VectorSpace
    probes: str
    """The vectors of the probe texts, base64 of float32; empty until an engine has run."""
    vecload: str
    """The version that made the collection."""
    index: str = "ready"
    """`pending` from `create` until `build_index` has returned: any later run builds it."""

    def to_json(self) -> dict[str, Json]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CollectionRecord:
        known = {k: data[k] for k in ("incarnation", "probes", "vecload", "index") if k in data}
        return cls(space=VectorSpace(**{k: data["space"][k] for k in VectorSpace.__dataclass_fields__}), **known)


class Sink(Protocol):
    """One collection of one store. Writes return when the store has acknowledged them; all of them are idempotent.

    `upsert`, `update_payload`, `delete` and `fetch` are called from up to `concurrent_writers` threads; transient
    errors are retried inside (see vecload.connectorkit).
    """

    id: str
    """Names the store and the collection for messages and the ledger, without secrets: `qdrant:/srv/vectors#docs`."""
    capabilities: SinkCapabilities

    def inspect(self) -> CollectionRecord | None:
        """The record of the collection, None when there is no such collection.

        Raises RefusedError when the collection exists but vecload did not make it, and SinkError when the store is
        out of reach. Never writes.
        """

    def create(self, record: CollectionRecord) -> None:
        """Makes the collection (cosine, `record.space.dimensions` wide) and keeps the record. Safe to repeat."""

    def save_record(self, record: CollectionRecord) -> None:
        """Replaces the record."""

    def build_index(self) -> None:
        """Builds the vector index that `create` left out, and returns when searches use it. Safe to repeat."""

    def upsert(self, batch: VectorBatch) -> None:
        """Writes the points whole. The same id twice in a batch: the last wins. RejectedError: these points are bad."""

    def update_payload(self, ids: Sequence[bytes], payloads: Sequence[Mapping[str, Json]]) -> None:
        """Replaces the payloads of existing points; their vectors stay."""

    def delete(self, ids: Sequence[bytes]) -> None:
        """Deletes these points; ids that are not there are no error."""

    def fetch(self, ids: Sequence[bytes], *, vectors: bool = False, payloads: bool = True) -> list[Point]:
        """Those of the points that exist, in any order."""

    def scan(self, source: str | None = None, document: str | None = None) -> Iterator[Point]:
        """All points (of one source, of one document of it) with payload and without vector, as a stream."""

    def count(self) -> int:
        """The exact number of points."""

    def search(self, vector: FloatMatrix, limit: int, filter: Mapping[str, Json] | None = None) -> list[Hit]:
        """The nearest points to `vector` (shape (dimensions,)), best first.

        `filter` maps payload fields (`source`, `document`, or `metadata.NAME`) to the value they must equal.
        """

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SinkConnector:
    kind: str
    settings: type[BaseModel]
    """A pydantic model, `extra="forbid"`; `url` is the field that a URL sets. The collection's name is not in it."""
    open: Callable[[Any, str], Sink]
    """Takes validated settings and the collection's name; does not create anything."""
    schemes: tuple[str, ...] = ()
    """What stands before the first colon of a URL: `qdrant`, `qdrant+http`, `postgresql`."""
    extra: str | None = None
    drivers: tuple[str, ...] = ()
