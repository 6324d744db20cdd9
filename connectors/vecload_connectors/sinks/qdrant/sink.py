"""One collection of Qdrant as a sink."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vecload.connectorkit import Retrier, id_to_uuid, last_positions, uuid_to_id, without_doubles
from vecload.contracts import CollectionRecord
from vecload.documents import POINT_NAMESPACE, Hit, Json, Point, VectorBatch
from vecload.errors import RefusedError, SinkError, UsageError

if TYPE_CHECKING:
    from qdrant_client import models
    from qdrant_client.client_base import QdrantBase

    from vecload.documents import FloatMatrix

    from .stores import Store

T = TypeVar("T")

RECORDS = "_vecload"
"""The side collection that holds one point a collection: its record."""

_MAX_IDS = 1_000
"""Ids per request of a fetch or delete."""


class QdrantSink:
    def __init__(self, store: Store, collection: str) -> None:
        self.id = f"{store.id}#{collection}"
        self.capabilities = store.capabilities
        self._store = store
        self._name = collection
        self._target: str | None = None
        """The collection behind the alias, once known."""
        self._retrier = Retrier(lambda error: store.fault(error, f"Qdrant ({self.id})"))

    # ------------------------------------------------------------ the collection and its record

    def inspect(self) -> CollectionRecord | None:
        if not self._store.exists():
            return None
        target = self._resolve()
        if target is None:
            return None
        kept = self._record_of(self._name)
        if kept is None or kept["collection"] != target:
            raise RefusedError(
                f"The collection {self._name!r} in {self._store.id} was not made by vecload; "
                "give another --collection, or drop it first."
            )
        record = CollectionRecord.from_json(kept["record"])
        if self._width(target) != record.space.dimensions:
            raise RefusedError(
                f"The collection {self._name!r} in {self._store.id} was made again by something other than vecload "
                f"(it is not {record.space.dimensions} wide); give another --collection, or drop it first."
            )
        self._target = target
        return record

    def create(self, record: CollectionRecord) -> None:
        """The alias comes last, so a collection that was made by half is none yet, and the next run makes it whole."""
        from qdrant_client import models

        if self.inspect() is not None:
            self.save_record(record)
            return
        self._create_collection(RECORDS, 1, models.Distance.DOT)
        target = self._free_target(record.space.dimensions)
        self._put_record(target, record)
        self._create_collection(target, record.space.dimensions, models.Distance.COSINE)
        if self._store.indexes_payload:
            for field in ("source", "document"):
                self._index(target, field)
        alias = models.CreateAliasOperation(
            create_alias=models.CreateAlias(collection_name=target, alias_name=self._name)
        )
        self._call(lambda client: client.update_collection_aliases([alias]), writes=True)
        self._target = target

    def save_record(self, record: CollectionRecord) -> None:
        self._put_record(self._known_target(), record)

    def _resolve(self) -> str | None:
        """The collection that the name stands for, as an alias or as itself."""
        aliases = self._call(lambda client: client.get_aliases()).aliases
        target = next((a.collection_name for a in aliases if a.alias_name == self._name), None)
        if target is None and self._exists(self._name):
            target = self._name
        return target

    def _exists(self, target: str) -> bool:
        return self._call(lambda client: client.collection_exists(target))

    def _known_target(self) -> str:
        if self._target is None and self.inspect() is None:
            raise SinkError(
                f"The collection {self._name!r} is not there in {self._store.id}; it may have been dropped."
            )
        assert self._target is not None
        return self._target

    def _free_target(self, dimensions: int) -> str:
        """`NAME__1`, or the next number that is free, or that a creation cut short left empty."""
        number = 1
        while True:
            target = f"{self._name}__{number}"
            if not self._exists(target):
                return target
            kept = self._record_of(self._name)
            ours = kept is not None and kept["collection"] == target and self._width(target) == dimensions
            if ours and self._count(target) == 0:
                return target
            number += 1

    def _width(self, target: str) -> int | None:
        vectors = self._call(lambda client: client.get_collection(target)).config.params.vectors
        return getattr(vectors, "size", None)

    def _create_collection(self, target: str, dimensions: int, distance: models.Distance) -> None:
        from qdrant_client import models

        config = models.VectorParams(size=dimensions, distance=distance)

        def request(client: QdrantBase) -> None:
            # A repeat after an answer that was lost finds the collection there.
            if not client.collection_exists(target):
                client.create_collection(target, vectors_config=config)

        self._call(request, writes=True)

    def _index(self, target: str, field: str) -> None:
        from qdrant_client import models

        schema = models.PayloadSchemaType.KEYWORD
        self._call(lambda client: client.create_payload_index(target, field, field_schema=schema, wait=True))

    def _record_of(self, name: str) -> dict[str, Any] | None:
        if not self._exists(RECORDS):
            return None
        points = self._call(lambda client: client.retrieve(RECORDS, [_record_id(name)], with_payload=True))
        return points[0].payload if points else None

    def _put_record(self, target: str, record: CollectionRecord) -> None:
        payload: dict[str, Any] = {"name": self._name, "collection": target, "record": record.to_json()}
        batch = VectorBatch([uuid_to_id(_record_id(self._name))], np.ones((1, 1), dtype=np.float32), [payload])
        self._upsert(RECORDS, batch)

    # ------------------------------------------------------------ points

    def build_index(self) -> None:
        """Nothing to do: `create` leaves nothing out."""

    def upsert(self, batch: VectorBatch) -> None:
        if len(batch):
            self._upsert(self._known_target(), without_doubles(batch))

    def _upsert(self, target: str, batch: VectorBatch) -> None:
        self._call(lambda client: self._store.upsert(client, target, batch), writes=True)

    def update_payload(self, ids: Sequence[bytes], payloads: Sequence[Mapping[str, Json]]) -> None:
        """An id that is not there is passed over."""
        from qdrant_client import models

        target = self._known_target()
        # An unknown id would end the whole request with an error after some of its operations were applied.
        there = {point.id for point in self.fetch(ids, payloads=False)}
        operations: list[Any] = [
            models.OverwritePayloadOperation(
                overwrite_payload=models.SetPayload(payload=dict(payloads[i]), points=[id_to_uuid(ids[i])])
            )
            for i in last_positions(ids)
            if ids[i] in there
        ]
        if operations:
            self._call(lambda client: client.batch_update_points(target, operations, wait=True), writes=True)

    def delete(self, ids: Sequence[bytes]) -> None:
        target = self._known_target()
        for part in _parts(ids):
            self._delete(target, part)

    def _delete(self, target: str, uuids: list[Any]) -> None:
        from qdrant_client import models

        selector = models.PointIdsList(points=uuids)
        self._call(lambda client: client.delete(target, points_selector=selector, wait=True), writes=True)

    def fetch(self, ids: Sequence[bytes], *, vectors: bool = False, payloads: bool = True) -> list[Point]:
        target = self._known_target()
        found = [_point(r) for part in _parts(ids) for r in self._retrieve(target, part, payloads, vectors)]
        # Over gRPC a payload that was not asked for looks like an empty one.
        return found if payloads else [Point(point.id, None, point.vector) for point in found]

    def _retrieve(self, target: str, uuids: list[str], payloads: bool, vectors: bool) -> list[Any]:
        return self._call(lambda client: client.retrieve(target, uuids, with_payload=payloads, with_vectors=vectors))

    def scan(self, source: str | None = None, document: str | None = None) -> Iterator[Point]:
        target = self._known_target()
        chosen = {"source": source, "document": document}
        condition = _filter({field: value for field, value in chosen.items() if value is not None})
        offset: Any = None
        while True:
            records, offset = self._page(target, condition, offset)
            # A number as id is a point that something else put there.
            yield from (_point(record) for record in records if isinstance(record.id, str))
            if offset is None:
                return

    def _page(self, target: str, condition: models.Filter | None, offset: Any) -> tuple[list[Any], Any]:
        return self._call(
            lambda client: client.scroll(
                target, scroll_filter=condition, limit=self._store.page, offset=offset, with_payload=True
            )
        )

    def count(self) -> int:
        return self._count(self._known_target())

    def _count(self, target: str) -> int:
        return int(self._call(lambda client: client.count(target, exact=True)).count)

    def search(self, vector: FloatMatrix, limit: int, filter: Mapping[str, Json] | None = None) -> list[Hit]:
        from qdrant_client import models

        target = self._known_target()
        query = models.NearestQuery(nearest=vector.tolist())
        condition = _filter(filter or {})
        response = self._call(
            lambda client: client.query_points(
                target, query=query, limit=limit, query_filter=condition, with_payload=True
            )
        )
        return [Hit(uuid_to_id(str(p.id)), float(p.score), p.payload or {}) for p in response.points]

    def close(self) -> None:
        self._retrier.stop()
        self._store.close()

    def _call(self, request: Callable[[QdrantBase], T], writes: bool = False) -> T:
        return self._retrier.call(lambda: self._store.run(request, writes))


def _record_id(name: str) -> str:
    return str(uuid.uuid5(POINT_NAMESPACE, name))


def _parts(ids: Sequence[bytes]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _MAX_IDS):
        yield [id_to_uuid(point_id) for point_id in ids[start : start + _MAX_IDS]]


def _point(record: Any) -> Point:
    vector = None if record.vector is None else np.asarray(record.vector, dtype=np.float32)
    return Point(uuid_to_id(str(record.id)), record.payload, vector)


def _filter(equal: Mapping[str, Json]) -> models.Filter | None:
    from qdrant_client import models

    must: list[Any] = []
    for field, value in equal.items():
        top, dot, name = field.partition(".")
        key = f'{top}."{name}"' if dot else top
        match value:
            case None:
                must.append(models.IsNullCondition(is_null=models.PayloadField(key=key)))
            case bool() | int() | str():
                must.append(models.FieldCondition(key=key, match=models.MatchValue(value=value)))
            case float():
                must.append(models.FieldCondition(key=key, range=models.Range(gte=value, lte=value)))
            case _:
                raise UsageError(
                    f"The filter on {field!r} holds a list or an object; Qdrant compares single values only."
                )
    return models.Filter(must=must) if must else None
