"""The SQL of the pgvector sink. Identifiers are always quoted, values always parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import sql

from vecload.documents import Json
from vecload.errors import UsageError

from .binary import to_json

RECORDS = "vecload_collections"
"""The side table: one row a collection."""

MAX_INDEXED = 2_000
"""The widest `vector` that an HNSW index holds; wider ones are indexed as `halfvec`."""
MAX_INDEXED_HALF = 4_000

PAYLOAD = ("source", "document", "ordinal", "start", "end", "text", "text_hash", "headings", "metadata")
STAGED_TYPES = ("uuid", "text", "text", "int8", "int8", "int8", "text", "text", "text", "text")
"""id and payload as they are copied: JSON travels as text and is cast where the row is written."""
_COLUMN_TYPES = ("text", "text", "bigint", "bigint", "bigint", "text", "text", "jsonb", "jsonb")

_STAGE = sql.Identifier("pg_temp", "vecload_stage")

FIND_TABLE = """
SELECT coalesce((SELECT a.atttypmod FROM pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attname = 'embedding' AND NOT a.attisdropped), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s"""

SEARCH_SETTINGS = "SET LOCAL hnsw.iterative_scan = strict_order"
"""The index goes on until `limit` rows pass the filter, instead of filtering the nearest 40."""


class Statements:
    """The statements over one table. Names are escaped for execution with parameters, if only with `()`."""

    def __init__(self, schema: str, table: str) -> None:
        schema, table = schema.replace("%", "%%"), table.replace("%", "%%")
        records = sql.Identifier(schema, RECORDS)
        self.table = sql.Identifier(schema, table)
        self.create_records = sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (name text PRIMARY KEY, record jsonb NOT NULL)"
        ).format(records)
        self.read_record = sql.SQL("SELECT record FROM {} WHERE name = %s").format(records)
        self.write_record = sql.SQL(
            "INSERT INTO {} VALUES (%s, %s::jsonb) ON CONFLICT (name) DO UPDATE SET record = EXCLUDED.record"
        ).format(records)
        self.count = sql.SQL("SELECT count(*) FROM {}").format(self.table)
        self.delete = sql.SQL("DELETE FROM {} WHERE id = ANY(%s)").format(self.table)

        payload_types = zip(PAYLOAD, STAGED_TYPES[1:], strict=True)
        staged = sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(t)) for n, t in payload_types)
        self.stage_payloads = sql.SQL("CREATE TEMPORARY TABLE vecload_stage (id uuid, {}) ON COMMIT DROP").format(
            staged
        )
        self.stage_points = sql.SQL(
            "CREATE TEMPORARY TABLE vecload_stage (id uuid, {}, embedding vector) ON COMMIT DROP"
        ).format(staged)
        columns = _names(PAYLOAD)
        self.copy_payloads = sql.SQL("COPY {} (id, {}) FROM STDIN (FORMAT BINARY)").format(_STAGE, columns)
        self.copy_points = sql.SQL("COPY {} (id, {}, embedding) FROM STDIN (FORMAT BINARY)").format(_STAGE, columns)

        cast = sql.SQL(", ").join(
            sql.SQL("s.{}::{}").format(sql.Identifier(n), sql.SQL(t))
            for n, t in zip(PAYLOAD, _COLUMN_TYPES, strict=True)
        )
        # In the order of ids, so that two writers that share points do not lock each other out.
        self.merge_points = sql.SQL(
            "INSERT INTO {} (id, {}, embedding) SELECT s.id, {}, s.embedding FROM {} s ORDER BY s.id "
            "ON CONFLICT (id) DO UPDATE SET ({}, embedding) = ({}, EXCLUDED.embedding)"
        ).format(self.table, columns, cast, _STAGE, columns, _names(PAYLOAD, "excluded"))
        self.merge_payloads = sql.SQL("UPDATE {} t SET ({}) = ROW({}) FROM {} s WHERE t.id = s.id").format(
            self.table, columns, cast, _STAGE
        )

    def create_table(self, dimensions: int) -> list[sql.Composed]:
        width = sql.SQL(str(int(dimensions)))
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(t)) for n, t in zip(PAYLOAD, _COLUMN_TYPES, strict=True)
        )
        embedded: sql.Composable = sql.SQL("embedding vector_cosine_ops")
        if dimensions > MAX_INDEXED:
            embedded = sql.SQL("({}) halfvec_cosine_ops").format(_half("embedding", dimensions))
        return [
            sql.SQL("CREATE TABLE {} (id uuid PRIMARY KEY, {}, embedding vector({}) NOT NULL)").format(
                self.table, columns, width
            ),
            sql.SQL("CREATE INDEX ON {} (source, document)").format(self.table),
            sql.SQL("CREATE INDEX ON {} USING hnsw ({})").format(self.table, embedded),
        ]

    def fetch(self, *, vectors: bool, payloads: bool) -> sql.Composed:
        columns = ["id", *(PAYLOAD if payloads else ()), *(["embedding"] if vectors else [])]
        return sql.SQL("SELECT {} FROM {} WHERE id = ANY(%s)").format(_names(columns), self.table)

    def page(
        self, source: str | None, document: str | None, after: Sequence[Any], limit: int
    ) -> tuple[sql.Composed, list[Any]]:
        """The rows behind `after`, in the order of an index: by id, or within a source by document and id."""
        conditions: list[sql.SQL] = []
        arguments: list[Any] = []
        for column, value in (("source", source), ("document", document)):
            if value is not None:
                conditions.append(sql.SQL(f"{column} = %s"))
                arguments.append(value)
        order = "id" if source is None else "document, id"
        if after:
            conditions.append(sql.SQL(f"({order}) > ({', '.join(['%s'] * len(after))})"))
            arguments += after
        where = sql.SQL("WHERE {}").format(sql.SQL(" AND ").join(conditions)) if conditions else sql.SQL("")
        statement = sql.SQL("SELECT id, {} FROM {} {} ORDER BY {} LIMIT %s").format(
            _names(PAYLOAD), self.table, where, sql.SQL(order)
        )
        return statement, [*arguments, limit]

    def search(self, dimensions: int, equal: Mapping[str, Json], limit: int) -> tuple[sql.Composed, dict[str, Any]]:
        """Takes the parameter `query` besides those it gives. The last column is the score."""
        conditions, arguments = _conditions(equal)
        distance: sql.Composable = sql.SQL("embedding <=> %(query)s")
        if dimensions > MAX_INDEXED:
            distance = sql.SQL("{} <=> {}").format(_half("embedding", dimensions), _half("%(query)s", dimensions))
        # The inner order is the index's; the score is exact, and a score rounded to half precision would misorder.
        statement = sql.SQL(
            "SELECT id, {columns}, 1 - (embedding <=> %(query)s) AS score FROM ("
            "SELECT id, {columns}, embedding FROM {table} {where} ORDER BY {distance} LIMIT %(limit)s"
            ") nearest ORDER BY score DESC"
        ).format(columns=_names(PAYLOAD), table=self.table, where=conditions, distance=distance)
        return statement, {**arguments, "limit": limit}


def _conditions(equal: Mapping[str, Json]) -> tuple[sql.Composable, dict[str, Any]]:
    parts: list[sql.Composable] = []
    arguments: dict[str, Any] = {}
    for position, (field, value) in enumerate(equal.items()):
        name = f"equal{position}"
        top, dot, rest = field.partition(".")
        if top == "metadata" and dot:
            parts.append(sql.SQL("metadata @> {}::jsonb").format(sql.Placeholder(name)))
            arguments[name] = to_json({rest: value})
        elif field in PAYLOAD[:-2]:
            parts.append(sql.SQL("{} = {}").format(sql.Identifier(field), sql.Placeholder(name)))
            arguments[name] = value
        else:
            raise UsageError(f"The filter field {field!r} is unknown; use source, document or metadata.NAME.")
    return (sql.SQL("WHERE {}").format(sql.SQL(" AND ").join(parts)) if parts else sql.SQL("")), arguments


def _half(value: str, dimensions: int) -> sql.SQL:
    return sql.SQL(f"{value}::halfvec({int(dimensions)})")  # a column's or parameter's name, never input


def _names(columns: Sequence[str], table: str | None = None) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(*([table] if table else []), column) for column in columns)
