"""One table of PostgreSQL with pgvector as a sink."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from psycopg.sql import Composed

from vecload.connectorkit import last_positions
from vecload.contracts import CollectionRecord, SinkCapabilities
from vecload.documents import Hit, Json, Point, VectorBatch
from vecload.errors import RejectedError, UsageError

from . import columns, layout, statements
from .binary import pack_vector, pack_vectors, to_json
from .settings import PgvectorSettings
from .table import Table, too_wide_advice

if TYPE_CHECKING:
    import psycopg

    from vecload.documents import FloatMatrix

    Connection = psycopg.Connection[Any]

CAPABILITIES = SinkCapabilities(
    max_request_bytes=32 << 20,
    max_request_points=2_000,
    concurrent_writers=4,
    # PostgreSQL's limit is 1 GB a value; the staged JSON and text share one row of the protocol.
    max_text_bytes=256 << 20,
)

_PAGE = 2_000


class PgvectorSink:
    def __init__(self, table: Table, settings: PgvectorSettings) -> None:
        self.id = table.id
        self.capabilities = replace(
            CAPABILITIES,
            max_dimensions=layout.max_dimensions(settings),
            too_wide_advice=too_wide_advice(settings),
            deferred_index=settings.index == "defer" and settings.index_type != "none",
        )
        self._table = table

    def inspect(self) -> CollectionRecord | None:
        return self._table.inspect()

    def create(self, record: CollectionRecord) -> None:
        self._table.create(record)

    def save_record(self, record: CollectionRecord) -> None:
        self._table.save_record(record)

    def build_index(self) -> None:
        self._table.build_index()

    def upsert(self, batch: VectorBatch) -> None:
        if not len(batch):
            return
        sql = self._table.statements
        order = _in_order(batch.ids)
        vectors = pack_vectors(batch.vectors[order], sql.layout.column_type)
        self._write(sql.upsert, [*_arrays(batch.ids, batch.payloads, order), vectors])

    def update_payload(self, ids: Sequence[bytes], payloads: Sequence[Mapping[str, Json]]) -> None:
        """An id that is not there is passed over."""
        if ids:
            self._write(self._table.statements.update_payload, _arrays(ids, payloads, _in_order(ids)))

    def _write(self, statement: Composed, arrays: Sequence[Any]) -> None:
        typed = bool(self._table.statements.layout.columns)

        def request(connection: Connection) -> None:
            self._table.extension()
            if not typed:
                connection.execute(statement, arrays)
                return
            with connection.transaction():
                connection.execute(columns.UTC)
                connection.execute(statement, arrays)

        self._table.call(request)

    def delete(self, ids: Sequence[bytes]) -> None:
        if ids:
            uuids = [uuid.UUID(bytes=point_id) for point_id in ids]
            sql = self._table.statements
            self._table.call(lambda c: c.execute(sql.delete, (uuids,)))

    def fetch(self, ids: Sequence[bytes], *, vectors: bool = False, payloads: bool = True) -> list[Point]:
        if not ids:
            return []
        uuids = [uuid.UUID(bytes=point_id) for point_id in ids]
        statement = self._table.statements.fetch(vectors=vectors, payloads=payloads)
        rows = self._table.call(lambda c: c.execute(statement, (uuids,), binary=True).fetchall())
        return [
            Point(row[0].bytes, _payload(row[1:]) if payloads else None, row[-1] if vectors else None) for row in rows
        ]

    def scan(self, source: str | None = None, document: str | None = None) -> Iterator[Point]:
        """Page by page, each a request of its own, so that no connection and no snapshot is held in between."""
        after: tuple[Any, ...] = ()
        while True:
            statement, arguments = self._table.statements.page(source, document, after, _PAGE)
            rows = self._read(statement, arguments)
            for row in rows:
                yield Point(row[0].bytes, _payload(row[1:]))
            if len(rows) < _PAGE:
                return
            after = (rows[-1][0],) if source is None else (rows[-1][2], rows[-1][0])

    def _read(self, statement: Composed, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._table.call(lambda c: c.execute(statement, arguments, binary=True).fetchall())

    def count(self) -> int:
        (row,) = self._read(self._table.statements.count, ())
        return int(row[0])

    def search(self, vector: FloatMatrix, limit: int, filter: Mapping[str, Json] | None = None) -> list[Hit]:
        query = pack_vector(vector)
        sql = self._table.statements
        index = self._table.index()
        statement, arguments = sql.search(index, filter or {}, limit)
        settings = statements.search_settings(index)

        def request(connection: Connection) -> list[tuple[Any, ...]]:
            self._table.extension()
            with connection.transaction():
                if settings is not None:
                    connection.execute(settings)
                if sql.layout.columns:
                    connection.execute(columns.UTC)
                return connection.execute(statement, {**arguments, "query": query}, binary=True).fetchall()

        try:
            rows = self._table.call(request)
        except RejectedError as error:
            raise UsageError(f"The search cannot be made: {error}") from error
        return [Hit(row[0].bytes, float(row[-1]), _payload(row[1:-1])) for row in rows]

    def close(self) -> None:
        self._table.close()


def _in_order(ids: Sequence[bytes]) -> list[int]:
    """The positions to write: of each id the last, in the order of ids, so that two writers do not lock each other."""
    return sorted(last_positions(ids), key=lambda position: ids[position])


def _arrays(ids: Sequence[bytes], payloads: Sequence[Mapping[str, Json]], order: Sequence[int]) -> list[list[Any]]:
    """The ids, and one list for each of `statements.PAYLOAD`."""
    chosen = [payloads[position] for position in order]
    arrays: list[list[Any]] = [[uuid.UUID(bytes=ids[position]) for position in order]]
    arrays += [[payload[name] for payload in chosen] for name in statements.PAYLOAD[:-2]]
    return arrays + [[to_json(payload[name]) for payload in chosen] for name in statements.PAYLOAD[-2:]]


def _payload(values: Sequence[Any]) -> dict[str, Json]:
    """The payload of a row's values, in the order of `statements.PAYLOAD`."""
    return dict(zip(statements.PAYLOAD, values, strict=False))
