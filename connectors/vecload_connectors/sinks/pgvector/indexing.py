"""Building the vector index after the load: what it needs, and the build itself."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import layout
from .layout import Element
from .settings import PgvectorSettings
from .statements import Statements

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("vecload")

_MB = 1 << 20
_UNITS = {"MB": _MB, "GB": 1 << 30}
_MOST_MEMORY = 1 << 30
"""What is taken without being told: the size of the server's machine is not known."""
_LEAST_MEMORY = 64 * _MB
_ELEMENT_BITS = {"vector": 32, "halfvec": 16, "bit": 1}


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """An index that is about to be built."""

    method: str
    element: Element
    rows: int
    lists: int
    needed: int
    """Bytes that it takes to build in memory, which is also about its size on disk; an estimate."""
    memory: int
    """Bytes that the server may take for it."""
    workers: int

    def __str__(self) -> str:
        name = {"hnsw": "HNSW", "ivfflat": "IVFFlat"}[self.method]
        text = (
            f"{name} index over {self.rows:,} rows as {self.element}: about {_megabytes(self.needed)} MB, with "
            f"maintenance_work_mem {_megabytes(self.memory)} MB and up to {self.workers} workers"
        )
        if self.needed > self.memory:
            text += f" (faster where the server can spare sink.maintenance_work_mem={_megabytes(self.needed)}MB)"
        return text


def plan(settings: PgvectorSettings, element: Element, dimensions: int, rows: int) -> IndexPlan:
    vector = dimensions * _ELEMENT_BITS[element] // 8 + 8
    # As pgvector's authors advise.
    lists = settings.lists or max(1, rows // 1_000 if rows <= 1_000_000 else round(rows**0.5))
    if settings.index_type == "hnsw":
        # A point has 2m neighbours on the lowest level and about m on those above, of 16 bytes each.
        needed = rows * (vector + 48 * settings.m + 200)
    else:
        # k-means keeps a sample, bounds between it and each list, and distances between the lists.
        sample = min(rows, max(10_000, 50 * lists))
        needed = sample * (vector + 4 * lists + 8) + lists * (2 * vector + 4 * lists)
    memory = min(_MOST_MEMORY, max(_LEAST_MEMORY, math.ceil(needed * 1.2)))
    if settings.maintenance_work_mem is not None:
        memory = int(settings.maintenance_work_mem[:-2]) * _UNITS[settings.maintenance_work_mem[-2:]]
    return IndexPlan(
        settings.index_type, element, rows, lists, needed, memory, settings.max_parallel_maintenance_workers
    )


def build(
    connection: psycopg.Connection[Any], statements: Statements, settings: PgvectorSettings, todo: IndexPlan, where: Any
) -> None:
    """Builds the index unless a valid one is there. All or nothing: what a killed build left, the server forgets.

    `where` is the schema and the name of the table.
    """
    import psycopg

    try:
        _build(connection, statements, settings, todo, todo.workers, where)
    except (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory) as error:
        if connection.closed or not todo.workers:
            raise
        # Workers share their memory through /dev/shm, of which a container has 64 MB unless told otherwise.
        text = "The server has no shared memory for workers (%s); building the index without them."
        log.warning(text, error.diag.message_primary)
        _build(connection, statements, settings, todo, 0, where)


def _build(
    connection: psycopg.Connection[Any],
    statements: Statements,
    settings: PgvectorSettings,
    todo: IndexPlan,
    workers: int,
    where: Any,
) -> None:
    with connection.transaction():
        connection.execute(statements.lock_for_building(), ())
        arguments = (*where, list(layout.OPERATOR_CLASSES))
        found = connection.execute(layout.VECTOR_INDEXES, arguments).fetchall()
        if any(valid for _, valid, *_ in found):
            return
        for name, *_ in found:
            connection.execute(statements.drop_index(name), ())
        values = {
            "maintenance_work_mem": f"{todo.memory // 1024}kB",
            "max_parallel_maintenance_workers": str(workers),
            # Long vectors lie beside the table, which makes it look too small for workers.
            "min_parallel_table_scan_size": "0",
            "statement_timeout": "0",
        }
        if connection.info.server_version >= 140_000:
            # If vecload is killed the server notices within this time, instead of building for nobody.
            values["client_connection_check_interval"] = "5s"
        for name, value in values.items():
            connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        connection.execute(statements.create_index(settings, todo.element, todo.lists), ())


def _megabytes(size: int) -> int:
    return math.ceil(size / _MB)
