"""How a collection's table is made: its columns, its vectors, its index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .settings import OWN_COLUMNS, PgvectorSettings

MAX_INDEXED = 2_000
"""The widest `vector` that an index holds; wider ones are indexed as `halfvec`."""
MAX_INDEXED_HALF = 4_000
MAX_STORED = 16_000
"""The widest column. An index of bits holds more than that."""

OPERATOR_CLASSES = ("vector_cosine_ops", "halfvec_cosine_ops", "bit_hamming_ops")

_CATALOG_NAMES = {"bigint": "int8", "double precision": "float8", "boolean": "bool"}
_OWN_TYPES = ("uuid", "text", "text", "int8", "int8", "int8", "text", "text", "jsonb", "jsonb")

# A column without a type is none that could be ours; without the left join a table without columns would be no table.
TABLE_COLUMNS = """
SELECT a.attname::text, ty.typname::text, a.atttypmod
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_type ty ON ty.oid = a.atttypid
WHERE n.nspname = %s AND c.relname = %s
ORDER BY a.attnum"""

VECTOR_INDEXES = """
SELECT ic.relname::text, i.indisvalid AND i.indisready, am.amname::text, oc.opcname::text, ic.reloptions
FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class ic ON ic.oid = i.indexrelid JOIN pg_am am ON am.oid = ic.relam
JOIN pg_opclass oc ON oc.oid = i.indclass[0]
WHERE n.nspname = %s AND c.relname = %s AND am.amname IN ('hnsw', 'ivfflat') AND oc.opcname = ANY(%s)
  AND i.indpred IS NULL AND pg_get_indexdef(i.indexrelid, 1, true) LIKE '%%embedding%%'
ORDER BY i.indexrelid"""

Element = Literal["vector", "halfvec", "bit"]


def max_dimensions(settings: PgvectorSettings) -> int:
    """The widest vectors that a table with these settings takes."""
    return MAX_STORED if settings.index_type == "none" or settings.index_values == "bit" else MAX_INDEXED_HALF


def indexed_element(settings: PgvectorSettings, column_type: str, dimensions: int) -> Element:
    """What the index is to hold of each point."""
    if settings.index_values == "bit":
        return "bit"
    half = settings.index_values == "halfvec" or column_type == "halfvec" or dimensions > MAX_INDEXED
    return "halfvec" if half else "vector"


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """An index that searches can use."""

    method: str
    element: Element
    lists: int = 0

    @classmethod
    def from_row(cls, method: str, operator_class: str, options: list[str] | None) -> VectorIndex:
        lists = next((int(o.removeprefix("lists=")) for o in options or () if o.startswith("lists=")), 100)
        element: Element = "bit" if operator_class.startswith("bit") else "vector"
        if operator_class.startswith("halfvec"):
            element = "halfvec"
        return cls(method, element, lists)


@dataclass(frozen=True, slots=True)
class Layout:
    """A table as it is, or as it is to be made."""

    column_type: str
    dimensions: int
    """0 before the table is made."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The chosen metadata fields and their types."""

    def misfits(self, found: list[tuple[Any, ...]]) -> str:
        """What a table with the columns `found` (rows of TABLE_COLUMNS) has not, in words; empty if it fits."""
        there = {name: (type_, width) for name, type_, width in found if name is not None}
        wanted = dict(zip(OWN_COLUMNS[:-1], _OWN_TYPES, strict=True))
        wanted |= {name: _CATALOG_NAMES.get(type_, type_) for name, type_ in self.columns.items()}
        wrong = [f"{name} {type_}" for name, type_ in wanted.items() if there.get(name, ("", 0))[0] != type_]
        if there.get("embedding") != (self.column_type, self.dimensions):
            wrong.append(f"embedding {self.column_type}({self.dimensions})")
        return ", ".join(wrong)


def described(found: list[tuple[Any, ...]]) -> str:
    """Columns in words, for messages."""
    words = [f"{n} {t}({w})" if t in ("vector", "halfvec") else f"{n} {t}" for n, t, w in found if n is not None]
    return ", ".join(words[:15]) + (", …" if len(words) > 15 else "") or "no columns"
