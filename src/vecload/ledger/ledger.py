"""Opens the ledger's database, and tells what it knows as a whole; a run works on one `Scope` of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, delete, event, func, insert, inspect, select
from sqlalchemy.exc import DatabaseError, OperationalError

from vecload.errors import LedgerError
from vecload.ledger import schema
from vecload.ledger.rows import ID_BYTES, DeadLetter, ScopeSummary
from vecload.ledger.scope import Scope


class Ledger:
    """One connection, one lock: the ledger's statements are short, and the threads of a run take turns."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self.path = path
        self._engine = engine
        self._connection = engine.connect()
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Opens the SQLite file, making it and its folder when missing.

        Raises LedgerError when it cannot be opened, is no ledger, or was written by a newer vecload.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            engine = create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False, "timeout": 60})
            event.listen(engine, "connect", _configure)
            event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
            ledger = cls(engine, path)
            with ledger.transaction() as connection:
                tables = inspect(connection).get_table_names()
                if tables and schema.about.name not in tables:
                    raise LedgerError(f"{path} is another program's database; name another ledger.")
                schema.metadata.create_all(connection)
                version = connection.scalar(select(schema.about.c.version))
                if version is None:
                    connection.execute(insert(schema.about).values(version=schema.VERSION))
        except (OSError, DatabaseError) as error:
            reason = error.orig if isinstance(error, DatabaseError) else error.strerror
            raise LedgerError(f"The ledger {path} cannot be opened ({reason}).") from error
        if version is not None and version > schema.VERSION:
            raise LedgerError(
                f"The ledger {path} was written by a newer vecload; upgrade vecload, or name another ledger."
            )
        return ledger

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction at a time, whichever thread asks. Raises LedgerError when it cannot be had or kept."""
        with self._lock:
            try:
                with self._connection.begin():
                    yield self._connection
            except OperationalError as error:
                raise LedgerError(f"The ledger {self.path} cannot be written ({error.orig}).") from error

    def scope(self, incarnation: str, sink: str, source: str) -> Scope:
        """The part of the ledger for one source in one collection; `scope.is_new` when it knew nothing of it.

        What was remembered of an earlier collection at the same place is forgotten: it was dropped.
        """
        scopes = schema.scopes
        with self.transaction() as connection:
            gone = select(scopes.c.id).where(scopes.c.sink == sink, scopes.c.incarnation != incarnation)
            _forget(connection, [row.id for row in connection.execute(gone)])
            found = connection.scalar(
                select(scopes.c.id).where(scopes.c.incarnation == incarnation, scopes.c.source == source)
            )
            if found is None:
                values = {"incarnation": incarnation, "sink": sink, "source": source}
                made = connection.execute(insert(scopes).values(values).returning(scopes.c.id)).scalar_one()
                return Scope(self, made, incarnation, is_new=True)
        return Scope(self, found, incarnation, is_new=False)

    def forget_incarnation(self, incarnation: str) -> None:
        """Forgets everything of a collection, for all its sources."""
        with self.transaction() as connection:
            rows = connection.execute(select(schema.scopes.c.id).where(schema.scopes.c.incarnation == incarnation))
            _forget(connection, [row.id for row in rows])

    def points(self, incarnation: str) -> int:
        """How many points the ledger believes to stand in a collection."""
        documents, scopes = schema.documents, schema.scopes
        length = func.coalesce(func.sum(func.length(documents.c.ids)), 0)
        joined = documents.join(scopes, scopes.c.id == documents.c.scope)
        with self.transaction() as connection:
            query = (
                select(length)
                .select_from(joined)
                .where(scopes.c.incarnation == incarnation, documents.c.state != "writing")
            )
            return int(connection.scalar(query) or 0) // ID_BYTES

    def summary(self) -> list[ScopeSummary]:
        """One entry for each source of each collection."""
        documents, letters, scopes = schema.documents, schema.dead_letters, schema.scopes

        def count(state: str) -> Any:
            return func.coalesce(func.sum(documents.c.state == state), 0)

        with self.transaction() as connection:
            found = []
            for scope in connection.execute(select(scopes).order_by(scopes.c.sink, scopes.c.source)).all():
                row = connection.execute(
                    select(
                        func.count(),
                        func.coalesce(func.sum(func.length(documents.c.ids)), 0),
                        count("writing"),
                        count("deleting"),
                    ).where(documents.c.scope == scope.id)
                ).one()
                dead = connection.scalar(select(func.count()).where(letters.c.scope == scope.id)) or 0
                found.append(
                    ScopeSummary(
                        sink=scope.sink,
                        source=scope.source,
                        documents=row[0],
                        chunks=row[1] // ID_BYTES,
                        writing=row[2],
                        deleting=row[3],
                        dead_letters=dead,
                        last_run=scope.last_run,
                    )
                )
        return found

    def dead_letters(self, limit: int | None = None) -> Iterator[DeadLetter]:
        """The outstanding dead letters, newest first."""
        letters, scopes = schema.dead_letters, schema.scopes
        query = (
            select(letters, scopes.c.sink, scopes.c.source)
            .join(scopes, scopes.c.id == letters.c.scope)
            .order_by(letters.c.last_at.desc(), letters.c.document, letters.c.chunk)
            .limit(limit)
        )
        with self.transaction() as connection:
            rows = connection.execute(query).all()
        for row in rows:
            yield DeadLetter(
                document=row.document,
                container=row.container,
                stage=row.stage,
                reason=row.reason,
                message=row.message,
                transient=row.transient,
                chunk=None if row.chunk < 0 else row.chunk,
                attempts=row.attempts,
                first_at=row.first_at,
                last_at=row.last_at,
                sink=row.sink,
                source=row.source,
            )

    def close(self) -> None:
        with self._lock:
            self._connection.close()
            self._engine.dispose()


def _configure(connection: Any, _record: Any) -> None:
    connection.isolation_level = (
        None  # our own BEGIN IMMEDIATE, so that a writer waits instead of failing in mid-transaction
    )
    connection.execute("PRAGMA journal_mode=WAL")
    # FULL: a document must be known as `writing` before its first point is, also across a power cut.
    connection.execute("PRAGMA synchronous=FULL")


def _forget(connection: Connection, scopes: list[int]) -> None:
    for scope in scopes:
        for table in (schema.containers, schema.documents, schema.dead_letters):
            connection.execute(delete(table).where(table.c.scope == scope))
        connection.execute(delete(schema.scopes).where(schema.scopes.c.id == scope))
