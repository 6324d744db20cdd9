"""What must be done to a document's points: (desired, known) -> actions. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vecload.documents import Json

PAYLOAD_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class DocumentDiff:
    """Positions in the desired list, and ids that are no longer wanted."""

    embed: tuple[int, ...]
    """Not there: a vector is needed."""
    update: tuple[int, ...]
    """There with another payload: no vector is needed."""
    unchanged: int
    stale: tuple[bytes, ...]

    @property
    def empty(self) -> bool:
        return not (self.embed or self.update or self.stale)


def diff(desired: Sequence[tuple[bytes, bytes]], known: Mapping[bytes, bytes]) -> DocumentDiff:
    """Compares (id, payload hash) pairs with those known to stand in the sink.

    An id holds the hash of the chunk's text, so a known id has the right vector whatever its payload is. The ids of
    `desired` are unique.
    """
    wanted = {point for point, _ in desired}
    return DocumentDiff(
        embed=tuple(i for i, (point, _) in enumerate(desired) if point not in known),
        update=tuple(i for i, (point, payload) in enumerate(desired) if point in known and known[point] != payload),
        unchanged=sum(known.get(point) == payload for point, payload in desired),
        stale=tuple(point for point in known if point not in wanted),
    )


def canonical(payload: Mapping[str, Json]) -> bytes:
    """The payload as ASCII JSON with sorted keys: what is hashed, and about what a request will carry."""
    return json.dumps(payload, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def payload_hash(canonical_payload: bytes) -> bytes:
    """8 bytes that change with anything in the payload, and not with the order of its keys."""
    return hashlib.blake2b(canonical_payload, digest_size=PAYLOAD_HASH_BYTES).digest()


def document_text_hash(chunk_text_hashes: Sequence[str]) -> bytes:
    """16 bytes for the texts of a document's chunks in their order: equal for a renamed or copied document."""
    return hashlib.sha256("".join(chunk_text_hashes).encode("ascii")).digest()[:16]
