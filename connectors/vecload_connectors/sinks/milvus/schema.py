"""The fields of a collection, points as rows of them, and filters in Milvus' expression language."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vecload.connectorkit import id_to_uuid, uuid_to_id
from vecload.documents import Json, Point, VectorBatch
from vecload.errors import UsageError

if TYPE_CHECKING:
    from pymilvus import CollectionSchema

MAX_TEXT_BYTES = 65_535
MAX_DIMENSIONS = 32_768
_MAX_HEADINGS = 1_024

_TEXTS = {"source": MAX_TEXT_BYTES, "document": MAX_TEXT_BYTES, "text": MAX_TEXT_BYTES, "text_hash": 64}
_NUMBERS = ("ordinal", "start", "end")
PAYLOAD = (*_TEXTS, *_NUMBERS, "headings", "metadata")

RECORD_FIELDS = ("name", "part", "parts", "content")
RECORD_PART = 60_000
"""Bytes of one row: a record with the probe vectors of a wide model is longer than a string may be."""


def points_schema(dimensions: int) -> CollectionSchema:
    from pymilvus import CollectionSchema, DataType, FieldSchema

    return CollectionSchema(
        [
            FieldSchema("id", DataType.VARCHAR, is_primary=True, max_length=36),
            *(FieldSchema(name, DataType.VARCHAR, max_length=length) for name, length in _TEXTS.items()),
            *(FieldSchema(name, DataType.INT64) for name in _NUMBERS),
            FieldSchema(
                "headings",
                DataType.ARRAY,
                element_type=DataType.VARCHAR,
                max_capacity=_MAX_HEADINGS,
                max_length=MAX_TEXT_BYTES,
            ),
            # On a server of 2.3 a JSON value is an object; so the headings are not JSON.
            FieldSchema("metadata", DataType.JSON),
            FieldSchema("embedding", DataType.FLOAT_VECTOR, dim=dimensions),
        ]
    )


def records_schema() -> CollectionSchema:
    from pymilvus import CollectionSchema, DataType, FieldSchema

    return CollectionSchema(
        [
            FieldSchema("id", DataType.VARCHAR, is_primary=True, max_length=300),
            FieldSchema("name", DataType.VARCHAR, max_length=255),
            FieldSchema("part", DataType.INT64),
            FieldSchema("parts", DataType.INT64),
            FieldSchema("content", DataType.VARCHAR, max_length=MAX_TEXT_BYTES),
            # A collection without a vector is none.
            FieldSchema("embedding", DataType.FLOAT_VECTOR, dim=2),
        ]
    )


def width(description: Mapping[str, Any]) -> int | None:
    """The dimensions of a collection that has our fields; None: it has not."""
    fields = {field["name"]: field for field in description["fields"]}
    if not {"id", *PAYLOAD, "embedding"} <= fields.keys():
        return None
    dimensions = fields["embedding"]["params"].get("dim")
    return None if dimensions is None else int(dimensions)


def point_rows(batch: VectorBatch) -> list[dict[str, Any]]:
    return [
        {
            **payload,
            "id": id_to_uuid(point_id),
            # As text: the client would walk through an object value by value.
            "metadata": json.dumps(payload["metadata"], ensure_ascii=False, separators=(",", ":")),
            "embedding": vector,
        }
        for point_id, payload, vector in zip(batch.ids, batch.payloads, batch.vectors, strict=True)
    ]


def point(row: Mapping[str, Any], *, payloads: bool, vectors: bool) -> Point:
    return Point(
        uuid_to_id(row["id"]),
        payload_of(row) if payloads else None,
        np.asarray(row["embedding"], dtype=np.float32) if vectors else None,
    )


def payload_of(row: Mapping[str, Any]) -> dict[str, Json]:
    return {**{name: row[name] for name in PAYLOAD}, "headings": list(row["headings"])}


def record_rows(name: str, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = json.dumps(content)
    parts = [text[start : start + RECORD_PART] for start in range(0, len(text), RECORD_PART)]
    return [
        {
            "id": f"{name}/{i}",
            "name": name,
            "part": i,
            "parts": len(parts),
            "content": part,
            "embedding": np.ones(2, dtype=np.float32),
        }
        for i, part in enumerate(parts)
    ]


def record_content(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What :func:`record_rows` took. Rows beyond the number of parts are left over from a longer record."""
    parts = {row["part"]: row for row in rows}
    if 0 not in parts:
        return None
    content: dict[str, Any] = json.loads("".join(parts[i]["content"] for i in range(parts[0]["parts"])))
    return content


# ------------------------------------------------------------ filters


def one_of(uuids: Sequence[str]) -> str:
    return f"id in [{', '.join(map(_literal, uuids))}]"


def behind(last: str | None) -> str:
    """All points, or those behind one in the order of ids."""
    return 'id > ""' if last is None else f"id > {_literal(last)}"


def of_record(name: str) -> str:
    return f"name == {_literal(name)}"


def conditions(equal: Mapping[str, Json]) -> list[str]:
    """Expressions for the fields and values, but for null, which Milvus 2.3 cannot ask for: see :func:`nulls`."""
    return [f"{_field(field)} == {_value(field, value)}" for field, value in equal.items() if value is not None]


def nulls(equal: Mapping[str, Json]) -> list[str]:
    """The names in the metadata that have to be there and null."""
    found = [field for field, value in equal.items() if value is None]
    for field in found:
        if not field.startswith("metadata."):
            raise UsageError(f"The filter field {field!r} is never null; use metadata.NAME.")
    return [field.removeprefix("metadata.") for field in found]


def _field(field: str) -> str:
    top, dot, name = field.partition(".")
    if top == "metadata" and dot:
        return f"metadata[{_literal(name)}]"
    if field in (*_TEXTS, *_NUMBERS):
        return field
    raise UsageError(f"The filter field {field!r} is unknown; use source, document or metadata.NAME.")


def _value(field: str, value: Json) -> str:
    if isinstance(value, (list, dict)):
        raise UsageError(f"The filter on {field!r} holds a list or an object; Milvus compares single values only.")
    return _literal(value)


def _literal(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
