"""What is pgvector's own: names, widths, the extension, and outages."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import psycopg
import pytest

from tests.servers.postgres import PostgresServer
from vecload.contracts import Sink
from vecload.documents import VectorBatch
from vecload.errors import RefusedError, RejectedError, SinkError, UsageError
from vecload.testing.sink_kit import DIMENSIONS, by_id, make_batch, make_payload, make_record
from vecload_connectors.sinks.pgvector import PGVECTOR
from vecload_connectors.sinks.pgvector.settings import PgvectorSettings


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


def open_sink(url: str | None, table: str, **settings: Any) -> Sink:
    return PGVECTOR.open(PgvectorSettings(url=url, **settings), table)


def query(url: str, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, arguments)
        return cursor.fetchall() if cursor.description else []


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


# ---------------------------------------------------------------- the table


def test_the_columns_that_readers_rely_on(database: str) -> None:
    sink = open_sink(database, "columns")
    batch = make_batch(["Grüße"])
    sink.create(make_record())
    sink.upsert(VectorBatch(batch.ids, batch.vectors, [make_payload("Grüße", metadata={"lang": "de"})]))
    (row,) = query(database, "SELECT id, source, document, ordinal, text, metadata, embedding::text FROM columns")
    assert row[0].bytes == batch.ids[0]
    assert row[1:6] == ("docs", "guide.md", 0, "Grüße", {"lang": "de"})
    np.testing.assert_allclose(np.fromstring(row[6].strip("[]"), sep=","), batch.vectors[0], atol=1e-6)


@pytest.mark.parametrize("table", ['quo"te', "semi;colon", "da-sh", "手册", "UPPER lower", "%s{}", "select", "é" * 31])
def test_any_name_works_as_it_stands(database: str, table: str) -> None:
    sink = open_sink(database, table)
    batch = make_batch(["a", "b"])
    sink.create(make_record())
    sink.upsert(batch)
    sink.update_payload(batch.ids[:1], [make_payload("a", "other.md")])
    sink.delete(batch.ids[1:])
    sink.build_index()
    assert [hit.payload["document"] for hit in sink.search(batch.vectors[0], 3)] == ["other.md"]
    assert by_id(sink.scan("docs", "other.md")).keys() == {batch.ids[0]}
    assert query(database, "SELECT count(*) FROM pg_tables WHERE tablename = %s", table) == [(1,)]


@pytest.mark.parametrize("table", ["", "x" * 64, "手" * 22, "vecload_collections", "a\0b"])
def test_a_name_that_would_be_changed_is_refused(database: str, table: str) -> None:
    with pytest.raises(UsageError) as error:
        open_sink(database, table)
    one_line(error)


@pytest.mark.parametrize("schema", ["My Schema", "; DROP TABLE docs; --", "手册 100%", "é" * 31])
def test_another_schema(database: str, schema: str) -> None:
    query(database, f'CREATE SCHEMA "{schema.replace("%", "%%")}"')
    sink = open_sink(database, "docs", schema=schema)
    sink.create(make_record())
    sink.upsert(make_batch(["a"]))
    sink.build_index()
    found = "SELECT tablename, count(*) FROM pg_indexes WHERE schemaname = %s GROUP BY 1 ORDER BY 1"
    assert query(database, found, schema) == [("docs", 3), ("vecload_collections", 1)]
    assert open_sink(database, "docs", schema=schema).count() == 1


def test_an_absent_schema_is_refused(database: str) -> None:
    with pytest.raises(RefusedError, match="no schema 'absent'") as error:
        open_sink(database, "docs", schema="absent").inspect()
    one_line(error)


@pytest.mark.parametrize("dimensions", [2_000, 2_001, 4_000])
def test_wide_vectors_are_searched_through_an_index_with_exact_scores(database: str, dimensions: int) -> None:
    table = f"wide_{dimensions}"
    # Small tables are read whole unless that is forbidden.
    sink = open_sink(f"{database}?options=-c%20enable_seqscan%3Doff", table)
    vectors = np.random.default_rng(0).normal(size=(20, dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    batch = make_batch([str(i) for i in range(20)])
    sink.create(make_record(dimensions))
    sink.upsert(VectorBatch(batch.ids, vectors, batch.payloads))
    sink.build_index()
    hits = sink.search(vectors[3], 5)
    sink.close()
    cosines = vectors @ vectors[3]
    wanted = np.argsort(-cosines)[:5]
    assert [hit.id for hit in hits] == [batch.ids[i] for i in wanted]
    np.testing.assert_allclose([hit.score for hit in hits], cosines[wanted], atol=1e-5)
    scans = (
        "SELECT idx_scan FROM pg_stat_user_indexes s JOIN pg_indexes i ON i.indexname = s.indexrelname "
        "WHERE s.relname = %s AND i.indexdef LIKE '%%USING hnsw%%'"
    )
    assert query(database, scans, table) == [(1,)]


def test_a_filter_over_an_index_finds_enough(database: str) -> None:
    """The rows that pass are the farthest of 3,000; an index scan that stopped at the nearest 40 would find none."""
    sink = open_sink(database, "filtered")
    vectors = np.random.default_rng(0).normal(size=(3_000, DIMENSIONS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors[np.argsort(-vectors[:, 0])]
    batch = make_batch([str(i) for i in range(3_000)])
    payloads = [make_payload("t", metadata={"far": i >= 2_990}) for i in range(3_000)]
    sink.create(make_record())
    for start in (0, 1_000, 2_000):
        part = slice(start, start + 1_000)
        sink.upsert(VectorBatch(batch.ids[part], vectors[part], payloads[part]))
    sink.build_index()
    query(database, "ANALYZE filtered")
    hits = sink.search(np.eye(1, DIMENSIONS, dtype=np.float32)[0], 5, {"metadata.far": True})
    assert [hit.id for hit in hits] == batch.ids[2_990:2_995]
    assert len(sink.search(vectors[0], 100)) == 100


def test_pages_of_a_scan_meet_without_a_gap(database: str) -> None:
    sink = open_sink(database, "paged")
    sink.create(make_record())
    ids: set[bytes] = set()
    for n in range(5):
        batch = make_batch([f"{n} {i}" for i in range(1_000)], document=f"{n % 2}.md")
        sink.upsert(batch)
        ids |= set(batch.ids)
    assert by_id(sink.scan()).keys() == ids
    assert by_id(sink.scan("docs")).keys() == ids
    assert len(by_id(sink.scan("docs", "0.md"))) == 3_000


# ---------------------------------------------------------------- refused


def test_a_foreign_table_is_refused_and_left_alone(database: str) -> None:
    query(database, "CREATE TABLE foreign_table (id int)")
    sink = open_sink(database, "foreign_table")
    for attempt in (sink.inspect, lambda: sink.create(make_record())):
        with pytest.raises(RefusedError, match=r"'foreign_table'.*not made by vecload") as error:
            attempt()
        one_line(error)
    assert query(database, "SELECT count(*) FROM foreign_table") == [(0,)]


def test_a_dropped_table_is_noticed(database: str) -> None:
    sink = open_sink(database, "dropped")
    sink.create(make_record())
    query(database, "DROP TABLE dropped")
    assert sink.inspect() is None
    record = make_record()
    sink.create(record)
    assert sink.inspect() == record
    query(database, "DROP TABLE dropped")
    query(database, "CREATE TABLE dropped (id int)")
    with pytest.raises(RefusedError, match="made again"):
        sink.inspect()


def test_text_that_the_store_cannot_hold_is_rejected_alone(database: str) -> None:
    sink = open_sink(database, "rejected")
    sink.create(make_record())
    good, bad = make_batch(["good"]), make_batch(["bad"])
    for text in ("nul \0 byte", "lone \ud800 surrogate"):
        payload = {**make_payload("bad"), "text": text}
        with pytest.raises(RejectedError) as error:
            sink.upsert(VectorBatch(bad.ids, bad.vectors, [payload]))
        one_line(error)
    sink.upsert(good)
    assert by_id(sink.scan()).keys() == set(good.ids)


# ---------------------------------------------------------------- the server


def test_the_extension_is_created_where_it_may_be(postgres: PostgresServer) -> None:
    url = postgres.new_database(extension=False)
    sink = open_sink(url, "docs")
    assert sink.inspect() is None
    assert query(url, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'") == [(0,)]
    sink.create(make_record())
    sink.upsert(make_batch(["a"]))
    assert sink.count() == 1


def test_a_database_without_pgvector_is_one_sentence(postgres: PostgresServer) -> None:
    url = postgres.new_database("bare", extension=False)
    query(url, "CREATE ROLE plain LOGIN")
    sink = open_sink(postgres.dsn_of("bare", user="plain", password="very-secret"), "docs")
    assert sink.inspect() is None
    with pytest.raises(SinkError, match="CREATE EXTENSION vector") as error:
        sink.create(make_record())
    assert "very-secret" not in one_line(error)
    assert query(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_pgvector_in_a_schema_of_its_own(postgres: PostgresServer) -> None:
    url = postgres.new_database(extension=False)
    query(url, "CREATE SCHEMA extensions")
    query(url, "CREATE EXTENSION vector SCHEMA extensions")
    sink = open_sink(url, "docs")
    batch = make_batch(["a", "b"])
    sink.create(make_record())
    sink.upsert(batch)
    sink.build_index()
    assert sink.search(batch.vectors[1], 1)[0].id == batch.ids[1]


@pytest.mark.parametrize(("name", "role"), [("no_such_database", "postgres"), ("postgres", "no_such_role")])
def test_a_refused_login_is_one_sentence_without_the_password(postgres: PostgresServer, name: str, role: str) -> None:
    url = postgres.dsn_of(name, user=role, password="very-secret")
    with pytest.raises(SinkError, match="does not exist") as error:
        open_sink(url, "docs").inspect()
    assert "very-secret" not in one_line(error)


def test_a_url_that_cannot_be_read_is_one_sentence_without_the_password() -> None:
    with pytest.raises(UsageError) as error:
        open_sink("postgresql://user:very-secret@host:port:1/x?y", "docs")
    assert "very-secret" not in one_line(error)


def test_no_server_is_one_sentence() -> None:
    with pytest.raises(SinkError, match="out of reach") as error:
        open_sink("postgresql://postgres@127.0.0.1:1/postgres", "docs").inspect()
    one_line(error)


def test_the_usual_variables_name_the_server(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(postgres.port))
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setenv("PGDATABASE", database.rpartition("/")[2])
    sink = open_sink(None, "from_environment")
    sink.create(make_record())
    assert sink.id == f"pgvector:postgresql://127.0.0.1:{postgres.port}/{database.rpartition('/')[2]}#from_environment"
    assert query(database, "SELECT count(*) FROM from_environment") == [(0,)]


def test_an_outage_is_waited_out(postgres: PostgresServer, database: str) -> None:
    sink = open_sink(database, "outage")
    sink.create(make_record())
    postgres.stop()
    batch = make_batch(["a", "b"])
    writer = threading.Thread(target=sink.upsert, args=(batch,))
    writer.start()
    postgres.start()
    writer.join(timeout=60)
    assert by_id(sink.scan()).keys() == set(batch.ids)


def test_a_connection_that_was_cut_is_replaced(database: str) -> None:
    sink = open_sink(database, "cut")
    sink.create(make_record())
    query(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'vecload'")
    sink.upsert(make_batch(["a"]))
    assert sink.count() == 1
