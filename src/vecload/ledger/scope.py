"""One source's part of one collection: what a run asks of the ledger, and tells it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Row, Select, Table, and_, delete, exists, func, insert, or_, select, update
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from vecload.diff import canonical, document_text_hash, payload_hash
from vecload.documents import Point
from vecload.ledger import schema
from vecload.ledger.rows import ContainerRow, DeadLetter, DocumentRow, packed, unpacked_hashes, unpacked_ids

if TYPE_CHECKING:
    from vecload.ledger.ledger import Ledger

GROUP = 500
"""Keys in one statement: below SQLite's old limit of 999 variables."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Vanished:
    """The documents with points that a clean listing no longer yields."""

    total: int
    """Documents with points that this source had."""
    gone: int
    """Those that vanished for good."""
    moved: int
    """Those whose text came back under a new key: each fresh document accounts for one."""


class Scope:
    """Thread-safe; each method is one short transaction."""

    def __init__(self, ledger: Ledger, scope: int, incarnation: str, *, is_new: bool) -> None:
        self._ledger = ledger
        self._id = scope
        self._incarnation = incarnation
        self._run = uuid.uuid4().hex
        self.is_new = is_new

    # ------------------------------------------------------------ a run begins and ends

    def begin_run(self) -> None:
        """Forgets what an earlier run of this process has seen."""
        with self._ledger.transaction() as connection:
            schema.temporary.drop_all(connection)
            schema.temporary.create_all(connection)

    def end_run(self) -> None:
        with self._ledger.transaction() as connection:
            connection.execute(update(schema.scopes).where(schema.scopes.c.id == self._id).values(last_run=_now()))

    def rebuild(self, points: Iterable[Point]) -> int:
        """Remembers what stands in the sink, from the payloads: for a ledger that was lost. Returns the documents.

        Their content hashes are unknown, so the next read chunks them, finds the same ids and embeds nothing.
        """
        table = schema.scanned
        for group in _groups(points):
            rows = []
            for point in group:
                payload = point.payload or {}
                rows.append(
                    {
                        "document": payload.get("document", ""),
                        "ordinal": payload.get("ordinal", 0),
                        "id": point.id,
                        "payload_hash": payload_hash(canonical(payload)),
                        "text_hash": payload.get("text_hash", ""),
                    }
                )
            with self._ledger.transaction() as connection:
                _upsert(connection, table, rows)
        documents = 0
        with self._ledger.transaction() as connection:
            ordered = connection.execute(select(table).order_by(table.c.document, table.c.ordinal, table.c.id))
            for key, chunks in groupby(ordered, key=lambda row: row.document):
                found = list(chunks)
                row = DocumentRow(
                    key=key,
                    container=key,
                    text_hash=document_text_hash([chunk.text_hash for chunk in found]),
                    ids=tuple(chunk.id for chunk in found),
                    payload_hashes=tuple(chunk.payload_hash for chunk in found),
                )
                _upsert(connection, schema.documents, [self._document_values(row)])
                documents += 1
            connection.execute(delete(table))
        return documents

    # ------------------------------------------------------------ containers

    def containers(self, keys: Sequence[str]) -> dict[str, ContainerRow]:
        """What is known of these containers, and marks them as listed."""
        table, seen = schema.containers, schema.seen_containers
        found: dict[str, ContainerRow] = {}
        with self._ledger.transaction() as connection:
            for group in _groups(keys):
                rows = connection.execute(select(table).where(table.c.scope == self._id, table.c.key.in_(group)))
                for row in rows:
                    found[row.key] = ContainerRow(row.key, row.tag, row.documents, json.loads(row.skipped or "{}"))
                connection.execute(
                    sqlite_insert(seen).on_conflict_do_nothing(), [{"key": key, "read": False} for key in group]
                )
        return found

    def containers_read(self, keys: Sequence[str]) -> None:
        """These containers were read to their end: what they did not yield is gone."""
        seen = schema.seen_containers
        with self._ledger.transaction() as connection:
            for group in _groups(keys):
                connection.execute(update(seen).where(seen.c.key.in_(group)).values(read=True))

    def containers_done(self, rows: Sequence[ContainerRow]) -> None:
        """All documents of these containers are in the sink: they need no reading until their tags change."""
        letters = schema.dead_letters
        values = [
            {
                "scope": self._id,
                "key": row.key,
                "tag": row.tag,
                "documents": row.documents,
                "skipped": json.dumps(row.skipped) if row.skipped else None,
            }
            for row in rows
        ]
        with self._ledger.transaction() as connection:
            _upsert(connection, schema.containers, values)
            for group in _groups(row.key for row in rows):
                mine = and_(letters.c.scope == self._id, letters.c.container.in_(group), letters.c.run != self._run)
                connection.execute(delete(letters).where(mine))

    # ------------------------------------------------------------ documents

    def documents(self, keys: Sequence[str]) -> dict[str, DocumentRow]:
        table = schema.documents
        found: dict[str, DocumentRow] = {}
        with self._ledger.transaction() as connection:
            for group in _groups(keys):
                query = select(table).where(table.c.scope == self._id, table.c.key.in_(group))
                found.update((row.key, _document(row)) for row in connection.execute(query))
        return found

    def see_documents(self, keys: Sequence[str]) -> set[str]:
        """Marks documents as present in the source; returns those that this run has seen before."""
        seen = schema.seen_documents
        with self._ledger.transaction() as connection:
            known: set[str] = set()
            for group in _groups(keys):
                known.update(connection.scalars(select(seen.c.key).where(seen.c.key.in_(group))))
                connection.execute(sqlite_insert(seen).on_conflict_do_nothing(), [{"key": key} for key in group])
        return known

    def copies(self, text_hashes: Sequence[bytes]) -> dict[bytes, tuple[bytes, ...]]:
        """For the text hash of a document, the point ids of some document of the collection with the same texts."""
        documents, scopes = schema.documents, schema.scopes
        found: dict[bytes, tuple[bytes, ...]] = {}
        with self._ledger.transaction() as connection:
            for group in _groups(text_hashes):
                query = (
                    select(documents.c.text_hash, documents.c.ids)
                    .join(scopes, scopes.c.id == documents.c.scope)
                    .where(
                        scopes.c.incarnation == self._incarnation,
                        documents.c.state == "current",
                        documents.c.text_hash.in_(group),
                    )
                )
                found.update((row.text_hash, unpacked_ids(row.ids)) for row in connection.execute(query))
        return found

    def begin_writing(self, rows: Sequence[DocumentRow]) -> None:
        """Before the first upsert of these documents: any of their `ids` and `stale` may stand in the sink from now.

        Their containers' tags are forgotten in the same transaction: should the run die, they are read again even if
        the source has gone back to what it was.
        """
        containers = schema.containers
        with self._ledger.transaction() as connection:
            _upsert(connection, schema.documents, [self._document_values(row) for row in rows])
            for group in _groups(sorted({row.container for row in rows})):
                connection.execute(
                    update(containers)
                    .where(containers.c.scope == self._id, containers.c.key.in_(group))
                    .values(tag=None)
                )

    def finish_writing(self, rows: Sequence[DocumentRow]) -> None:
        """All points of these documents are acknowledged. Their dead letters are resolved."""
        with self._ledger.transaction() as connection:
            _upsert(connection, schema.documents, [self._document_values(row) for row in rows])
            self._resolve(connection, [row.key for row in rows])

    def unchanged(self, keys: Sequence[str]) -> None:
        """These documents were read and are as they were: whatever kept them from being read before is resolved."""
        with self._ledger.transaction() as connection:
            self._resolve(connection, keys)

    # ------------------------------------------------------------ deletes

    def pending_deletes(self) -> Iterator[list[DocumentRow]]:
        """The documents whose stale points are not known to be deleted, in groups."""
        table = schema.documents
        after = ""
        while True:
            query = (
                select(table)
                .where(table.c.scope == self._id, table.c.state == "deleting", table.c.key > after)
                .order_by(table.c.key)
                .limit(GROUP)
            )
            with self._ledger.transaction() as connection:
                rows = [_document(row) for row in connection.execute(query)]
            if not rows:
                return
            yield rows
            after = rows[-1].key

    def deleted(self, rows: Sequence[DocumentRow]) -> None:
        """The stale points of these documents are gone; so is the document, when it has no others."""
        table = schema.documents
        with self._ledger.transaction() as connection:
            for group in _groups(rows):
                gone = [row.key for row in group if not row.ids]
                kept = [row.key for row in group if row.ids]
                mine = and_(table.c.scope == self._id, table.c.state == "deleting")
                connection.execute(delete(table).where(mine, table.c.key.in_(gone)))
                connection.execute(update(table).where(mine, table.c.key.in_(kept)).values(state="current", stale=b""))

    def find_vanished(self) -> Vanished:
        """Compares what is remembered with what this run has seen. Only right after a listing that ended cleanly."""
        table, listed, seen, gone = (
            schema.documents,
            schema.seen_containers,
            schema.seen_documents,
            schema.vanished,
        )
        in_container = and_(listed.c.key == table.c.container)
        absent = or_(
            ~exists().where(in_container),
            and_(exists().where(in_container, listed.c.read), ~exists().where(seen.c.key == table.c.key)),
        )
        # A document may have wandered to another container: then it was seen.
        vanished = and_(absent, ~exists().where(seen.c.key == table.c.key))
        mine = and_(table.c.scope == self._id, table.c.state != "deleting")
        with self._ledger.transaction() as connection:
            connection.execute(delete(gone))
            total = connection.scalar(select(func.count()).select_from(table).where(mine)) or 0
            connection.execute(insert(gone).from_select(["key"], select(table.c.key).where(mine, vanished)))
            count = connection.scalar(select(func.count()).select_from(gone)) or 0
            self._note_what_came_back(connection)
            moved = connection.scalar(select(func.count()).select_from(self._moved().subquery())) if count else 0
        return Vanished(total=total, gone=count - (moved or 0), moved=moved or 0)

    def _note_what_came_back(self, connection: Connection) -> None:
        documents, gone, fresh = schema.documents, schema.vanished, schema.came_back
        query = (
            select(documents.c.text_hash, func.count())
            .where(documents.c.scope == self._id, documents.c.fresh, documents.c.text_hash.is_not(None))
            .where(documents.c.key.not_in(select(gone.c.key)))
            .group_by(documents.c.text_hash)
        )
        connection.execute(delete(fresh))
        connection.execute(insert(fresh).from_select(["text_hash", "count"], query))

    def _moved(self) -> Select[Any]:
        """The vanished keys whose text came back: of each text as many as there are fresh documents with it.

        Not more, or else of many documents with one text all but one could go unasked.
        """
        documents, gone, fresh = schema.documents, schema.vanished, schema.came_back
        number = func.row_number().over(partition_by=documents.c.text_hash, order_by=documents.c.key)
        ranked = (
            select(documents.c.key, documents.c.text_hash, number.label("number"))
            .join(gone, gone.c.key == documents.c.key)
            .where(documents.c.scope == self._id)
            .subquery()
        )
        joined = ranked.join(fresh, fresh.c.text_hash == ranked.c.text_hash)
        return select(ranked.c.key).select_from(joined).where(ranked.c.number <= fresh.c.count)

    def vanished_keys(self, limit: int) -> list[str]:
        """Some of the documents that vanished for good, for a message."""
        gone = schema.vanished
        query = select(gone.c.key).where(gone.c.key.not_in(self._moved())).order_by(gone.c.key).limit(limit)
        with self._ledger.transaction() as connection:
            return list(connection.scalars(query))

    def settle_fresh(self) -> None:
        """Vanished documents were looked for: what comes from now on is fresh."""
        table = schema.documents
        with self._ledger.transaction() as connection:
            connection.execute(update(table).where(table.c.scope == self._id, table.c.fresh).values(fresh=False))

    def mark_vanished_deleting(self, *, moved_only: bool) -> None:
        """Turns the vanished documents into pending deletes: from now on they are not current, whatever happens."""
        table, gone = schema.documents, schema.vanished
        chosen: Select[Any] = select(gone.c.key)
        if moved_only:
            chosen = self._moved()
        with self._ledger.transaction() as connection:
            keys = list(connection.scalars(chosen))
            for group in _groups(keys):
                query = select(table).where(table.c.scope == self._id, table.c.key.in_(group))
                rows = [_document(row) for row in connection.execute(query).all()]
                gone_rows = [DocumentRow(r.key, r.container, "deleting", stale=(*r.stale, *r.ids)) for r in rows]
                _upsert(connection, table, [self._document_values(row) for row in gone_rows])

    def keep_vanished(self) -> None:
        """Their deletes were withheld: their containers, where still listed, are read again by the next run."""
        table, gone, containers = schema.documents, schema.vanished, schema.containers
        theirs = select(table.c.container).join(gone, gone.c.key == table.c.key).where(table.c.scope == self._id)
        with self._ledger.transaction() as connection:
            connection.execute(
                update(containers).where(containers.c.scope == self._id, containers.c.key.in_(theirs)).values(tag=None)
            )

    def forget_unlisted(self) -> None:
        """After a clean listing: containers that are gone, and their dead letters, need no remembering."""
        listed = schema.seen_containers
        with self._ledger.transaction() as connection:
            for table, container in (
                (schema.containers, schema.containers.c.key),
                (schema.dead_letters, schema.dead_letters.c.container),
            ):
                connection.execute(
                    delete(table).where(
                        table.c.scope == self._id,
                        container.not_in(select(listed.c.key)),
                        *((table.c.run != self._run,) if table is schema.dead_letters else ()),
                    )
                )

    # ------------------------------------------------------------ dead letters

    def bury(self, letters: Iterable[DeadLetter]) -> None:
        """Records dead letters; one that is there already counts another attempt."""
        table = schema.dead_letters
        with self._ledger.transaction() as connection:
            for letter in letters:
                values = {
                    "scope": self._id,
                    "document": letter.document,
                    "chunk": -1 if letter.chunk is None else letter.chunk,
                    "container": letter.container,
                    "stage": letter.stage,
                    "reason": letter.reason,
                    "message": letter.message,
                    "transient": letter.transient,
                    "attempts": 1,
                    "first_at": _now(),
                    "last_at": _now(),
                    "run": self._run,
                }
                statement = sqlite_insert(table).values(values)
                renewed = {k: statement.excluded[k] for k in ("container", "stage", "reason", "message", "transient")}
                connection.execute(
                    statement.on_conflict_do_update(
                        index_elements=["scope", "document", "chunk"],
                        set_={
                            **renewed,
                            "attempts": table.c.attempts + 1,
                            "last_at": statement.excluded.last_at,
                            "run": self._run,
                        },
                    )
                )

    def dead_letter_count(self) -> int:
        letters = schema.dead_letters
        with self._ledger.transaction() as connection:
            query = select(func.count()).select_from(letters).where(letters.c.scope == self._id)
            return connection.scalar(query) or 0

    def _resolve(self, connection: Connection, documents: Sequence[str]) -> None:
        letters = schema.dead_letters
        for group in _groups(documents):
            connection.execute(delete(letters).where(letters.c.scope == self._id, letters.c.document.in_(group)))

    def _document_values(self, row: DocumentRow) -> dict[str, Any]:
        return {
            "scope": self._id,
            "key": row.key,
            "container": row.container,
            "state": row.state,
            "content_hash": row.content_hash,
            "text_hash": row.text_hash,
            "ids": packed(row.ids),
            "payload_hashes": packed(row.payload_hashes),
            "stale": packed(row.stale),
            "fresh": row.fresh,
        }


def _document(row: Row[Any]) -> DocumentRow:
    return DocumentRow(
        key=row.key,
        container=row.container,
        state=row.state,
        content_hash=row.content_hash,
        text_hash=row.text_hash,
        ids=unpacked_ids(row.ids),
        payload_hashes=unpacked_hashes(row.payload_hashes),
        stale=unpacked_ids(row.stale),
        fresh=row.fresh,
    )


def _upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    statement = sqlite_insert(table)
    renewed = {c.name: statement.excluded[c.name] for c in table.columns if not c.primary_key}
    keys = [c.name for c in table.primary_key.columns]
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=renewed), list(rows))


def _groups(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while group := list(islice(iterator, GROUP)):
        yield group


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
