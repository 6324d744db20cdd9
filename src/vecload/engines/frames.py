"""The frames between vecload and its worker: packed arrays, no object a text.

A request is a header (batch id, number of texts, number of tokens; three int64), then the offsets and the token ids,
both int32. A reply is a header (kind, batch id, rows, columns; four int64), then the float32 rows, or for READY and
FAILED `rows` bytes of JSON or text. The first request is a length (int64) and the worker's settings in JSON. Both ends
run on one machine, so the byte order is its own.
"""

from __future__ import annotations

import json
import struct
from socket import MSG_WAITALL
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from vecload.documents import TokenBatch

if TYPE_CHECKING:
    import socket

    from vecload.documents import FloatMatrix

_LENGTH = struct.Struct("=q")
_REQUEST = struct.Struct("=qqq")
_REPLY = struct.Struct("=qqqq")

VECTORS, FAILED, READY = range(3)
NO_BATCH = -1
"""The batch id of READY, and of FAILED when the worker as a whole failed; as a request it asks the worker to end."""


def write_settings(stream: BinaryIO, settings: dict[str, Any]) -> None:
    data = json.dumps(settings).encode()
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_settings(stream: BinaryIO) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    settings: dict[str, Any] = json.loads(_exactly(stream, length))
    return settings


def write_batch(stream: BinaryIO, number: int, batch: TokenBatch) -> None:
    stream.write(_REQUEST.pack(number, len(batch), batch.tokens))
    stream.write(np.ascontiguousarray(batch.offsets, dtype=np.int32).data)
    stream.write(np.ascontiguousarray(batch.ids, dtype=np.int32).data)
    stream.flush()


def write_end(stream: BinaryIO) -> None:
    stream.write(_REQUEST.pack(NO_BATCH, 0, 0))
    stream.flush()


def read_batch(stream: BinaryIO) -> tuple[int, TokenBatch] | None:
    """The next batch with its id; None when no more will come. Raises EOFError when the other end is gone."""
    number, texts, tokens = _REQUEST.unpack(_exactly(stream, _REQUEST.size))
    if number == NO_BATCH:
        return None
    offsets = np.frombuffer(_exactly(stream, 4 * (texts + 1)), dtype=np.int32)
    ids = np.frombuffer(_exactly(stream, 4 * tokens), dtype=np.int32)
    return number, TokenBatch(ids=ids, offsets=offsets)


def write_vectors(stream: BinaryIO, number: int, vectors: FloatMatrix) -> None:
    stream.write(_REPLY.pack(VECTORS, number, *vectors.shape))
    stream.write(np.ascontiguousarray(vectors, dtype=np.float32).data)
    stream.flush()


def write_text(stream: BinaryIO, kind: int, number: int, text: str) -> None:
    data = text.encode("utf-8", errors="replace")
    stream.write(_REPLY.pack(kind, number, len(data), 0) + data)
    stream.flush()


def read_reply(stream: BinaryIO | SocketReader) -> tuple[int, int, FloatMatrix | str]:
    """The kind, the batch id, and vectors or text. Raises EOFError when the worker is gone."""
    kind, number, rows, columns = _REPLY.unpack(_exactly(stream, _REPLY.size))
    if kind != VECTORS:
        return kind, number, _exactly(stream, rows).decode()
    return kind, number, np.frombuffer(_exactly(stream, 4 * rows * columns), dtype=np.float32).reshape(rows, columns)


class SocketReader:
    """The reading end of a socket, as a stream for `read_reply`.

    All of an answer comes in one call of the system. Through a pipe it would come in pieces of 64 KiB, and after each
    this thread would wait until the others let go of the interpreter: with four busy ones, over a second for 4 MiB.
    """

    def __init__(self, socket: socket.socket) -> None:
        self._socket = socket

    def readinto(self, view: memoryview) -> int:
        return self._socket.recv_into(view, len(view), MSG_WAITALL)


def _exactly(stream: BinaryIO | SocketReader, size: int) -> bytearray:
    # A bytearray, so that the arrays made over it can be written to.
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = stream.readinto(view[done:])  # type: ignore[union-attr]  # every buffered binary stream has it
        if not count:
            raise EOFError
        done += count
    return data
