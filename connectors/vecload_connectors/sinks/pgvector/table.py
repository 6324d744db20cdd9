"""A collection's table and what vecload keeps about it: making, checking and indexing it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from vecload.connectorkit import PATIENCE, Retrier
from vecload.contracts import CollectionRecord
from vecload.documents import Json
from vecload.errors import RefusedError, SinkError

from . import indexing, layout
from .binary import to_json
from .connections import Connections, Extension
from .errors import fault, index_fault
from .layout import Layout, VectorIndex
from .settings import PgvectorSettings
from .statements import RECORDS, Statements

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

T = TypeVar("T")

log = logging.getLogger("vecload")

_CREATING = 0x7665636C6F6164
"""The key of the lock under which tables are made: `vecload` in bytes."""
_ANY = Layout("vector", 0)
"""For statements that do not touch the points."""
_OLDEST = (0, 8)
"""The first pgvector whose index scans go on until a filtered search has enough rows."""


class Table:
    def __init__(
        self, connections: Connections, server: str, settings: PgvectorSettings, name: str, exists: Callable[[], bool]
    ) -> None:
        """`exists` tells, without starting anything, whether there may be a table at all."""
        schema = settings.schema_
        self.id = f"pgvector:{server}#{name}" if schema == "public" else f"pgvector:{server}#{schema}.{name}"
        self._server = server
        self._settings = settings
        self._schema = schema
        self._name = name
        self._exists = exists
        self._connections = connections
        where = f"PostgreSQL ({server})"
        self._retrier = Retrier(lambda error: fault(error, where))
        # The server was reached before an index is built: it may be restarting.
        self._builder = Retrier(lambda error: index_fault(error, where), first_patience=PATIENCE)
        self._known: Statements | None = None
        self._index: VectorIndex | None = None

    def inspect(self) -> CollectionRecord | None:
        if not self._exists():
            return None
        found = self.call(lambda c: c.execute(layout.TABLE_COLUMNS, (self._schema, self._name)).fetchall())
        if not found:
            self._known = None
            self.call(self._need_schema)
            return None
        kept = self.call(self._kept_record)
        if kept is None:
            raise RefusedError(
                f"The table {self._name!r} in {self._server} was not made by vecload (it has "
                f"{layout.described(found)}); give another --collection, or drop it first."
            )
        record = CollectionRecord.from_json(kept)
        shape = _kept_layout(kept, record)
        misfits = shape.misfits(found)
        if misfits:
            raise RefusedError(
                f"The table {self._name!r} in {self._server} was made again or changed by something other than "
                f"vecload (it lacks {misfits}; it has {layout.described(found)}); give another --collection, "
                "or drop it first."
            )
        wanted = self._settings.columns
        if wanted is not None and wanted != shape.columns:
            raise RefusedError(
                f"The table {self._name!r} in {self._server} has {_columns(shape.columns)}, and sink.columns asks for "
                f"{_columns(wanted)}; change the setting, or name another --collection."
            )
        self._known = self._statements_of(shape)
        return record

    def _need_schema(self, connection: Connection) -> None:
        if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self._schema,)).fetchone() is None:
            raise RefusedError(
                f"There is no schema {self._schema!r} in {self._server}; create it (CREATE SCHEMA), "
                "or name another one (sink.schema)."
            )

    def _kept_record(self, connection: Connection) -> dict[str, Any] | None:
        if not connection.execute(layout.TABLE_COLUMNS, (self._schema, RECORDS)).fetchall():
            return None
        row = connection.execute(self._statements_of(_ANY).read_record, (self._name,)).fetchone()
        return row[0] if row else None

    def _statements_of(self, shape: Layout) -> Statements:
        return Statements(self._schema, self._name, shape)

    @property
    def statements(self) -> Statements:
        """The statements over the table as it is. Raises SinkError when there is none."""
        if self._known is None:
            self.inspect()
        if self._known is None:
            raise SinkError(f"There is no table {self._name!r} in {self._server}; it was not made, or was dropped.")
        return self._known

    def create(self, record: CollectionRecord) -> None:
        if self.inspect() is not None:
            self.save_record(record)
            return
        refuse_too_wide(self._settings, record.space.dimensions)
        self.call(self._need_schema)
        self.call(self._need_extension)
        shape = Layout(self._settings.column_type, record.space.dimensions, self._settings.columns or {})
        sql = self._statements_of(shape)

        def request(connection: Connection) -> bool:
            # All or nothing: a table without its record would be refused as a foreign one.
            with connection.transaction():
                # One at a time, also among those that make other tables: they share the table of records.
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATING,))
                if connection.execute(layout.TABLE_COLUMNS, (self._schema, self._name)).fetchall():
                    return False
                connection.execute(sql.create_records, ())
                for statement in sql.create_table():
                    connection.execute(statement, ())
                if self._settings.index == "live" and self._settings.index_type != "none":
                    element = layout.indexed_element(self._settings, shape.column_type, shape.dimensions)
                    connection.execute(sql.create_index(self._settings, element, 0), ())
                connection.execute(sql.write_record, (self._name, _to_keep(record, shape)))
            return True

        if self.call(request):
            self._known = sql
        else:
            # Another run made it in the meantime.
            self.inspect()
            self.save_record(record)

    def save_record(self, record: CollectionRecord) -> None:
        sql = self.statements
        self.call(lambda c: c.execute(sql.write_record, (self._name, _to_keep(record, sql.layout))))

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
        version = self.extension().version
        if version < _OLDEST:
            raise SinkError(
                f"pgvector in {self._server} is version {'.'.join(map(str, version))}, and vecload needs 0.8 or newer: "
                'update the server\'s package and run "ALTER EXTENSION vector UPDATE".'
            )

    def extension(self) -> Extension:
        if self._connections.extension is None:
            raise SinkError(f"pgvector is not installed in {self._server}; the table cannot be read or written.")
        return self._connections.extension

    # ------------------------------------------------------------ the index

    def build_index(self) -> None:
        """Builds the vector index unless a valid one is there. A build that was cut short leaves nothing behind."""
        if self._settings.index_type == "none" or self.index() is not None:
            return
        sql = self.statements
        shape = sql.layout
        element = layout.indexed_element(self._settings, shape.column_type, shape.dimensions)
        rows = self.call(lambda c: c.execute(sql.count, ()).fetchone())
        todo = indexing.plan(self._settings, element, shape.dimensions, rows[0] if rows else 0)
        log.info("%s: building the %s; searches go on, writes wait.", self.id, todo)
        if element != shape.column_type and self._settings.index_values == "auto":
            text = (
                "%s: an index holds at most %d dimensions as vector, so %d are indexed as halfvec; scores stay exact."
            )
            log.info(text, self.id, layout.MAX_INDEXED, shape.dimensions)
        where = (self._schema, self._name)
        self._builder.call(lambda: self._with(lambda c: indexing.build(c, sql, self._settings, todo, where)))

    def index(self) -> VectorIndex | None:
        """The index that searches can use. There may be one of another form than the settings of this run say."""
        if self._index is None:
            self._index = self.call(self._find_index)
        return self._index

    def _find_index(self, connection: Connection) -> VectorIndex | None:
        arguments = (self._schema, self._name, list(layout.OPERATOR_CLASSES))
        rows = connection.execute(layout.VECTOR_INDEXES, arguments).fetchall()
        found = (VectorIndex.from_row(*form) for _, valid, *form in rows if valid)
        return next(found, None)

    # ------------------------------------------------------------ requests

    def call(self, request: Callable[[Connection], T]) -> T:
        """The result of a request, tried again while the server is away. Raises SinkError or RejectedError."""
        return self._retrier.call(lambda: self._with(request))

    def _with(self, request: Callable[[Connection], T]) -> T:
        with self._connections.use() as connection:
            return request(connection)

    def close(self) -> None:
        self._retrier.stop()
        self._builder.stop()
        self._connections.close()


def refuse_too_wide(settings: PgvectorSettings, dimensions: int) -> None:
    """Raises RefusedError where the table, or its index, cannot hold vectors of this width."""
    widest = layout.max_dimensions(settings)
    if dimensions <= widest:
        return
    raise RefusedError(
        f"A table of pgvector with this index holds at most {widest:,} dimensions, not {dimensions:,}: "
        f"{too_wide_advice(settings)}."
    )


def too_wide_advice(settings: PgvectorSettings) -> str:
    """What can be done about vectors that are too wide for these settings."""
    ways = "take a model with fewer dimensions or cut them (Matryoshka), or use another store"
    if layout.max_dimensions(settings) < layout.MAX_STORED:
        return (
            "set sink.index_values=bit (an index of one bit a dimension) or sink.index_type=none (searches read "
            f"every row), {ways}"
        )
    return ways


def _to_keep(record: CollectionRecord, shape: Layout) -> str:
    table: dict[str, Json] = {"column_type": shape.column_type, "columns": dict(shape.columns)}
    return to_json({**record.to_json(), "table": table})


def _kept_layout(kept: Mapping[str, Any], record: CollectionRecord) -> Layout:
    table = kept.get("table") or {}
    return Layout(table.get("column_type", "vector"), record.space.dimensions, table.get("columns", {}))


def _columns(columns: Mapping[str, str]) -> str:
    return "the columns " + ", ".join(f"{n} {t}" for n, t in columns.items()) if columns else "no columns of its own"
