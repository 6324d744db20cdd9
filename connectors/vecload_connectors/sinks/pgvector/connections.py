"""A few connections that several threads share."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vecload.errors import UsageError

from .binary import register_vectors

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Extension:
    """The pgvector that is installed in the database."""

    schema: str
    version: tuple[int, ...]


class Connections:
    """At most `size` connections; one that broke is replaced by a new one when it is next needed.

    `where` gives the connection string, each time one is made: the embedded server may have to be started for it.
    """

    def __init__(
        self, where: Callable[[], str], schema: str, size: int, on_close: Callable[[], None] | None = None
    ) -> None:
        self._where = where
        self._on_close = on_close
        self._schema = schema
        # Last in, first out: a single thread stays on one connection.
        self._slots: queue.LifoQueue[psycopg.Connection[Any] | None] = queue.LifoQueue()
        for _ in range(size):
            self._slots.put(None)
        self._size = size
        self.extension: Extension | None = None

    @contextmanager
    def use(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection in autocommit mode. Raises psycopg.Error."""
        connection = self._slots.get()
        try:
            if connection is None or connection.closed:
                connection = None
                connection = self._connect()
            yield connection
        finally:
            usable = connection is not None and not connection.closed
            self._slots.put(connection if usable else None)

    def _connect(self) -> psycopg.Connection[Any]:
        import psycopg

        options: dict[str, Any] = {"application_name": "vecload"}
        if "PGCONNECT_TIMEOUT" not in os.environ:
            options["connect_timeout"] = CONNECT_SECONDS
        connection = psycopg.connect(
            **{**options, **psycopg.conninfo.conninfo_to_dict(self._where())},
            autocommit=True,
            client_encoding="UTF8",
            # A pooler may hand each transaction to another server connection, which knows of no prepared statement.
            prepare_threshold=None,
        )
        try:
            self.learn_extension(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def learn_extension(self, connection: psycopg.Connection[Any]) -> None:
        """Finds pgvector in the database, wherever it was installed, and puts its schema on the search path."""
        rows = connection.execute(
            "SELECT n.nspname::text, e.extversion, t.typname::text, t.oid, t.typarray FROM pg_extension e "
            "JOIN pg_namespace n ON n.oid = e.extnamespace "
            "JOIN pg_type t ON t.typnamespace = n.oid AND t.typname IN ('vector', 'halfvec') "
            "WHERE e.extname = 'vector'"
        ).fetchall()
        if not rows:
            self.extension = None
            return
        schema, version, *_ = rows[0]
        numbers = tuple(int(part) for part in str(version).split(".") if part.isdigit())
        self.extension = Extension(schema, numbers)
        if len(rows) == 2:  # before 0.7 there is no halfvec; such a version is refused when a table is made
            register_vectors(connection, {name: (oid, array_oid) for _, _, name, oid, array_oid in rows})
        connection.execute(
            "SELECT set_config('search_path', quote_ident(%s) || ', ' || quote_ident(%s), false)",
            (self._schema, schema),
        )

    def close(self) -> None:
        for _ in range(self._size):
            try:
                connection = self._slots.get_nowait()
            except queue.Empty:
                break
            if connection is not None:
                connection.close()
        if self._on_close is not None:
            self._on_close()


def server_name(url: str | None) -> str:
    """`postgresql://host:port/database` as libpq will understand it, without user and password. Raises UsageError."""
    import psycopg
    from psycopg import conninfo
    from psycopg.pq import Conninfo

    try:
        given: dict[str, Any] = conninfo.conninfo_to_dict(url or "")
    except psycopg.ProgrammingError:
        # The driver's message repeats parts of the URL, the password among them.
        raise UsageError(
            "The pgvector sink's url (sink.url, VECLOAD_SINK__URL) cannot be read; "
            "write postgresql://user:password@host:5432/database, with special characters as %XX."
        ) from None
    defaults = {
        option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.get_defaults() if option.val
    }
    known = {**defaults, **given}
    host = known.get("host") or known.get("hostaddr") or "localhost"
    database = known.get("dbname") or known.get("user") or ""
    return f"postgresql://{host}:{known.get('port', '5432')}/{database}"
