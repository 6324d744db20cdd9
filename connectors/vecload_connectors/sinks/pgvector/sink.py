"""One table of PostgreSQL with pgvector as a sink."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg import sql

from vecload.connectorkit import Retrier, last_positions, without_doubles
from vecload.contracts import CollectionRecord, SinkCapabilities
from vecload.documents import Hit, Json, Point, VectorBatch
from vecload.errors import RefusedError, SinkError

from . import statements
from .binary import BinaryVector, pack_vectors, to_json
from .connections import Connections, Extension
from .errors import fault

if TYPE_CHECKING:
    import psycopg

    from vecload.documents import FloatMatrix

    Connection = psycopg.Connection[Any]

T = TypeVar("T")

CAPABILITIES = SinkCapabilities(
    max_request_bytes=32 << 20,
    max_request_points=2_000,
    concurrent_writers=4,
    # PostgreSQL's limit is 1 GB a value; the staged JSON and text share one row of the protocol.
    max_text_bytes=256 << 20,
    max_dimensions=statements.MAX_INDEXED_HALF,
)

_PAGE = 2_000
_OLDEST = (0, 8)
"""The first pgvector whose index scans go on until a filtered search has enough rows."""


class PgvectorSink:
    capabilities = CAPABILITIES

    def __init__(self, connections: Connections, server: str, schema: str, table: str) -> None:
        self.id = f"pgvector:{server}#{table}" if schema == "public" else f"pgvector:{server}#{schema}.{table}"
        self._server = server
        self._schema = schema
        self._table = table
        self._connections = connections
        self._sql = statements.Statements(schema, table)
        self._retrier = Retrier(lambda error: fault(error, f"PostgreSQL ({server})"))

    # ------------------------------------------------------------ the table and its record

    def inspect(self) -> CollectionRecord | None:
        width = self._call(self._width)
        if width is None:
            return None
        kept = self._call(self._kept_record)
        if kept is None:
            raise RefusedError(
                f"The table {self._table!r} in {self._server} was not made by vecload; "
                "give another --collection, or drop it first."
            )
        record = CollectionRecord.from_json(kept)
        if width != record.space.dimensions:
            raise RefusedError(
                f"The table {self._table!r} in {self._server} was made again by something other than vecload "
                f"(its embedding is not {record.space.dimensions} wide); give another --collection, or drop it first."
            )
        return record

    def _width(self, connection: Connection) -> int | None:
        """None: no such table. 0: a table without our column."""
        row = connection.execute(statements.FIND_TABLE, (self._schema, self._table)).fetchone()
        return row[0] if row else None

    def _kept_record(self, connection: Connection) -> dict[str, Any] | None:
        there = connection.execute(statements.FIND_TABLE, (self._schema, statements.RECORDS)).fetchone()
        if there is None:
            return None
        row = connection.execute(self._sql.read_record, (self._table,)).fetchone()
        return row[0] if row else None

    def create(self, record: CollectionRecord) -> None:
        if self.inspect() is not None:
            self.save_record(record)
            return
        self._call(self._need_extension)
        dimensions = record.space.dimensions

        def request(connection: Connection) -> None:
            # All or nothing: a table without its record would be refused as a foreign one.
            with connection.transaction():
                connection.execute(self._sql.create_records, ())
                for statement in self._sql.create_table(dimensions):
                    connection.execute(statement, ())
                connection.execute(self._sql.write_record, (self._table, to_json(record.to_json())))

        self._call(request)

    def save_record(self, record: CollectionRecord) -> None:
        self._call(lambda c: c.execute(self._sql.write_record, (self._table, to_json(record.to_json()))))

    def _need_extension(self, connection: Connection) -> None:
        import psycopg

        if self._connections.extension is None:
            try:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            except (psycopg.errors.InsufficientPrivilege, psycopg.NotSupportedError, psycopg.OperationalError) as error:
                if connection.closed:
                    raise
                raise SinkError(
                    f"pgvector is not installed in {self._server}: have an administrator run "
                    '"CREATE EXTENSION vector" in that database (the server needs the pgvector package).'
                ) from error
            self._connections.learn_extension(connection)
        version = self._extension().version
        if version < _OLDEST:
            raise SinkError(
                f"pgvector in {self._server} is version {'.'.join(map(str, version))}, and vecload needs 0.8 or newer: "
                'update the server\'s package and run "ALTER EXTENSION vector UPDATE".'
            )

    def _extension(self) -> Extension:
        if self._connections.extension is None:
            raise SinkError(f"pgvector is not installed in {self._server}; the table cannot be read or written.")
        return self._connections.extension

    # ------------------------------------------------------------ points

    def build_index(self) -> None:
        """Nothing to do: `create` leaves nothing out."""

    def upsert(self, batch: VectorBatch) -> None:
        if not len(batch):
            return
        batch = without_doubles(batch)
        vectors = pack_vectors(batch.vectors)
        rows = [
            (*_row(point_id, payload), vector)
            for point_id, payload, vector in zip(batch.ids, batch.payloads, vectors, strict=True)
        ]

        def request(connection: Connection) -> None:
            types = [*statements.STAGED_TYPES, self._extension().oid]
            with connection.transaction():
                self._stage(connection, self._sql.stage_points, self._sql.copy_points, types, rows)
                connection.execute(self._sql.merge_points, (), prepare=False)

        self._call(request)

    def update_payload(self, ids: Sequence[bytes], payloads: Sequence[Mapping[str, Json]]) -> None:
        """An id that is not there is passed over."""
        rows = [_row(ids[i], payloads[i]) for i in last_positions(ids)]
        if not rows:
            return

        def request(connection: Connection) -> None:
            with connection.transaction():
                types = list(statements.STAGED_TYPES)
                self._stage(connection, self._sql.stage_payloads, self._sql.copy_payloads, types, rows)
                connection.execute(self._sql.merge_payloads, (), prepare=False)

        self._call(request)

    @staticmethod
    def _stage(
        connection: Connection, create: sql.Composed, copy_in: sql.Composed, types: list[Any], rows: Sequence[Any]
    ) -> None:
        # A temporary table for each request, dropped with its transaction: it also works behind a pooler that hands
        # the next transaction to another server connection.
        connection.execute(create, prepare=False)
        with connection.cursor().copy(copy_in) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    def delete(self, ids: Sequence[bytes]) -> None:
        if ids:
            uuids = [uuid.UUID(bytes=point_id) for point_id in ids]
            self._call(lambda c: c.execute(self._sql.delete, (uuids,)))

    def fetch(self, ids: Sequence[bytes], *, vectors: bool = False, payloads: bool = True) -> list[Point]:
        if not ids:
            return []
        uuids = [uuid.UUID(bytes=point_id) for point_id in ids]
        statement = self._sql.fetch(vectors=vectors, payloads=payloads)
        rows = self._call(lambda c: c.execute(statement, (uuids,), binary=True).fetchall())
        return [
            Point(row[0].bytes, _payload(row[1:]) if payloads else None, row[-1] if vectors else None) for row in rows
        ]

    def scan(self, source: str | None = None, document: str | None = None) -> Iterator[Point]:
        """Page by page, each a request of its own, so that no connection and no snapshot is held in between."""
        after: tuple[Any, ...] = ()
        while True:
            statement, arguments = self._sql.page(source, document, after, _PAGE)
            rows = self._read(statement, arguments)
            for row in rows:
                yield Point(row[0].bytes, _payload(row[1:]))
            if len(rows) < _PAGE:
                return
            after = (rows[-1][0],) if source is None else (rows[-1][2], rows[-1][0])

    def _read(self, statement: sql.Composed, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._call(lambda c: c.execute(statement, arguments, binary=True).fetchall())

    def count(self) -> int:
        (row,) = self._read(self._sql.count, ())
        return int(row[0])

    def search(self, vector: FloatMatrix, limit: int, filter: Mapping[str, Json] | None = None) -> list[Hit]:
        query: BinaryVector = pack_vectors(vector.reshape(1, -1))[0]
        statement, arguments = self._sql.search(vector.shape[-1], filter or {}, limit)

        def request(connection: Connection) -> list[tuple[Any, ...]]:
            self._extension()
            with connection.transaction():
                connection.execute(statements.SEARCH_SETTINGS)
                return connection.execute(statement, {**arguments, "query": query}, binary=True).fetchall()

        rows = self._call(request)
        return [Hit(row[0].bytes, float(row[-1]), _payload(row[1:-1])) for row in rows]

    def close(self) -> None:
        self._retrier.stop()
        self._connections.close()

    def _call(self, request: Callable[[Connection], T]) -> T:
        def attempt() -> T:
            with self._connections.use() as connection:
                return request(connection)

        return self._retrier.call(attempt)


def _row(point_id: bytes, payload: Mapping[str, Json]) -> tuple[Any, ...]:
    """The values of `statements.STAGED`, in that order."""
    return (
        uuid.UUID(bytes=point_id),
        payload["source"],
        payload["document"],
        payload["ordinal"],
        payload["start"],
        payload["end"],
        payload["text"],
        payload["text_hash"],
        to_json(payload["headings"]),
        to_json(payload["metadata"]),
    )


def _payload(values: Sequence[Any]) -> dict[str, Json]:
    """The payload of a row's values, in the order of `statements.PAYLOAD`."""
    return dict(zip(statements.PAYLOAD, values, strict=False))
