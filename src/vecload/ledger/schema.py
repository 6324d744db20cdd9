"""The ledger's tables. One row a document, not one a chunk: ids and payload hashes are packed."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

VERSION = 1
"""Raised with every change of the tables; a ledger of a newer version is refused, an older one is migrated."""

metadata = MetaData()

about = Table("vecload", metadata, Column("version", Integer, nullable=False))

# What is remembered belongs to a source's part of one collection. The incarnation is the collection's own random id:
# a collection that was dropped and made again has another, so that nothing remembered of the old one applies to it.
scopes = Table(
    "scopes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("incarnation", String, nullable=False),
    Column("sink", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("last_run", String),
    UniqueConstraint("incarnation", "source"),
)

containers = Table(
    "containers",
    metadata,
    Column("scope", Integer, primary_key=True, autoincrement=False),
    Column("key", Text, primary_key=True),
    Column("tag", Text),  # NULL: read it again
    Column("documents", Integer, nullable=False, default=0),
    Column("skipped", Text),  # JSON {reason: count}
)

# state: `writing` before a document's first upsert (any of ids and stale may be in the sink, or not yet),
# `deleting` while the deletes of `stale` are not acknowledged, else `current`.
documents = Table(
    "documents",
    metadata,
    Column("scope", Integer, primary_key=True, autoincrement=False),
    Column("key", Text, primary_key=True),
    Column("container", Text, nullable=False),
    Column("state", String, nullable=False),
    Column("content_hash", LargeBinary),  # of the content as read and all that shapes its points; NULL: unknown
    Column("text_hash", LargeBinary),  # of the chunks' texts: finds renamed and copied documents
    Column("ids", LargeBinary, nullable=False),
    Column("payload_hashes", LargeBinary, nullable=False),
    Column("stale", LargeBinary, nullable=False),
    Column("fresh", Boolean, nullable=False, default=False),  # came since vanished documents were last looked for
    Index("documents_by_container", "scope", "container"),
    Index("documents_by_text", "text_hash", "scope"),
)
# Partial, so that it serves the search for pending deletes alone: as a full index it would be taken for others too,
# where nearly every row is `current`.
Index("documents_deleting", documents.c.scope, documents.c.key, sqlite_where=documents.c.state == "deleting")
Index("documents_fresh", documents.c.scope, documents.c.text_hash, sqlite_where=text("fresh = 1"))

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("scope", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, primary_key=True),
    Column("chunk", Integer, primary_key=True, autoincrement=False),  # -1: the whole document
    Column("container", Text, nullable=False),
    Column("stage", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("message", Text, nullable=False),
    Column("transient", Boolean, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("first_at", String, nullable=False),
    Column("last_at", String, nullable=False),
    Column("run", String, nullable=False),
)

# What this run has seen; on disk rather than in memory, so that memory stays flat however long the listing is.
temporary = MetaData()
seen_containers = Table(
    "seen_containers",
    temporary,
    Column("key", Text, primary_key=True),
    Column("read", Boolean, nullable=False),  # read to its end in this run: what it no longer yields is gone
    prefixes=["TEMPORARY"],
)
seen_documents = Table("seen_documents", temporary, Column("key", Text, primary_key=True), prefixes=["TEMPORARY"])
vanished = Table("vanished", temporary, Column("key", Text, primary_key=True), prefixes=["TEMPORARY"])
came_back = Table(
    "came_back",
    temporary,
    Column("text_hash", LargeBinary, primary_key=True),
    Column("count", Integer, nullable=False),  # fresh documents with this text
    prefixes=["TEMPORARY"],
)
scanned = Table(
    "scanned",
    temporary,
    Column("document", Text, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("id", LargeBinary, primary_key=True),
    Column("payload_hash", LargeBinary, nullable=False),
    Column("text_hash", String, nullable=False),
    prefixes=["TEMPORARY"],
)
