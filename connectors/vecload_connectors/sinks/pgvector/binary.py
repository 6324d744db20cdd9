"""Values as PostgreSQL carries them: vectors in binary, JSON without losing a float."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format

from vecload.documents import Json

if TYPE_CHECKING:
    import psycopg

    from vecload.documents import FloatMatrix

_FLOAT = np.dtype(">f4")
_HALF = np.dtype(">f2")


class BinaryVector(bytes):
    """One vector in pgvector's binary form: the width and a zero as uint16, then big-endian float32."""


@dataclass(frozen=True, slots=True)
class BinaryVectors:
    """Many vectors as the elements of a PostgreSQL array, each after its length in bytes."""

    count: int
    elements: bytes


class BinaryHalfVectors(BinaryVectors):
    """The same in half precision."""


def pack_vector(vector: FloatMatrix) -> BinaryVector:
    """A float32 array of shape (width,)."""
    return BinaryVector(_elements(vector.reshape(1, -1), _FLOAT)[0, 4:].tobytes())


def pack_vectors(vectors: FloatMatrix, column_type: str) -> BinaryVectors:
    """The rows of a float32 matrix, turned over in one go rather than number by number."""
    if column_type == "halfvec":
        # What is too large becomes infinite, which the server refuses.
        with np.errstate(over="ignore"):
            return BinaryHalfVectors(len(vectors), _elements(vectors, _HALF).tobytes())
    return BinaryVectors(len(vectors), _elements(vectors, _FLOAT).tobytes())


def _elements(vectors: FloatMatrix, number: np.dtype[Any]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    n, width = vectors.shape
    size = 4 + number.itemsize * width
    packed = np.empty((n, 4 + size), dtype=np.uint8)
    packed[:, :4] = np.array([size], dtype=">i4").view(np.uint8)
    packed[:, 4:8] = np.array([width, 0], dtype=">u2").view(np.uint8)
    packed[:, 8:] = vectors.astype(number).view(np.uint8)
    return packed


class _VectorDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer | None:
        value: bytes = obj
        return value


class _ArrayDumper(Dumper):
    format = Format.BINARY
    element_oid: int

    def dump(self, obj: Any) -> Buffer | None:
        vectors: BinaryVectors = obj
        # One dimension, no nulls, counted from 1.
        return struct.pack(">iiIii", 1, 0, self.element_oid, vectors.count, 1) + vectors.elements


class _VectorLoader(Loader):
    format = Format.BINARY
    number: np.dtype[Any] = _FLOAT

    def load(self, data: Buffer) -> Any:
        return np.frombuffer(data, dtype=self.number, offset=4).astype(np.float32)


class _HalfVectorLoader(_VectorLoader):
    number = _HALF


def register_vectors(connection: psycopg.Connection[Any], oids: Mapping[str, tuple[int, int]]) -> None:
    """Makes the connection send packed vectors and read vectors as float32 arrays.

    `oids` has, for `vector` and `halfvec`, the numbers of the type and of its array type in this database.
    """
    adapters = connection.adapters
    for name, packed, loader in (
        ("vector", BinaryVectors, _VectorLoader),
        ("halfvec", BinaryHalfVectors, _HalfVectorLoader),
    ):
        oid, array_oid = oids[name]
        adapters.register_loader(oid, loader)
        adapters.register_dumper(packed, type("Dumper", (_ArrayDumper,), {"oid": array_oid, "element_oid": oid}))
    adapters.register_dumper(BinaryVector, type("Dumper", (_VectorDumper,), {"oid": oids["vector"][0]}))


_STRING_OR_EXPONENT = re.compile(r'"(?:[^"\\]|\\.)*"|-?[\d.]+e\+\d+')


def to_json(value: Json) -> str:
    """JSON text that comes back from a jsonb column as it was.

    jsonb keeps numbers as decimals, so `1e+20` would come back as an integer: large floats are written out with a
    fraction, which jsonb keeps.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _STRING_OR_EXPONENT.sub(_written_out, text) if "e+" in text else text


def _written_out(match: re.Match[str]) -> str:
    token = match[0]
    return token if token.startswith('"') else f"{Decimal(token):f}.0"
