"""The vector index: built after the load, once, by the settings, and used by searches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from pydantic import ValidationError

from tests.servers.postgres import PostgresServer
from vecload.contracts import Sink
from vecload.documents import VectorBatch
from vecload.errors import RefusedError, RejectedError, SinkError
from vecload.testing.sink_kit import make_batch, make_record
from vecload_connectors.sinks.pgvector import PGVECTOR
from vecload_connectors.sinks.pgvector.settings import PgvectorSettings

ROWS = 300


@pytest.fixture(scope="module", params=["postgres", "older_postgres"])
def database(request: pytest.FixtureRequest) -> str:
    server: PostgresServer = request.getfixturevalue(request.param)
    return server.new_database()


def open_sink(url: str, table: str, **settings: Any) -> Sink:
    return PGVECTOR.open(PgvectorSettings(url=url, **settings), table)


def query(url: str, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, arguments)
        return cursor.fetchall() if cursor.description else []


def indexes(url: str, table: str) -> list[str]:
    """The definitions of the table's vector indexes, from the method on."""
    rows = query(
        url,
        "SELECT indexdef FROM pg_indexes WHERE tablename = %s AND indexdef ~ 'USING (hnsw|ivfflat)' ORDER BY indexname",
        table,
    )
    return [row[0].partition(" USING ")[2] for row in rows]


def scans(url: str, table: str) -> int:
    """How often a vector index of the table was used."""
    statement = (
        "SELECT sum(idx_scan)::int FROM pg_stat_user_indexes s JOIN pg_indexes i ON i.indexname = s.indexrelname "
        "WHERE s.relname = %s AND i.indexdef ~ 'USING (hnsw|ivfflat)'"
    )
    return int(query(url, statement, table)[0][0])


