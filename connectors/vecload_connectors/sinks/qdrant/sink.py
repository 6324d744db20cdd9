"""One collection of Qdrant as a sink."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vecload.connectorkit import Retrier, id_to_uuid, last_positions, uuid_to_id, without_doubles
from vecload.contracts import CollectionRecord
from vecload.documents import POINT_NAMESPACE, Hit, Json, Point, VectorBatch
from vecload.errors import RefusedError, SinkError, UsageError

from .indexing import build
from .points import check, cuts, payload_bytes
from .schema import MARK, arguments, described, field_indexes, in_words, json_path, vector_of

if TYPE_CHECKING:
    from qdrant_client import models
    from qdrant_client.client_base import QdrantBase

    from vecload.documents import FloatMatrix

    from .settings import QdrantSettings
    from .stores import Store

T = TypeVar("T")

RECORDS = "_vecload"
"""The side collection that holds one point a collection: its record."""

_MAX_IDS = 1_000
"""Ids per request of a fetch or delete."""


class QdrantSink:
    def __init__(self, store: Store, settings: QdrantSettings, collection: str) -> None:
        self.id = f"{store.id}#{collection}"
        self.capabilities = store.capabilities
        self._store = store
        self._settings = settings
        self._name = collection
        self._target: str | None = None
        """The collection behind the alias, once known."""
        self._dimensions = 0
        self._mark: str | None = None
        """What the collection's own metadata says, where the server keeps such (see schema.MARK)."""
        self._closing = threading.Event()
        self._retrier = Retrier(lambda error: store.fault(error, f"Qdrant ({self.id})"))

    # ------------------------------------------------------------ the collection and its record

    def inspect(self) -> CollectionRecord | None:
        if not self._store.exists():
            return None
        target = self._resolve()
        if target is None:
            return None
        info = self._info(target)
        kept = self._record_of(self._name)
        if kept is None or kept["collection"] != target:
            raise RefusedError(
                f"The collection {self._name!r} in {self._store.id} was not made by vecload: it holds about "
                f"{info.points_count or 0} points with {described(info)}; give another --collection, or drop it first."
            )
        record = CollectionRecord.from_json(kept["record"])
        self._check_shape(info, record.space.dimensions)
        if kept.get("mark") is not None and (info.config.metadata or {}).get(MARK) != kept["mark"]:
            raise RefusedError(
                f"The collection {self._name!r} in {self._store.id} was dropped and made again by something other "
                "than vecload; give another --collection, or drop it first."
            )
        self._target, self._mark, self._dimensions = target, kept.get("mark"), record.space.dimensions
        return record

    def create(self, record: CollectionRecord) -> None:
        """The alias comes last, so a collection that was made by half is none yet, and the next run makes it whole."""
        from qdrant_client import models

        if self.inspect() is not None:
            self.save_record(record)
            return
        # One copy of the records on each of as many nodes as the points have.
        records = {"shard_number": 1, "replication_factor": self._settings.replication_factor}
        point = models.VectorParams(size=1, distance=models.Distance.DOT)
        self._create_collection(RECORDS, {"vectors_config": point, **records})
        self._dimensions = record.space.dimensions
        target = self._free_target(self._dimensions)
        self._put_record(target, record)
        deferred = record.index == "pending"
        options = arguments(self._settings, self._dimensions, uuid.uuid4().hex, deferred=deferred)
        self._create_collection(target, options)
        # A server before 1.16 keeps no metadata: then a collection made again with the same shape is not noticed.
        self._mark = (self._info(target).config.metadata or {}).get(MARK)
        self._put_record(target, record)
        if self._store.indexes_payload:
            for path, schema in field_indexes(self._settings).items():
                self._index(target, path, schema)
        alias = models.CreateAliasOperation(
            create_alias=models.CreateAlias(collection_name=target, alias_name=self._name)
        )
        self._call(lambda client: client.update_collection_aliases([alias]), writes=True)
        self._target = target

    def _check_shape(self, info: models.CollectionInfo, dimensions: int) -> None:
        from qdrant_client import models

        name = self._settings.vector_name
        found = vector_of(info, name)
        if found is None or (found.size, found.distance) != (dimensions, models.Distance.COSINE):
            raise RefusedError(
                f"The collection {self._name!r} in {self._store.id} holds {described(info)}, and this job writes "
                f"{in_words(dimensions, models.Distance.COSINE, name)}; set sink.vector_name to what is there, give "
                "another --collection, or drop it first."
            )

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
            found = vector_of(self._info(target), self._settings.vector_name)
            fits = found is not None and found.size == dimensions
            ours = fits and kept is not None and kept["collection"] == target
            if ours and self._count(target) == 0:
                return target
            number += 1

    def _info(self, target: str) -> models.CollectionInfo:
        return self._call(lambda client: client.get_collection(target))

    def _create_collection(self, target: str, options: dict[str, Any]) -> None:
        def request(client: QdrantBase) -> None:
            # A repeat after an answer that was lost finds the collection there.
            if not client.collection_exists(target):
                client.create_collection(target, **options)

        self._call(request, writes=True)

    def _index(self, target: str, path: str, schema: models.PayloadSchemaType) -> None:
        self._call(lambda client: client.create_payload_index(target, path, field_schema=schema, wait=True))

    def _record_of(self, name: str) -> dict[str, Any] | None:
        if not self._exists(RECORDS):
            return None
        points = self._call(lambda client: client.retrieve(RECORDS, [_record_id(name)], with_payload=True))
        return points[0].payload if points else None

    def _put_record(self, target: str, record: CollectionRecord) -> None:
        payload: dict[str, Any] = {"name": self._name, "collection": target, "record": record.to_json()}
        payload["mark"] = self._mark
        batch = VectorBatch([uuid_to_id(_record_id(self._name))], np.ones((1, 1), dtype=np.float32), [payload])
        self._write(RECORDS, batch, None)

    # ------------------------------------------------------------ points

    def build_index(self) -> None:
        """Raises SinkError when the server takes longer than `index_timeout`; it goes on, and the next run waits on."""
        build(self._call, self._known_target(), self._settings, self._dimensions, self._closing)

    def upsert(self, batch: VectorBatch) -> None:
        if len(batch):
            target = self._known_target()
            check(batch, self._dimensions)
            self._write(target, without_doubles(batch), self._settings.vector_name)

    def _write(self, target: str, batch: VectorBatch, vector_name: str | None) -> None:
        for request in self._store.upserts(target, batch, vector_name):
            self._call(request, writes=True)

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
        sizes = [payload_bytes(operation.overwrite_payload.payload) for operation in operations]
        for part in cuts(sizes):
            self._update(target, operations[part])

    def _update(self, target: str, operations: list[Any]) -> None:
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
        name = self._settings.vector_name
        found = [_point(r, name) for part in _parts(ids) for r in self._retrieve(target, part, payloads, vectors)]
        # Over gRPC a payload that was not asked for looks like an empty one.
        return found if payloads else [Point(point.id, None, point.vector) for point in found]

    def _retrieve(self, target: str, uuids: list[str], payloads: bool, vectors: bool) -> list[Any]:
        name = self._settings.vector_name
        wanted: bool | list[str] = [name] if vectors and name else vectors
        return self._call(lambda client: client.retrieve(target, uuids, with_payload=payloads, with_vectors=wanted))

    def scan(self, source: str | None = None, document: str | None = None) -> Iterator[Point]:
        target = self._known_target()
        chosen = {"source": source, "document": document}
        condition = _filter({field: value for field, value in chosen.items() if value is not None})
        offset: Any = None
        while True:
            records, offset = self._page(target, condition, offset)
            # A number as id is a point that something else put there.
            yield from (_point(record, None) for record in records if isinstance(record.id, str))
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
                target,
                query=query,
                using=self._settings.vector_name,
                limit=limit,
                query_filter=condition,
                with_payload=True,
            )
        )
        return [Hit(uuid_to_id(str(p.id)), float(p.score), p.payload or {}) for p in response.points]

    def close(self) -> None:
        self._closing.set()
        self._retrier.stop()
        self._store.close()

    def _call(self, request: Callable[[QdrantBase], T], writes: bool = False) -> T:
        return self._retrier.call(lambda: self._store.run(request, writes))


def _record_id(name: str) -> str:
    return str(uuid.uuid5(POINT_NAMESPACE, name))


def _parts(ids: Sequence[bytes]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _MAX_IDS):
        yield [id_to_uuid(point_id) for point_id in ids[start : start + _MAX_IDS]]


def _point(record: Any, vector_name: str | None) -> Point:
    found = record.vector.get(vector_name) if vector_name and record.vector else record.vector
    vector = None if found is None else np.asarray(found, dtype=np.float32)
    return Point(uuid_to_id(str(record.id)), record.payload, vector)


def _filter(equal: Mapping[str, Json]) -> models.Filter | None:
    from qdrant_client import models

    must: list[Any] = []
    for field, value in equal.items():
        key = json_path(field)
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
