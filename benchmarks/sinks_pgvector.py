"""Rows a second into PostgreSQL with pgvector: vecload's sink beside what a user would write today.

    pip install langchain-postgres        # the rows of LangChain; without it they are left out
    python -m benchmarks.sinks_pgvector --sink postgresql://user@host/database
    python -m benchmarks.sinks_pgvector --sink pgvector:/tmp/bench         # an embedded server (--run-as USER as root)

Every way writes the same points into a table of its own: vectors that are ready, a text of 1,000 characters, five
fields of metadata. Making the points is part of each time, and shown alone as well. No vector index stands during the
load; vecload's is built after it and timed alone. All ways run in one process, one after the other, in each round in
another order; the table shows the best round of each, and ratios to vecload.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import random
import resource
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import numpy as np
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from vecload.contracts import CollectionRecord, Sink, VectorSpace
from vecload.documents import Json, VectorBatch
from vecload_connectors.sinks.pgvector import PGVECTOR
from vecload_connectors.sinks.pgvector.embedded import EmbeddedServer
from vecload_connectors.sinks.pgvector.settings import EMBEDDED_SCHEME, PgvectorSettings

BATCH = 2_000
LETTERS = "".join(random.Random(0).choices("abcdefghij klmnop qrstu ", k=20_000))


def batches(rows: int, dimensions: int) -> Iterator[VectorBatch]:
    """The points, made as they are taken, so that they do not fill the memory that is measured."""
    block = np.random.default_rng(0).normal(size=(BATCH, dimensions)).astype(np.float32)
    block /= np.linalg.norm(block, axis=1, keepdims=True)
    for start in range(0, rows, BATCH):
        numbers = range(start, min(rows, start + BATCH))
        vectors = np.roll(block, start // BATCH, axis=1)[: len(numbers)]
        ids = [uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)).bytes for number in numbers]
        yield VectorBatch(ids, vectors, [payload(number) for number in numbers])


def payload(number: int) -> dict[str, Json]:
    start = number % 19_000
    text = f"{number:08} {LETTERS[start : start + 991]}"
    return {
        "text": text,
        "source": "bench",
        "document": f"folder/{number // 10:07}.md",
        "ordinal": number % 10,
        "start": 0,
        "end": len(text),
        "headings": ["Guide", "Part"],
        "text_hash": f"{number:064x}",
        "metadata": {"lang": "en", "page": number % 300, "score": number / 7, "draft": False, "title": text[:40]},
    }


# ---------------------------------------------------------------- the ways


def with_vecload(sink: Sink, rows: int, dimensions: int) -> None:
    """As the core does: requests in flight from as many threads as the sink says, two for each."""
    writers = sink.capabilities.concurrent_writers
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(writers) as pool:
        for batch in batches(rows, dimensions):
            if len(running) >= 2 * writers:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
            running.add(pool.submit(sink.upsert, batch))
        for future in running:
            future.result()


def with_copy(conninfo: str, table: str, rows: int, dimensions: int) -> None:
    """COPY BINARY into a temporary table, then a merge, so that it is an upsert: what a careful user writes."""
    from pgvector.psycopg import register_vector

    name = sql.Identifier(table)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        register_vector(connection)
        connection.execute(
            sql.SQL("CREATE TABLE {} (id uuid PRIMARY KEY, text text, metadata jsonb, embedding vector({}))").format(
                name, sql.SQL(str(dimensions))
            )
        )
        connection.execute("CREATE TEMPORARY TABLE stage (id uuid, text text, metadata jsonb, embedding vector)")
        copy_in = "COPY stage (id, text, metadata, embedding) FROM STDIN WITH (FORMAT BINARY)"
        merge = sql.SQL(
            "INSERT INTO {} SELECT * FROM stage ON CONFLICT (id) DO UPDATE SET "
            "(text, metadata, embedding) = (excluded.text, excluded.metadata, excluded.embedding)"
        ).format(name)
        for batch in batches(rows, dimensions):
            with connection.transaction():
                with connection.cursor().copy(copy_in) as copy:
                    copy.set_types(["uuid", "text", "jsonb", "vector"])
                    for point_id, vector, fields in zip(batch.ids, batch.vectors, batch.payloads, strict=True):
                        text, rest = split(fields)
                        copy.write_row((uuid.UUID(bytes=point_id), text, Jsonb(rest), vector))
                connection.execute(merge)
                connection.execute("TRUNCATE stage")


def with_langchain(url: str, table: str, rows: int, dimensions: int) -> None:
    """`PGVector.add_embeddings`, in requests of the same size."""
    peer, embeddings = imported()
    store = peer.PGVector(embeddings.FakeEmbeddings(size=dimensions), connection=url, collection_name=table)
    for batch in batches(rows, dimensions):
        texts, rest = zip(*(split(fields) for fields in batch.payloads), strict=True)
        ids = [str(uuid.UUID(bytes=point_id)) for point_id in batch.ids]
        store.add_embeddings(texts, batch.vectors.tolist(), list(rest), ids)


def with_langchain_store(url: str, table: str, rows: int, dimensions: int) -> None:
    """`PGVectorStore.add_embeddings`, its newer one, in requests of the same size."""
    peer, embeddings = imported()
    engine = peer.PGEngine.from_connection_string(url)
    engine.init_vectorstore_table(table_name=table, vector_size=dimensions)
    store = peer.PGVectorStore.create_sync(engine, embeddings.FakeEmbeddings(size=dimensions), table)
    for batch in batches(rows, dimensions):
        texts, rest = zip(*(split(fields) for fields in batch.payloads), strict=True)
        ids = [str(uuid.UUID(bytes=point_id)) for point_id in batch.ids]
        store.add_embeddings(texts, batch.vectors.tolist(), list(rest), ids)


def imported() -> tuple[Any, Any]:
    """LangChain's modules, which need not be installed."""
    return importlib.import_module("langchain_postgres"), importlib.import_module("langchain_core.embeddings")