def filled(sink: Sink, dimensions: int, rows: int = ROWS) -> VectorBatch:
    vectors = np.random.default_rng(0).normal(size=(rows, dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = make_batch([str(i) for i in range(rows)])
    batch = VectorBatch(texts.ids, vectors, texts.payloads)
    sink.create(make_record(dimensions))
    sink.upsert(batch)
    return batch


@pytest.mark.parametrize(
    ("dimensions", "settings", "definition"),
    [
        (8, {}, "hnsw (embedding vector_cosine_ops) WITH (m='16', ef_construction='64')"),
        (
            8,
            {"m": 8, "ef_construction": 32, "column_type": "halfvec"},
            "hnsw (embedding halfvec_cosine_ops) WITH (m='8', ef_construction='32')",
        ),
        (
            8,
            {"index_values": "halfvec"},
            "hnsw (((embedding)::halfvec(8)) halfvec_cosine_ops) WITH (m='16', ef_construction='64')",
        ),
        (
            2_560,
            {},
            "hnsw (((embedding)::halfvec(2560)) halfvec_cosine_ops) WITH (m='16', ef_construction='64')",
        ),
        (
            4_096,
            {"index_values": "bit"},
            "hnsw (((binary_quantize(embedding))::bit(4096)) bit_hamming_ops) WITH (m='16', ef_construction='64')",
        ),
        (8, {"index_type": "ivfflat"}, "ivfflat (embedding vector_cosine_ops) WITH (lists='1')"),
        (
            8,
            {"index_type": "ivfflat", "lists": 4, "column_type": "halfvec"},
            "ivfflat (embedding halfvec_cosine_ops) WITH (lists='4')",
        ),
    ],
)
def test_built_after_the_load_and_used_by_searches(
    database: str, dimensions: int, settings: dict[str, Any], definition: str
) -> None:
    table = f"built {dimensions} {sorted(settings.items())}"[:63]
    # Small tables are read whole unless that is forbidden.
    url = f"{database}?options=-c%20enable_seqscan%3Doff"
    sink = open_sink(url, table, **settings)
    assert sink.capabilities.deferred_index
    batch = filled(sink, dimensions)
    assert indexes(database, table) == []
    wanted = np.argsort(-(batch.vectors @ batch.vectors[3]))[:3]
    assert [hit.id for hit in sink.search(batch.vectors[3], 3)] == [batch.ids[i] for i in wanted]
    sink.build_index()
    assert indexes(database, table) == [definition]
    sink.build_index()
    assert indexes(database, table) == [definition]
    sink.close()
    # Another run may have other settings; the table's own index counts.
    plain = open_sink(url, table)
    hits = plain.search(batch.vectors[3], 3)
    plain.close()
    assert hits[0].id == batch.ids[3]
    np.testing.assert_allclose(hits[0].score, 1.0, atol=1e-3 if "column_type" in settings else 1e-5)
    if "ivfflat" not in definition and "bit" not in definition:
        assert [hit.id for hit in hits] == [batch.ids[i] for i in wanted]
    assert scans(database, table) == 1


def test_live_is_there_from_the_start(database: str) -> None:
    sink = open_sink(database, "live", index="live")
    assert not sink.capabilities.deferred_index
    filled(sink, 8)
    assert indexes(database, "live") == ["hnsw (embedding vector_cosine_ops) WITH (m='16', ef_construction='64')"]
    sink.build_index()
    assert len(indexes(database, "live")) == 1


def test_none_has_none_and_takes_any_width(database: str) -> None:
    sink = open_sink(database, "none", index_type="none")
    assert not sink.capabilities.deferred_index
    assert sink.capabilities.max_dimensions == 16_000
    batch = filled(sink, 5_000, rows=5)
    sink.build_index()
    assert indexes(database, "none") == []
    assert sink.search(batch.vectors[2], 1)[0].id == batch.ids[2]


@pytest.mark.parametrize(
    ("dimensions", "settings", "words"),
    [
        (4_096, {}, "sink.index_values=bit .* sink.index_type=none .*Matryoshka.*another store"),
        (16_001, {"index_type": "none"}, "16,000 dimensions, not 16,001: .*Matryoshka.*another store"),
    ],
)
def test_too_wide_is_refused_with_the_ways_out(
    database: str, dimensions: int, settings: dict[str, Any], words: str
) -> None:
    sink = open_sink(database, "too wide", **settings)
    with pytest.raises(RefusedError, match=words):
        sink.create(make_record(dimensions))
    assert sink.inspect() is None


def test_the_widest_depends_on_the_index(database: str) -> None:
    assert open_sink(database, "any").capabilities.max_dimensions == 4_000
    assert open_sink(database, "any", index_values="bit").capabilities.max_dimensions == 16_000


def test_what_is_built_is_said_before(database: str, caplog: pytest.LogCaptureFixture) -> None:
    sink = open_sink(database, "said", maintenance_work_mem="65MB", max_parallel_maintenance_workers=3)
    filled(sink, 2_560)
    caplog.set_level(logging.INFO, logger="vecload")
    sink.build_index()
    text = caplog.text
    assert "HNSW index over 300 rows as halfvec: about 2 MB, with maintenance_work_mem 65 MB and up to 3 work" in text
    assert "2560 are indexed as halfvec" in text


@pytest.fixture
def builds(database: str) -> Iterator[list[tuple[str, str]]]:
    """The server's settings of memory and workers at each index that is created."""
    query(database, "CREATE TABLE builds (memory text, workers text)")
    query(
        database,
        "CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.builds VALUES "
        "(current_setting('maintenance_work_mem'), current_setting('max_parallel_maintenance_workers')); END $$",
    )
    query(database, "CREATE EVENT TRIGGER note ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION note()")
    found: list[tuple[str, str]] = []
    yield found
    query(database, "DROP EVENT TRIGGER note")
    query(database, "DROP FUNCTION note")
    query(database, "DROP TABLE builds")


def test_memory_and_workers_are_set_for_the_build(database: str, builds: list[tuple[str, str]]) -> None:
    sink = open_sink(database, "memory", maintenance_work_mem="96MB", max_parallel_maintenance_workers=1)
    filled(sink, 8)
    query(database, "TRUNCATE builds")
    sink.build_index()
    assert query(database, "SELECT * FROM builds") == [("96MB", "1")]


def test_a_build_that_was_cut_off_is_begun_again(database: str) -> None:
    """A lock holds the build up; the server ends its connection, as it does when vecload is killed."""
    sink = open_sink(database, "cut")
    filled(sink, 8)
    with psycopg.connect(database) as blocker:
        blocker.execute('LOCK TABLE "cut" IN ROW EXCLUSIVE MODE')
        builder = threading.Thread(target=sink.build_index)
        builder.start()
        ended: list[tuple[Any, ...]] = []
        while not ended:
            ended = query(
                database,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE query LIKE 'CREATE INDEX%%' AND wait_event_type = 'Lock' AND application_name = 'vecload'",
            )
        blocker.rollback()
    builder.join(timeout=60)
    assert len(indexes(database, "cut")) == 1


def test_without_shared_memory_it_is_built_without_workers(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """What a container with a small /dev/shm says, said here by a trigger."""
    sink = open_sink(database, "no shared memory")
    filled(sink, 8)
    query(
        database,
        "CREATE FUNCTION full_shm() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF current_setting('max_parallel_maintenance_workers') <> '0' THEN "
        "RAISE EXCEPTION 'could not resize shared memory segment' USING ERRCODE = '53100'; END IF; END $$",
    )
    query(
        database,
        "CREATE EVENT TRIGGER full_shm ON ddl_command_start WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION full_shm()",
    )
    try:
        sink.build_index()
    finally:
        query(database, "DROP EVENT TRIGGER full_shm")
    assert len(indexes(database, "no shared memory")) == 1
    assert "could not resize shared memory segment" in caplog.text


def test_an_invalid_index_is_none(database: str) -> None:
    sink = open_sink(database, "invalid")
    filled(sink, 8)
    query(database, "CREATE INDEX broken ON invalid USING hnsw (embedding vector_cosine_ops)")
    query(database, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'broken'::regclass")
    sink.build_index()
    assert query(database, "SELECT count(*) FROM pg_class WHERE relname = 'broken'") == [(0,)]
    assert len(indexes(database, "invalid")) == 1


def test_an_index_that_someone_built_counts_if_it_is_for_cosine(database: str) -> None:
    sink = open_sink(database, "someone")
    filled(sink, 8)
    query(database, "CREATE INDEX ON someone USING hnsw (embedding vector_l2_ops)")
    sink.build_index()
    assert len(indexes(database, "someone")) == 2
    other = open_sink(database, "someone else")
    filled(other, 8)
    query(database, 'CREATE INDEX ON "someone else" USING ivfflat (embedding vector_cosine_ops) WITH (lists = 2)')
    other.build_index()
    assert indexes(database, "someone else") == ["ivfflat (embedding vector_cosine_ops) WITH (lists='2')"]


def test_two_runs_build_one(database: str) -> None:
    filled(open_sink(database, "two"), 8)
    sinks = [open_sink(database, "two") for _ in range(3)]
    threads = [threading.Thread(target=sink.build_index) for sink in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(indexes(database, "two")) == 1


def test_a_build_that_cannot_work_is_one_sentence_and_no_rejected_point(database: str) -> None:
    sink = open_sink(database, "hopeless", index_type="ivfflat", lists=30_000, maintenance_work_mem="1MB")
    filled(sink, 8)
    with pytest.raises(SinkError, match="cannot build the vector index: memory required") as error:
        sink.build_index()
    assert not isinstance(error.value, RejectedError)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("settings", [{}, {"index": "live"}, {"index_type": "none"}])
def test_a_vector_of_zeros_is_kept_and_never_found(database: str, settings: dict[str, Any]) -> None:
    sink = open_sink(database, f"zeros {settings}", **settings)
    batch = make_batch(["zero", "other"])
    batch.vectors[0] = 0
    sink.create(make_record())
    sink.upsert(batch)
    for _ in range(2):
        assert [hit.id for hit in sink.search(batch.vectors[1], 5)] == batch.ids[1:]
        sink.build_index()
    (point,) = sink.fetch(batch.ids[:1], vectors=True)
    assert point.vector is not None
    assert not point.vector.any()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"index_type": "ivfflat", "index": "live"}, "leave index at 'defer'"),
        ({"m": 40}, "at least twice m, 80"),
        ({"maintenance_work_mem": "lots"}, "maintenance_work_mem"),
        ({"run_as": "nobody"}, "embedded"),
        ({"column_type": "bit"}, "column_type"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        PgvectorSettings(url="postgresql://localhost/db", **settings)
