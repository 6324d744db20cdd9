"""The ledger's rows as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vecload.diff import PAYLOAD_HASH_BYTES

ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """What the ledger knows of a document. `key` is its printable form (`documents.key_text`)."""

    key: str
    container: str
    state: str = "current"
    """`writing`, `deleting` or `current` (see ledger/schema.py)."""
    content_hash: bytes | None = None
    text_hash: bytes | None = None
    ids: tuple[bytes, ...] = ()
    payload_hashes: tuple[bytes, ...] = ()
    stale: tuple[bytes, ...] = ()
    fresh: bool = False
    """It came since vanished documents were last looked for, so it may be one of them under a new key."""

    @property
    def known(self) -> dict[bytes, bytes]:
        """The points by id with their payload hashes; only a `current` or `deleting` row is sure of them."""
        return dict(zip(self.ids, self.payload_hashes, strict=True))


@dataclass(frozen=True, slots=True)
class ContainerRow:
    key: str
    tag: str | None
    documents: int
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A document, or one chunk of it, that could not be brought in; `chunk` None means the whole document."""

    document: str
    container: str
    stage: str
    reason: str
    message: str
    transient: bool = False
    chunk: int | None = None
    attempts: int = 1
    first_at: str = ""
    last_at: str = ""
    sink: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class ScopeSummary:
    """What the ledger knows of one source's part of one collection."""

    sink: str
    source: str
    documents: int
    chunks: int
    writing: int
    deleting: int
    dead_letters: int
    last_run: str | None


def packed(parts: Iterable[bytes]) -> bytes:
    return b"".join(parts)


def unpacked(blob: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(blob[i : i + size] for i in range(0, len(blob), size))


def unpacked_ids(blob: bytes) -> tuple[bytes, ...]:
    return unpacked(blob, ID_BYTES)


def unpacked_hashes(blob: bytes) -> tuple[bytes, ...]:
    return unpacked(blob, PAYLOAD_HASH_BYTES)
