"""Values as PostgreSQL carries them: vectors in binary, JSON without losing a float."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format

from vecload.documents import Json

if TYPE_CHECKING:
    import psycopg

    from vecload.documents import FloatMatrix

_HEADER = np.dtype(">u2")
_FLOAT = np.dtype(">f4")


class BinaryVector(bytes):
    """One vector in pgvector's binary form: the width and a zero as uint16, then big-endian float32."""


def pack_vectors(vectors: FloatMatrix) -> list[BinaryVector]:
    """The rows of a float32 matrix, turned over in one go rather than number by number."""
    n, width = vectors.shape
    packed = np.empty((n, 4 + 4 * width), dtype=np.uint8)
    packed[:, :4] = np.array([width, 0], dtype=_HEADER).view(np.uint8)
    packed[:, 4:] = vectors.astype(_FLOAT).view(np.uint8)
    return [BinaryVector(row.tobytes()) for row in packed]


class _VectorDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer | None:
        value: bytes = obj
        return value


class _VectorLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> Any:
        return np.frombuffer(data, dtype=_FLOAT, offset=4).astype(np.float32)


def register_vector(connection: psycopg.Connection[Any], oid: int) -> None:
    """Makes the connection send BinaryVector as the type `oid` and read that type as float32 arrays."""
    dumper = type("VectorDumper", (_VectorDumper,), {"oid": oid})
    connection.adapters.register_dumper(BinaryVector, dumper)
    connection.adapters.register_loader(oid, _VectorLoader)


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
