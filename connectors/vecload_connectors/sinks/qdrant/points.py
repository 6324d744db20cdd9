"""Points in the forms that Qdrant takes, and what is refused before it is sent.

Over gRPC a server takes NaN and all-zero vectors without a word (its normalisation passes them through:
`cosine_preprocess` in lib/segment/src/spaces/simple.rs), and so does the folder. Such points are never found, or
always, so they are refused here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vecload.connectorkit import id_to_uuid
from vecload.documents import Json, VectorBatch
from vecload.errors import RejectedError

if TYPE_CHECKING:
    import numpy.typing as npt

REQUEST_BYTES = 5_000_000
"""Of a request, encoded: what Qdrant's FAQ advises ("keeping the entire batch size under 5MB"). The limit is 32 MiB."""
POINT_BYTES = (32 << 20) - (64 << 10)
"""The largest point: the limit, less what stands around the point."""

_LONG_NUMBER = re.compile(r"\d{19}")
_JSON_FLOAT_BYTES = 25
"""The longest float32 that was widened to 64 bits, with its comma."""


def check(batch: VectorBatch, dimensions: int) -> None:
    """Raises RejectedError for vectors that the store would refuse, or take and never find."""
    if batch.vectors.ndim != 2 or batch.vectors.shape[1] != dimensions:
        raise RejectedError(
            f"The vectors have the shape {batch.vectors.shape} and Qdrant wants {dimensions} wide ones."
        )
    _refuse(batch, np.logical_not(np.isfinite(batch.vectors).all(axis=1)), "holds NaN or infinity")
    _refuse(batch, np.logical_not(batch.vectors.any(axis=1)), "is all zeros, which has no direction to compare")


def _refuse(batch: VectorBatch, bad: npt.NDArray[np.bool_], what: str) -> None:
    if bad.any():
        position = int(bad.argmax())
        raise RejectedError(f"The vector of {_named(batch.ids[position], batch.payloads[position])} {what}.")


def _named(point_id: bytes, payload: Mapping[str, Json]) -> str:
    return f"the point {id_to_uuid(point_id)} (document {str(payload.get('document'))[:100]!r})"


def local_points(batch: VectorBatch, vector_name: str | None) -> list[Any]:
    """The batch for the local mode and for JSON: the only places where vectors become lists of Python floats."""
    from qdrant_client import models

    return [
        models.PointStruct.model_construct(
            id=id_to_uuid(point_id),
            vector=vector if vector_name is None else {vector_name: vector},
            payload=dict(payload),
        )
        for point_id, vector, payload in zip(batch.ids, batch.vectors.tolist(), batch.payloads, strict=True)
    ]


def grpc_points(batch: VectorBatch, vector_name: str | None) -> list[Any]:
    """Protobuf points whose vectors are copied as bytes.

    A packed repeated float field is a header and little-endian floats: taking the header from an empty-valued message
    and the floats from the array saves turning each number into a Python object (five times faster at 1,024
    dimensions). Raises RejectedError for a payload that does not fit the protocol, such as an integer over 64 bits.
    """
    from qdrant_client import grpc
    from qdrant_client.conversions.conversion import payload_to_grpc

    width = batch.vectors.shape[1]
    header = grpc.DenseVector(data=[0.0] * width).SerializeToString()[: -4 * width]
    rows = batch.vectors.astype("<f4", copy=False)
    points = []
    for point_id, row, payload in zip(batch.ids, rows, batch.payloads, strict=True):
        vector = grpc.Vector(dense=grpc.DenseVector.FromString(header + row.tobytes()))
        if vector_name is None:
            vectors = grpc.Vectors(vector=vector)
        else:
            vectors = grpc.Vectors(vectors=grpc.NamedVectors(vectors={vector_name: vector}))
        id_ = grpc.PointId(uuid=id_to_uuid(point_id))
        try:
            points.append(grpc.PointStruct(id=id_, vectors=vectors, payload=payload_to_grpc(dict(payload))))
        except ValueError as error:
            raise RejectedError(
                f"The payload of {_named(point_id, payload)} does not fit Qdrant's protocol: {error}."
            ) from error
    return points


def json_sizes(batch: VectorBatch) -> list[int]:
    """Bytes of each point as JSON, from above."""
    vector = _JSON_FLOAT_BYTES * batch.vectors.shape[1]
    return [vector + payload_bytes(payload) for payload in batch.payloads]


def payload_bytes(payload: Mapping[str, Json]) -> int:
    """Bytes of a payload as JSON with its escapes, from above.

    Raises RejectedError for numbers that JSON or the server would turn into others: NaN, integers over 64 bits.
    """
    try:
        text = json.dumps(payload, allow_nan=False)
    except ValueError as error:
        raise RejectedError(f"The payload of document {payload.get('document')!r} is not JSON: {error}.") from error
    if _LONG_NUMBER.search(text) and not _fits(payload):
        raise RejectedError(f"The payload of document {payload.get('document')!r} holds an integer over 64 bits.")
    return len(text) + 100


def _fits(value: Json | Mapping[str, Json]) -> bool:
    if isinstance(value, Mapping):
        return all(map(_fits, value.values()))
    if isinstance(value, list):
        return all(map(_fits, value))
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63


def parts(batch: VectorBatch, sizes: Sequence[int]) -> Iterator[slice]:
    """Cuts a batch into requests by the encoded sizes of its points. Raises RejectedError before the first cut."""
    for point_id, payload, size in zip(batch.ids, batch.payloads, sizes, strict=True):
        if size > POINT_BYTES:
            raise RejectedError(
                f"Sending {_named(point_id, payload)} would take {size / (1 << 20):.1f} MiB, and Qdrant takes "
                "requests of at most 32; shorten its text or its metadata."
            )
    return cuts(sizes)


def cuts(sizes: Sequence[int]) -> Iterator[slice]:
    """Slices of at most `REQUEST_BYTES` together; an item that is larger stands alone."""
    start, total = 0, 0
    for position, size in enumerate(sizes):
        if position > start and total + size > REQUEST_BYTES:
            yield slice(start, position)
            start, total = position, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes))
