"""The SQL of the pgvector sink. Identifiers are always quoted, values always parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import sql

from vecload.documents import Json
from vecload.errors import UsageError

from . import columns as chosen
from .binary import to_json
from .columns import identifier
from .layout import Element, Layout, VectorIndex
from .settings import PgvectorSettings

RECORDS = "vecload_collections"
"""The side table: one row a collection."""

PAYLOAD = ("source", "document", "ordinal", "start", "end", "text", "text_hash", "headings", "metadata")
_SENT_TYPES = ("text", "text", "int8", "int8", "int8", "text", "text", "text", "text")
"""The payload as it is sent: JSON travels as text and is cast where the row is written."""
_COLUMN_TYPES = ("text", "text", "bigint", "bigint", "bigint", "text", "text", "jsonb", "jsonb")

CANDIDATES = 10
"""With an index of bits: points compared with the whole vectors for each hit that is wanted."""


class Statements:
    """The statements over one table. Names are escaped for execution with parameters, if only with `()`."""

    def __init__(self, schema: str, table: str, layout: Layout) -> None:
        records = identifier(schema, RECORDS)
        self.table = identifier(schema, table)
        self._schema = schema
        self.layout = layout
        self.create_records = sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (name text PRIMARY KEY, record jsonb NOT NULL)"
        ).format(records)
        self.read_record = sql.SQL("SELECT record FROM {} WHERE name = %s").format(records)
        self.write_record = sql.SQL(
            "INSERT INTO {} VALUES (%s, %s::jsonb) ON CONFLICT (name) DO UPDATE SET record = EXCLUDED.record"
        ).format(records)
        self.count = sql.SQL("SELECT count(*) FROM {}").format(self.table)
        self.delete = sql.SQL("DELETE FROM {} WHERE id = ANY(%s)").format(self.table)

        written = _names([*PAYLOAD, *layout.columns])
        values = self._sent_values()
        # Arrays, unnested, rather than COPY into a temporary table: the rows are written once, in a single round trip.
        self.upsert = sql.SQL(
            "INSERT INTO {} (id, {}, embedding) SELECT s.id, {}, s.embedding FROM {} s "
            "ON CONFLICT (id) DO UPDATE SET ({}, embedding) = ({}, EXCLUDED.embedding)"
        ).format(
            self.table,
            written,
            values,
            self._sent_rows(vectors=True),
            written,
            _names([*PAYLOAD, *layout.columns], "excluded"),
        )
        self.update_payload = sql.SQL("UPDATE {} t SET ({}) = ROW({}) FROM {} s WHERE t.id = s.id").format(
            self.table, written, values, self._sent_rows(vectors=False)
        )

    def _sent_rows(self, *, vectors: bool) -> sql.Composable:
        """The rows of the parameters: arrays of ids, of each part of the payload, and of vectors."""
        arrays = ", ".join(f"%b::{type_}[]" for type_ in ("uuid", *_SENT_TYPES)) + (", %b" if vectors else "")
        rows = sql.SQL("unnest({}) AS u (id, {}{})").format(
            sql.SQL(arrays), _names(PAYLOAD), sql.SQL(", embedding" if vectors else "")
        )
        if not self.layout.columns:
            return sql.SQL("(SELECT * FROM {})").format(rows)
        # OFFSET keeps the planner from parsing the JSON anew for each column.
        return sql.SQL("(SELECT *, metadata::jsonb AS parsed FROM {} OFFSET 0)").format(rows)

    def _sent_values(self) -> sql.Composable:
        """What is written of a row `s`."""
        values: list[sql.Composable] = [
            sql.SQL("s.{}::{}").format(sql.Identifier(n), sql.SQL(t))
            for n, t in zip(PAYLOAD, _COLUMN_TYPES, strict=True)
        ]
        if self.layout.columns:
            parsed = sql.SQL("s.parsed")
            values[-1] = chosen.rest(parsed, self.layout.columns)
            values += [chosen.value(parsed, name, type_) for name, type_ in self.layout.columns.items()]
        return sql.SQL(", ").join(values)

    def create_table(self) -> list[sql.Composed]:
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(t)) for n, t in zip(PAYLOAD, _COLUMN_TYPES, strict=True)
        ]
        columns += [sql.SQL("{} {}").format(identifier(n), sql.SQL(t)) for n, t in self.layout.columns.items()]
        return [
            sql.SQL("CREATE TABLE {} (id uuid PRIMARY KEY, {}, embedding {}({}) NOT NULL)").format(
                self.table,
                sql.SQL(", ").join(columns),
                sql.SQL(self.layout.column_type),
                sql.SQL(str(self.layout.dimensions)),
            ),
            sql.SQL("CREATE INDEX ON {} (source, document)").format(self.table),
        ]

    def create_index(self, settings: PgvectorSettings, element: Element, lists: int) -> sql.Composed:
        options = f"lists = {lists}"
        if settings.index_type == "hnsw":
            options = f"m = {settings.m}, ef_construction = {settings.ef_construction}"
        operators = "bit_hamming_ops" if element == "bit" else f"{element}_cosine_ops"
        return sql.SQL("CREATE INDEX ON {} USING {} (({}) {}) WITH ({})").format(
            self.table,
            sql.SQL(settings.index_type),
            self._element("embedding", element),
            sql.SQL(operators),
            sql.SQL(options),
        )

    def drop_index(self, name: str) -> sql.Composed:
        return sql.SQL("DROP INDEX {}").format(identifier(self._schema, name))

    def lock_for_building(self) -> sql.Composed:
        """One builder at a time; readers and writers pass."""
        return sql.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE").format(self.table)

    def fetch(self, *, vectors: bool, payloads: bool) -> sql.Composed:
        columns = [sql.Identifier("id"), *([self._payload()] if payloads else [])]
        columns += [sql.Identifier("embedding")] if vectors else []
        return sql.SQL("SELECT {} FROM {} WHERE id = ANY(%s)").format(sql.SQL(", ").join(columns), self.table)

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
            self._payload(), self.table, where, sql.SQL(order)
        )
        return statement, [*arguments, limit]

    def search(
        self, index: VectorIndex | None, equal: Mapping[str, Json], limit: int
    ) -> tuple[sql.Composed, dict[str, Any]]:
        """Takes the parameter `query` (a vector) besides those it gives. The last column is the score."""
        conditions, arguments = self._conditions(equal)
        query = f"%(query)s::{self.layout.column_type}"
        exact = sql.SQL(f"(embedding <=> {query})")
        distance: sql.Composable = exact
        candidates = limit
        if index is not None and index.element == "bit":
            sides = (self._element("embedding", "bit"), self._element(query, "bit"))
            distance = sql.SQL("{} <~> {}").format(*sides)
            candidates = limit * CANDIDATES
        elif index is not None:
            sides = (self._element("embedding", index.element), self._element("%(query)s", index.element))
            distance = sql.SQL("{} <=> {}").format(*sides)
        # The inner order is the index's, which may be coarser; the outer one is exact. A vector of zeros has no
        # direction: its distance is NaN, and an index does not hold it.
        statement = sql.SQL(
            "SELECT id, {names}, 1 - distance AS score FROM ("
            "SELECT id, {payload}, {exact} AS distance FROM {table} {where} ORDER BY {distance} LIMIT %(candidates)s"
            ") nearest WHERE distance <> 'NaN' ORDER BY distance LIMIT %(limit)s"
        ).format(
            names=_names(PAYLOAD),
            payload=self._payload(),
            exact=exact,
            table=self.table,
            where=conditions,
            distance=distance,
        )
        return statement, {**arguments, "limit": limit, "candidates": candidates}

    def _payload(self) -> sql.Composable:
        if not self.layout.columns:
            return _names(PAYLOAD)
        return sql.SQL("{}, {} AS metadata").format(_names(PAYLOAD[:-1]), chosen.whole(self.layout.columns))

    def _element(self, value: str, element: Element) -> sql.SQL:
        """What an index holds of `value`, which is the name of a column or parameter, never input."""
        if element == "bit":
            return sql.SQL(f"binary_quantize({value})::bit({self.layout.dimensions})")
        if value == "embedding" and element == self.layout.column_type:
            return sql.SQL(value)
        return sql.SQL(f"{value}::{element}({self.layout.dimensions})")

    def _conditions(self, equal: Mapping[str, Json]) -> tuple[sql.Composable, dict[str, Any]]:
        parts: list[sql.Composable] = []
        arguments: dict[str, Any] = {}
        for position, (field, value) in enumerate(equal.items()):
            name = f"equal{position}"
            top, dot, rest = field.partition(".")
            if top == "metadata" and dot:
                arguments[name] = to_json({rest: value})
                if rest in self.layout.columns:
                    parts.append(chosen.equals(name, rest, self.layout.columns[rest]))
                else:
                    parts.append(sql.SQL("metadata @> {}::jsonb").format(sql.Placeholder(name)))
            elif field in PAYLOAD[:-2]:
                parts.append(sql.SQL("{} = {}").format(sql.Identifier(field), sql.Placeholder(name)))
                arguments[name] = value
            else:
                raise UsageError(f"The filter field {field!r} is unknown; use source, document or metadata.NAME.")
        return (sql.SQL("WHERE {}").format(sql.SQL(" AND ").join(parts)) if parts else sql.SQL("")), arguments


def search_settings(index: VectorIndex | None) -> str | None:
    """The index goes on until enough rows pass the filter, instead of filtering the nearest few."""
    if index is None:
        return None
    if index.method == "hnsw":
        return "SET LOCAL hnsw.iterative_scan = strict_order"
    probes = max(1, round(index.lists**0.5))
    return f"SET LOCAL ivfflat.iterative_scan = relaxed_order; SET LOCAL ivfflat.probes = {probes}"


def _names(columns: Sequence[str], table: str | None = None) -> sql.Composed:
    return sql.SQL(", ").join(identifier(*([table] if table else []), column) for column in columns)
