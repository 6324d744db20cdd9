"""One collection of Milvus as a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vecload.connectorkit import Retrier, id_to_uuid, last_positions, uuid_to_id, without_doubles
from vecload.contracts import CollectionRecord
from vecload.documents import Hit, Json, Point, VectorBatch
from vecload.errors import RefusedError, RejectedError, SinkError

from . import schema

if TYPE_CHECKING:
    from pymilvus import CollectionSchema, MilvusClient

    from vecload.documents import FloatMatrix

    from .settings import ConsistencyLevel
    from .stores import Store

T = TypeVar("T")

RECORDS = "_vecload"
"""The side collection that holds the records, in parts."""

_MAX_IDS = 500
"""Ids per request of a fetch or delete."""
_MAX_HITS = 16_384
"""The most that Milvus returns for one search."""


class MilvusSink:
    def __init__(self, store: Store, collection: str, consistency: ConsistencyLevel) -> None:
        self.id = f"{store.id}#{collection}"
        self.capabilities = store.capabilities
        self._store = store
        self._name = collection
        self._consistency = consistency
        self._target: str | None = None
        """The collection behind the alias, once known."""
        self._dimensions = 0
        self._retrier = Retrier(lambda error: store.fault(error, f"Milvus ({self.id})"))

    # ------------------------------------------------------------ the collection and its record

    def inspect(self) -> CollectionRecord | None:
        if not self._store.exists():
            return None
        description = self._describe(self._name)
        if description is None:
            return None
        target = description["collection_name"]
        kept = self._record_of(self._name)
        if kept is None or kept["collection"] != target:
            raise RefusedError(
                f"The collection {self._name!r} in {self._store.id} was not made by vecload; "
                "give another --collection, or drop it first."
            )
        record = CollectionRecord.from_json(kept["record"])
        if schema.width(description) != record.space.dimensions:
            raise RefusedError(
                f"The collection {self._name!r} in {self._store.id} was made again by something other than vecload "
                f"(its fields are not ours, or it is not {record.space.dimensions} wide); "
                "give another --collection, or drop it first."
            )
        self._load(target)
        self._use(target, record)
        return record

    def create(self, record: CollectionRecord) -> None:
        """The alias comes last, so a collection that was made by half is none yet, and the next run makes it whole."""
        if self.inspect() is not None:
            self.save_record(record)
            return
        self._create_collection(RECORDS, schema.records_schema())
        dimensions = record.space.dimensions
        target = self._free_target(dimensions)
        self._put_record(target, record)
        self._create_collection(target, schema.points_schema(dimensions))
        self._call(lambda client: self._name_it(client, target))
        self._use(target, record)

    def _name_it(self, client: MilvusClient, target: str) -> None:
        # A collection that was dropped may have left its alias behind: it names nothing, and is in the way.
        client.drop_alias(self._name, timeout=self._store.timeout)
        client.create_alias(target, self._name, timeout=self._store.timeout)

    def save_record(self, record: CollectionRecord) -> None:
        self._put_record(self._known_target(), record)

    def _use(self, target: str, record: CollectionRecord) -> None:
        self._target, self._dimensions = target, record.space.dimensions

    def _describe(self, name: str) -> dict[str, Any] | None:
        """Of a collection, or of that behind an alias."""

        def request(client: MilvusClient) -> dict[str, Any] | None:
            if not client.has_collection(name, timeout=self._store.timeout):
                return None
            description: dict[str, Any] = client.describe_collection(name, timeout=self._store.timeout)
            return description

        return self._call(request)

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
            description = self._describe(target)
            if description is None:
                return target
            kept = self._record_of(self._name)
            ours = kept is not None and kept["collection"] == target and schema.width(description) == dimensions
            if ours:
                self._create_collection(target, schema.points_schema(dimensions))
                if self._count(target) == 0:
                    return target
            number += 1

    def _create_collection(self, target: str, fields: CollectionSchema) -> None:
        """With its index, and loaded. Each step finds what a creation cut short, or an answer lost, left behind."""
        timeout = self._store.timeout

        def request(client: MilvusClient) -> None:
            if not client.has_collection(target, timeout=timeout):
                client.create_collection(
                    target, schema=fields, consistency_level=self._consistency, num_shards=1, timeout=timeout
                )
            if not client.list_indexes(target, timeout=timeout):
                index = client.prepare_index_params("embedding", index_type="AUTOINDEX", metric_type="COSINE")
                client.create_index(target, index, timeout=timeout, sync=False)

        self._call(request)
        self._load(target)

    def _load(self, target: str) -> None:
        """Into the memory of the store, without which nothing can be read; at once where it is there already."""
        self._call(lambda client: client.load_collection(target, timeout=self._store.timeout))

    def _record_of(self, name: str) -> dict[str, Any] | None:
        if self._describe(RECORDS) is None:
            return None
        self._load(RECORDS)
        return schema.record_content(self._query(RECORDS, schema.of_record(name), list(schema.RECORD_FIELDS)))

    def _put_record(self, target: str, record: CollectionRecord) -> None:
        rows = schema.record_rows(self._name, {"collection": target, "record": record.to_json()})
        self._upsert(RECORDS, rows)

    def build_index(self) -> None:
        """Nothing to do: `create` leaves nothing out. Without an index Milvus reads nothing, not even an id, and it
        builds the one that is there over each segment when that is full, in the background.
        """

    # ------------------------------------------------------------ points

    def upsert(self, batch: VectorBatch) -> None:
        if not len(batch):
            return
        target = self._known_target()
        # Milvus counts numbers rather than vectors, and Milvus Lite takes NaN.
        if batch.vectors.shape[1] != self._dimensions:
            raise RejectedError(
                f"The vectors are {batch.vectors.shape[1]} wide and Milvus ({self.id}) takes {self._dimensions}."
            )
        if not np.isfinite(batch.vectors).all():
            raise RejectedError(f"A vector holds NaN or infinity, which Milvus ({self.id}) does not take.")
        # A server keeps both of two points with one id in one request.
        self._upsert(target, schema.point_rows(without_doubles(batch)))

    def _upsert(self, target: str, rows: list[dict[str, Any]]) -> None:
        self._call(lambda client: client.upsert(target, rows, timeout=self._store.timeout))

    def update_payload(self, ids: Sequence[bytes], payloads: Sequence[Mapping[str, Json]]) -> None:
        """By writing the points anew with the vectors they have. An id that is not there is passed over."""
        latest = {ids[i]: payloads[i] for i in last_positions(ids)}
        found = self.fetch(list(latest), vectors=True, payloads=False)
        if found:
            vectors = np.stack([point.vector for point in found if point.vector is not None])
            self.upsert(VectorBatch([point.id for point in found], vectors, [latest[point.id] for point in found]))

    def delete(self, ids: Sequence[bytes]) -> None:
        target = self._known_target()
        for part in _parts(ids):
            self._delete(target, schema.one_of(part))

    def _delete(self, target: str, condition: str) -> None:
        self._call(lambda client: client.delete(target, filter=condition, timeout=self._store.timeout))

    def fetch(self, ids: Sequence[bytes], *, vectors: bool = False, payloads: bool = True) -> list[Point]:
        target = self._known_target()
        fields = ["id", *(schema.PAYLOAD if payloads else ()), *(["embedding"] if vectors else [])]
        return [
            schema.point(row, payloads=payloads, vectors=vectors)
            for part in _parts(ids)
            for row in self._rows(target, part, fields)
        ]

    def _rows(self, target: str, uuids: list[str], fields: list[str]) -> list[Any]:
        try:
            return self._query(target, schema.one_of(uuids), fields)
        except RejectedError:
            # The answer is larger than one may be.
            if len(uuids) == 1:
                raise
        middle = len(uuids) // 2
        return self._rows(target, uuids[:middle], fields) + self._rows(target, uuids[middle:], fields)

    def scan(self, source: str | None = None, document: str | None = None) -> Iterator[Point]:
        """Page by page in the order of ids, each a request of its own, so that one that fails can be repeated."""
        target = self._known_target()
        chosen = {"source": source, "document": document}
        filters = schema.conditions({field: value for field, value in chosen.items() if value is not None})
        page, last = self._store.page, None
        while True:
            condition = " and ".join([schema.behind(last), *filters])
            try:
                rows = self._query(target, condition, ["id", *schema.PAYLOAD], page=page)
            except RejectedError:
                # The answer is larger than one may be.
                if page == 1:
                    raise
                page = max(page // 4, 1)
                continue
            for row in rows:
                yield schema.point(row, payloads=True, vectors=False)
            if len(rows) < page:
                return
            last = rows[-1]["id"]

    def count(self) -> int:
        return self._count(self._known_target())

    def _count(self, target: str) -> int:
        return int(self._query(target, "", ["count(*)"])[0]["count(*)"])

    def _query(self, target: str, condition: str, fields: list[str], page: int | None = None) -> list[Any]:
        """The rows that fulfil the condition, or with `page` the first so many of them in the order of ids."""
        # What the client's own iterator sends: without it the first so many are any so many.
        ordered = {"limit": page, "iterator": "True", "reduce_stop_for_best": "True"} if page else {}
        return self._call(
            lambda client: list(
                client.query(
                    target,
                    filter=condition,
                    output_fields=fields,
                    consistency_level="Strong",
                    timeout=self._store.timeout,
                    **ordered,
                )
            )
        )

    def search(self, vector: FloatMatrix, limit: int, filter: Mapping[str, Json] | None = None) -> list[Hit]:
        target = self._known_target()
        condition = " and ".join(schema.conditions(filter or {}))
        null = schema.nulls(filter or {})
        wanted = min(limit, _MAX_HITS)
        while True:
            hits = self._search(target, vector, wanted, condition)
            # Milvus 2.3 cannot ask for null, so the nearest are sifted here, more of them if too few are left.
            kept = [hit for hit in hits if all(_is_null(hit.payload, name) for name in null)]
            if len(kept) >= limit or len(hits) < wanted or wanted == _MAX_HITS:
                return kept[:limit]
            wanted = min(8 * wanted, _MAX_HITS)

    def _search(self, target: str, vector: FloatMatrix, limit: int, condition: str) -> list[Hit]:
        (found,) = self._call(
            lambda client: client.search(
                target,
                data=[vector],
                anns_field="embedding",
                filter=condition,
                limit=limit,
                output_fields=["id", *schema.PAYLOAD],
                consistency_level=self._consistency,
                timeout=self._store.timeout,
            )
        )
        return [Hit(uuid_to_id(hit["id"]), float(hit["distance"]), schema.payload_of(hit["entity"])) for hit in found]

    def close(self) -> None:
        self._retrier.stop()
        self._store.close()

    def _call(self, request: Callable[[MilvusClient], T]) -> T:
        return self._retrier.call(lambda: self._store.run(request))


def _parts(ids: Sequence[bytes]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _MAX_IDS):
        yield [id_to_uuid(point_id) for point_id in ids[start : start + _MAX_IDS]]


def _is_null(payload: Mapping[str, Json], name: str) -> bool:
    metadata = payload["metadata"]
    return isinstance(metadata, dict) and name in metadata and metadata[name] is None
