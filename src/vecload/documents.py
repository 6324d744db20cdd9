"""The plain data that travels through the pipeline: containers, documents, chunks, batches.

Nothing here knows a store, a file format or a model.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    FloatMatrix: TypeAlias = npt.NDArray[np.float32]
    IntVector: TypeAlias = npt.NDArray[np.int32]

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Scalar: TypeAlias = str | int | float | bool | None
Key: TypeAlias = "Scalar | tuple[Scalar, ...]"
"""What names a document within its source: a path, or the typed value(s) of a table's key column(s)."""

POINT_NAMESPACE = uuid.UUID("6f1c9a0e-5d0b-5c59-9d7e-3f2b6a1c8e44")
"""The UUIDv5 namespace of every point id. Changing it would orphan every existing collection."""


def key_text(key: Key) -> str:
    """The one printable form of a key, used in payloads, the ledger and messages.

    A string stands for itself; any other key is its JSON. A string that could be mistaken for JSON, or that holds
    control characters or lone surrogates (which no store takes), is written as ASCII JSON too. So two different keys
    never share a form, and :func:`key_from_text` restores the key.
    """
    if isinstance(key, str) and key.isprintable() and key and not _is_json(key):
        return key
    return json.dumps(key, ensure_ascii=True, separators=(",", ":"))


def key_from_text(text: str) -> Key:
    """The key whose :func:`key_text` is `text`."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def text_hash(text: str) -> str:
    """The first 128 bits of SHA-256 over the UTF-8 text, as 32 hex digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def point_id(source: str, key: Key, chunk_text_hash: str, occurrence: int, variant: int = 0) -> bytes:
    """The 16 bytes of a chunk's point id: UUIDv5 of the JSON array [source, key, text hash, occurrence, variant].

    `occurrence` counts equal texts within the document (0 for the first), so that a text that stands twice keeps two
    points. JSON keeps types and borders: the keys ``1``, ``"1"`` and ``("1",)`` give three ids.
    """
    name = json.dumps([source, key, chunk_text_hash, occurrence, variant], ensure_ascii=True, separators=(",", ":"))
    return uuid.uuid5(POINT_NAMESPACE, name).bytes


@dataclass(frozen=True, slots=True)
class Container:
    """What a source lists: a file, an object, a set of table files. It yields one document, or many when read."""

    key: str
    """Unique within the source, printable (see :func:`key_text`)."""
    tag: str | None
    """Whatever tells a change without reading (ETag, or size and mtime); None: read it every time."""
    size: int | None = None
    """Bytes, where known."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document: text, or bytes that a parser turns into text.

    `name` hints at the format (its suffix); `metadata` goes into the payload and is never embedded.
    """

    key: Key
    content: str | bytes
    name: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A document, or something that looked like one, that holds nothing to embed. Counted by reason, and no fault."""

    key: Key
    reason: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A document (or a part of a listing) that could not be read. It becomes a dead letter, the rest goes on.

    `reason` is a short code (`unreadable`, `too_large`, `broken`, ...); `transient` ones are tried again by each sync.
    """

    key: Key
    reason: str
    message: str
    transient: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document's text; offsets count characters of the cleaned text."""

    text: str
    ordinal: int
    start: int
    end: int
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Token ids of n texts, packed: text i is ``ids[offsets[i]:offsets[i + 1]]``.

    `ids` is int32 of shape (total,), `offsets` int32 of shape (n + 1,). One packed array instead of n lists keeps
    Python objects off the way to the engine's process.
    """

    ids: IntVector
    offsets: IntVector

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[IntVector]:
        for i in range(len(self)):
            yield self.ids[self.offsets[i] : self.offsets[i + 1]]

    @property
    def tokens(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class VectorBatch:
    """What a sink upserts: n ids of 16 bytes, vectors of shape (n, dimensions) in float32, and n payloads.

    A payload has the keys text, source, document, ordinal, start, end, headings, text_hash and metadata, all JSON.
    """

    ids: Sequence[bytes]
    vectors: FloatMatrix
    payloads: Sequence[Mapping[str, Json]]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Point:
    """A point read back; `vector` (float32, shape (dimensions,)) and `payload` where they were asked for."""

    id: bytes
    payload: dict[str, Json] | None = None
    vector: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result. `score` is the cosine similarity: 1.0 is the same direction."""

    id: bytes
    score: float
    payload: dict[str, Json]