def split(fields: Any) -> tuple[str, dict[str, Json]]:
    return fields["text"], {name: value for name, value in fields.items() if name != "text"}


# ---------------------------------------------------------------- the run


def measure(work: Callable[[], None], rows: int) -> float:
    """Rows a second."""
    begun = time.perf_counter()
    work()
    return rows / (time.perf_counter() - begun)


def record(dimensions: int) -> CollectionRecord:
    space = VectorSpace("benchmark", "0" * 64, "mean", True, dimensions, "", "")
    return CollectionRecord(uuid.uuid4().hex, space, "", "0.0.0", "pending")


def one_width(settings: PgvectorSettings, conninfo: str, arguments: argparse.Namespace, dimensions: int) -> None:
    rows, slow_rows = arguments.rows, min(arguments.rows, arguments.slow_rows)
    part = " ".join(f"{k}={v}" for k, v in psycopg.conninfo.conninfo_to_dict(conninfo).items())
    best: dict[str, float] = {}
    index_seconds = 0.0

    def vecload_way(name: str) -> None:
        nonlocal index_seconds
        sink = PGVECTOR.open(settings, name)
        sink.create(record(dimensions))
        with_vecload(sink, rows, dimensions)
        sink.close()

    def url_of(driver: str) -> str:
        given = psycopg.conninfo.conninfo_to_dict(part)
        login = f"{given.get('user', '')}{':' + str(given['password']) if 'password' in given else ''}"
        query = f"host={given.get('host', 'localhost')}&port={given.get('port', '5432')}"
        return f"postgresql+{driver}://{login}@/{given.get('dbname', '')}?{query}"

    ways: dict[str, tuple[Callable[[str], None], int]] = {
        "vecload": (vecload_way, rows),
        "hand-written COPY": (lambda name: with_copy(conninfo, name, rows, dimensions), rows),
    }
    if importlib.util.find_spec("langchain_postgres"):
        psycopg_url = url_of("psycopg")
        ways["LangChain PGVector"] = (lambda name: with_langchain(psycopg_url, name, slow_rows, dimensions), slow_rows)
        ways["LangChain PGVectorStore"] = (
            lambda name: with_langchain_store(psycopg_url, name, slow_rows, dimensions),
            slow_rows,
        )
    order = list(ways)
    for turn in range(arguments.rounds):
        for way in order[turn % len(order) :] + order[: turn % len(order)]:
            work, count = ways[way]
            table = f"bench_{uuid.uuid4().hex[:8]}"
            rate = measure(partial(work, table), count)
            best[way] = max(best.get(way, 0.0), rate)
            print(f"  {dimensions} dimensions, round {turn + 1}: {way}: {rate:,.0f} rows/s", flush=True)
            if way == "vecload" and turn == arguments.rounds - 1 and arguments.index:
                sink = PGVECTOR.open(settings, table)
                index_seconds = rows / measure(sink.build_index, rows)
                sink.close()
            drop(conninfo, table)
    made = measure(lambda: deque(batches(rows, dimensions), maxlen=0).clear(), rows)
    print(f"\n| {dimensions} dimensions | rows | rows/s | vecload is |\n| --- | --- | --- | --- |")
    for way, rate in best.items():
        print(f"| {way} | {ways[way][1]:,} | {rate:,.0f} | {best['vecload'] / rate:.2f} x |")
    print(f"| (making the points alone) | {rows:,} | {made:,.0f} | |")
    if index_seconds:
        print(f"\nvecload's HNSW index after the load: {index_seconds:.1f} s")
    print(json.dumps({"peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}), "\n", flush=True)


def drop(conninfo: str, table: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(table)))
        connection.execute("DROP TABLE IF EXISTS langchain_pg_embedding, langchain_pg_collection")
        connection.execute("CHECKPOINT")


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows a second into pgvector.")
    parser.add_argument("--sink", required=True, help="postgresql://… or pgvector:FOLDER")
    parser.add_argument("--run-as", help="as root, with pgvector:FOLDER: the user that runs the server")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--slow-rows", type=int, default=20_000, help="rows for LangChain's ways")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[384, 1024])
    parser.add_argument("--index", action="store_true", help="also build vecload's index")
    arguments = parser.parse_args()
    settings = PgvectorSettings(url=arguments.sink, run_as=arguments.run_as)
    server = None
    conninfo = arguments.sink
    if conninfo.startswith(EMBEDDED_SCHEME):
        server = EmbeddedServer(conninfo.removeprefix(EMBEDDED_SCHEME), arguments.run_as)
        conninfo = server.conninfo()
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        for dimensions in arguments.dimensions:
            one_width(settings, conninfo, arguments, dimensions)
    finally:
        if server is not None:
            server.close()


if __name__ == "__main__":
    main()
