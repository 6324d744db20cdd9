"""How a collection is made, and what one that is there looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qdrant_client import models

    from .settings import QdrantSettings

MARK = "vecload"
"""The key in a collection's own metadata (Qdrant 1.16 and later) that tells it from one made again by hand."""


def arguments(settings: QdrantSettings, dimensions: int, mark: str, *, deferred: bool) -> dict[str, Any]:
    """What `create_collection` gets.

    `m=0` stores vectors without building a graph, so a first load takes neither the time nor the memory for it
    (documentation: Bulk Upload, "Defer HNSW graph construction"). The local mode keeps the width, the distance, the
    vector's name and the metadata, and passes over the rest.
    """
    from qdrant_client import models

    vector = models.VectorParams(size=dimensions, distance=models.Distance.COSINE, on_disk=settings.on_disk)
    name = settings.vector_name
    return {
        "vectors_config": vector if name is None else {name: vector},
        "hnsw_config": models.HnswConfigDiff(m=0 if deferred else settings.m, ef_construct=settings.ef_construct),
        "quantization_config": _quantization(settings),
        "on_disk_payload": settings.on_disk_payload,
        "shard_number": settings.shard_number,
        "replication_factor": settings.replication_factor,
        "metadata": {MARK: mark},
    }


def _quantization(settings: QdrantSettings) -> models.ScalarQuantization | models.BinaryQuantization | None:
    from qdrant_client import models

    match settings.quantization:
        case "none":
            return None
        case "scalar":
            scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=settings.always_ram)
            return models.ScalarQuantization(scalar=scalar)
        case "binary":
            binary = models.BinaryQuantizationConfig(always_ram=settings.always_ram)
            return models.BinaryQuantization(binary=binary)


def field_indexes(settings: QdrantSettings) -> dict[str, models.PayloadSchemaType]:
    """The JSON paths to index with their types. `source` and `document` are what a run filters by."""
    from qdrant_client import models

    wanted = {"source": "keyword", "document": "keyword", **settings.payload_indexes}
    return {json_path(field): models.PayloadSchemaType(kind) for field, kind in wanted.items()}


def json_path(field: str) -> str:
    """`metadata.NAME` as Qdrant's path: quoted, so that dots and blanks in NAME are part of it."""
    top, dot, name = field.partition(".")
    return f'{top}."{name}"' if dot else top


def vector_of(info: models.CollectionInfo, name: str | None) -> models.VectorParams | None:
    """The parameters of the vector that this sink writes, None when the collection has no such vector."""
    vectors: Any = info.config.params.vectors
    if isinstance(vectors, dict):
        return vectors.get(name or "")
    return vectors if name is None else None


def described(info: models.CollectionInfo) -> str:
    vectors: Any = info.config.params.vectors
    if not vectors:
        return "no dense vectors"
    if isinstance(vectors, dict):
        return " and ".join(in_words(params.size, params.distance, name) for name, params in vectors.items())
    return in_words(vectors.size, vectors.distance, None)


def in_words(dimensions: int, distance: models.Distance, name: str | None) -> str:
    label = "unnamed vectors" if not name else f"vectors named {name!r}"
    return f"{label} of {dimensions} dimensions ({distance.value})"
