"""What the store cannot take, what its errors mean, and outages in mid-load."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import psycopg
import pytest

from tests.servers.postgres import PostgresServer
from vecload.contracts import Sink
from vecload.documents import Json, VectorBatch
from vecload.errors import RefusedError, RejectedError, SinkError
from vecload.testing.sink_kit import DIMENSIONS, by_id, make_batch, make_payload, make_record, same_types
from vecload_connectors.sinks.pgvector import PGVECTOR
from vecload_connectors.sinks.pgvector.errors import fault
from vecload_connectors.sinks.pgvector.settings import PgvectorSettings


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


def open_sink(url: str, table: str, **settings: Any) -> Sink:
    return PGVECTOR.open(PgvectorSettings(url=url, **settings), table)


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


# ---------------------------------------------------------------- large and odd points


def test_2000_points_of_4000_dimensions_with_50_kilobytes_each(database: str) -> None:
    sink = open_sink(database, "large", column_type="halfvec")
    sink.create(make_record(4_000))
    texts = make_batch([str(i) for i in range(2_000)])
    vectors = np.random.default_rng(0).normal(size=(2_000, 4_000)).astype(np.float32)
    payloads = [make_payload(str(i), metadata={"blob": f"{i:08}" * 6_250}) for i in range(2_000)]
    sink.upsert(VectorBatch(texts.ids, vectors, payloads))
    assert sink.count() == 2_000
    (point,) = sink.fetch(texts.ids[7:8], vectors=True)
    assert point.payload == payloads[7]
    assert point.vector is not None
    np.testing.assert_allclose(point.vector, vectors[7], rtol=1e-3, atol=1e-3)


def test_a_key_longer_than_an_index_takes_is_rejected_alone(database: str) -> None:
    sink = open_sink(database, "long key")
    sink.create(make_record())
    good = make_batch(["a"])
    # Random, since the server compresses what it can.
    key = np.random.default_rng(0).bytes(4_000).hex()
    bad = make_batch(["b"], document=key)
    with pytest.raises(RejectedError, match=r"index row .* exceeds"):
        sink.upsert(bad)
    with pytest.raises(RejectedError, match=r"index row .* exceeds"):
        sink.upsert(
            VectorBatch([*good.ids, *bad.ids], np.vstack([good.vectors, bad.vectors]), [*good.payloads, *bad.payloads])
        )
    sink.upsert(good)
    assert by_id(sink.scan()).keys() == set(good.ids)


@pytest.mark.parametrize("column_type", ["vector", "halfvec"])
@pytest.mark.parametrize(
    ("number", "words"), [(np.nan, "NaN not allowed"), (np.inf, "infinite value not allowed"), (1e30, "infinite value")]
)
def test_a_number_that_no_vector_holds_is_rejected(database: str, column_type: str, number: float, words: str) -> None:
    sink = open_sink(database, f"numbers {column_type}", column_type=column_type)
    sink.create(make_record())
    batch = make_batch(["a"])
    batch.vectors[0, 3] = number
    if column_type == "vector" and number == 1e30:
        sink.upsert(batch)
        return
    with pytest.raises(RejectedError, match=words):
        sink.upsert(batch)


@pytest.mark.parametrize("column_type", ["vector", "halfvec"])
def test_another_width_is_rejected(database: str, column_type: str) -> None:
    sink = open_sink(database, f"width {column_type}", column_type=column_type)
    sink.create(make_record())
    batch = make_batch(["a"])
    with pytest.raises(RejectedError, match=f"expected {DIMENSIONS} dimensions, not 4"):
        sink.upsert(VectorBatch(batch.ids, batch.vectors[:, :4], batch.payloads))


def test_every_json_type_comes_back_as_it_was(database: str) -> None:
    sink = open_sink(database, "types")
    sink.create(make_record())
    metadata: dict[str, Json] = {
        "f" * 300: 1,
        "名" * 300: "name of 900 bytes",
        "": {"": [None, {"": ""}]},
        "over 2^63": 2**80,
        "under": -(2**80),
        "float": 1e22,
        "-0.0": 0.0,
        "time": "2026-02-03T04:05:06.789+02:00",
        "decimal": "12.3400",
        "bytes": "AAEC/w==",
        "emoji": "👩‍🚀\u2028\u0001",
        "nested": [[[[{"a": [True, False, None]}]]]],
    }
    batch = make_batch(["x"])
    sink.upsert(VectorBatch(batch.ids, batch.vectors, [make_payload("x", metadata=metadata)]))
    (point,) = sink.fetch(batch.ids)
    assert point.payload is not None
    assert same_types(point.payload["metadata"], metadata)


# ---------------------------------------------------------------- tables of others


@pytest.mark.parametrize(
    "definition",
    [
        "(id bigint, content text, embedding vector(8))",
        "(id uuid PRIMARY KEY, embedding vector(8))",
        "()",
    ],
)
def test_a_table_of_others_is_refused_with_its_columns(database: str, definition: str) -> None:
    query(database, "DROP TABLE IF EXISTS theirs")
    query(database, f"CREATE TABLE theirs {definition}")
    has = "has no columns" if definition == "()" else r"has id (int8|uuid), .*embedding vector\(8\)"
    with pytest.raises(RefusedError, match=f"'theirs'.*not made by vecload.*{has}"):
        open_sink(database, "theirs").create(make_record())


def test_a_table_that_was_made_again_is_refused_with_both_named(database: str) -> None:
    open_sink(database, "again").create(make_record())
    query(database, "ALTER TABLE again ALTER COLUMN embedding TYPE vector(9)")
    with pytest.raises(RefusedError, match=r"lacks embedding vector\(8\); it has id uuid, .*embedding vector\(9\)"):
        open_sink(database, "again").inspect()
    query(database, "ALTER TABLE again ALTER COLUMN embedding TYPE vector(8), DROP COLUMN headings")
    with pytest.raises(RefusedError, match=r"lacks headings jsonb"):
        open_sink(database, "again").inspect()


def test_columns_that_others_added_are_left_alone(database: str) -> None:
    sink = open_sink(database, "added")
    sink.create(make_record())
    query(database, "ALTER TABLE added ADD COLUMN note text DEFAULT 'kept'")
    again = open_sink(database, "added")
    again.upsert(make_batch(["a"]))
    again.upsert(make_batch(["a"], seed=1))
    assert query(database, "SELECT note FROM added") == [("kept",)]


def test_a_unique_index_of_others_rejects_rather_than_waits(database: str) -> None:
    sink = open_sink(database, "unique")
    sink.create(make_record())
    query(database, 'CREATE UNIQUE INDEX ON "unique" (document)')
    sink.upsert(make_batch(["a"]))
    with pytest.raises(RejectedError, match="duplicate key"):
        sink.upsert(make_batch(["b"]))


def test_first_runs_at_the_same_moment_make_one_table(postgres: PostgresServer) -> None:
    url = postgres.new_database(extension=False)
    errors: list[BaseException] = []

    def make() -> None:
        try:
            open_sink(url, "raced").create(make_record())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert open_sink(url, "raced").inspect() is not None


# ---------------------------------------------------------------- errors and outages


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("57P01", "transient"),  # shutting down
        ("57P02", "transient"),  # crashed
        ("57P03", "transient"),  # starting up
        ("57P04", "permanent"),  # the database was dropped
        ("57014", "permanent"),  # cancelled
        ("40001", "transient"),  # serialisation
        ("40P01", "transient"),  # deadlock
        ("53300", "transient"),  # too many connections
        ("53100", "transient"),  # disk full
        ("08006", "transient"),  # connection lost
        ("25006", "transient"),  # read-only, after a failover
        ("28P01", "permanent"),  # password
        ("3D000", "permanent"),  # no such database
        ("42501", "permanent"),  # no privilege
        ("42P01", "permanent"),  # no such table
        ("22P02", "rejected"),  # not of this type
        ("22021", "rejected"),  # not UTF-8
        ("23505", "rejected"),  # unique, of the user's own making
        ("54000", "rejected"),  # over a limit
    ],
)
def test_what_a_state_means(database: str, state: str, kind: str) -> None:
    with psycopg.connect(database) as connection, pytest.raises(psycopg.Error) as error:
        connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'words of the store' USING ERRCODE = '{state}'; END $$")
    found = fault(error.value, "PostgreSQL (here)")
    assert found is not None
    assert found.kind == kind
    assert "words of the store" in found.message


def test_a_load_goes_on_after_the_server_was_killed_and_came_back(postgres: PostgresServer, database: str) -> None:
    sink = open_sink(database, "outage in mid-load")
    sink.create(make_record())
    writers, requests = sink.capabilities.concurrent_writers, 40
    batches = [
        [make_batch([f"{n} {i} {k}" for k in range(50)], f"{n}.md", seed=i) for i in range(requests)]
        for n in range(writers)
    ]
    errors: list[BaseException] = []
    under_way = threading.Semaphore(0)

    def load(own: list[VectorBatch]) -> None:
        try:
            for batch in own:
                sink.upsert(batch)
                under_way.release()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=load, args=(own,)) for own in batches]
    for thread in threads:
        thread.start()
    for _ in range(10):
        under_way.acquire()
    postgres.stop()
    assert any(thread.is_alive() for thread in threads)
    postgres.start()
    for thread in threads:
        thread.join(timeout=120)
    assert errors == []
    assert by_id(sink.scan()).keys() == {i for own in batches for batch in own for i in batch.ids}
    assert sink.count() == writers * requests * 50


def test_an_index_is_built_though_the_server_restarts(postgres: PostgresServer, database: str) -> None:
    sink = open_sink(database, "restart")
    sink.create(make_record())
    sink.upsert(make_batch(["a", "b"]))
    postgres.stop()
    builder = threading.Thread(target=sink.build_index)
    builder.start()
    postgres.start()
    builder.join(timeout=60)
    found = query(database, "SELECT count(*) FROM pg_indexes WHERE tablename = 'restart' AND indexdef LIKE '%hnsw%'")
    assert found == [(1,)]


def test_a_store_that_is_down_at_first_is_told_in_one_sentence(postgres: PostgresServer, database: str) -> None:
    postgres.stop()
    try:
        with pytest.raises(SinkError, match="out of reach") as error:
            open_sink(database, "down").inspect()
        assert "\n" not in str(error.value)
    finally:
        postgres.start()
