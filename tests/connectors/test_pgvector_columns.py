"""Metadata fields as columns: typed for readers, used by filters, and the payload comes back as it was."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from tests.servers.postgres import PostgresServer
from vecload.contracts import Sink
from vecload.documents import Json, VectorBatch
from vecload.errors import RefusedError, RejectedError, UsageError
from vecload.testing.sink_kit import make_batch, make_payload, make_record, same_types
from vecload_connectors.sinks.pgvector import PGVECTOR
from vecload_connectors.sinks.pgvector.settings import PgvectorSettings

UUID = "2b1d3c4e-0000-4000-8000-00000000000a"
TYPES = {
    "language": "text",
    "views": "bigint",
    "weight": "double precision",
    "draft": "boolean",
    "changed at": "timestamptz",
    "published": "date",
    "price": "numeric",
    "ref": "uuid",
    "tags": "jsonb",
    'it\'s 100% "列"': "text",
}


@pytest.fixture(scope="module", params=["postgres", "older_postgres"])
def database(request: pytest.FixtureRequest) -> str:
    server: PostgresServer = request.getfixturevalue(request.param)
    return server.new_database()


def open_sink(url: str, table: str, columns: dict[str, str] | None = None) -> Sink:
    return PGVECTOR.open(PgvectorSettings.model_validate({"url": url, "columns": columns}), table)


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True, options="-c TimeZone=UTC") as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def write(sink: Sink, metadata: list[dict[str, Json]]) -> list[bytes]:
    batch = make_batch([str(i) for i in range(len(metadata))])
    payloads = [make_payload(str(i), metadata=fields) for i, fields in enumerate(metadata)]
    sink.upsert(VectorBatch(batch.ids, batch.vectors, payloads))
    return list(batch.ids)


def read(sink: Sink, point: bytes) -> Json:
    (found,) = sink.fetch([point])
    assert found.payload is not None
    return found.payload["metadata"]


def test_fields_become_typed_columns_and_the_rest_stays(database: str) -> None:
    sink = open_sink(database, "typed", TYPES)
    sink.create(make_record())
    metadata: dict[str, Json] = {
        "language": "de",
        "views": 2**40,
        "weight": 0.25,
        "draft": True,
        "changed at": "2026-02-03T04:05:06+00:00",
        "published": "2026-02-03",
        "price": 12.5,
        "ref": UUID,
        "tags": ["a", {"b": None}],
        'it\'s 100% "列"': "odd",
        "other": {"stays": 1},
    }
    (point,) = write(sink, [metadata])
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in TYPES)
    (row,) = query(database, f"SELECT {names}, metadata FROM typed")
    moment = datetime.datetime(2026, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    assert row == (
        *("de", 2**40, 0.25, True, moment, moment.date(), Decimal("12.5"), uuid.UUID(UUID), ["a", {"b": None}], "odd"),
        {"other": {"stays": 1}},
    )
    assert same_types(read(sink, point), metadata)


@pytest.mark.parametrize(
    ("name", "value", "column"),
    [
        ("language", 5, "5"),
        ("language", "", ""),
        ("language", ["a"], '["a"]'),
        ("language", None, None),
        ("views", "7", 7),
        ("weight", 3, 3.0),
        ("weight", 3.0, 3.0),
        ("weight", 0.1, 0.1),
        ("weight", 1e300, 1e300),
        ("draft", "yes", True),
        ("changed at", "2026-02-03T04:05:06+02:00", datetime.datetime(2026, 2, 3, 2, 5, 6, tzinfo=datetime.UTC)),
        ("changed at", "2026-02-03T04:05:06", datetime.datetime(2026, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)),
        ("changed at", "2026-02-03T04:05:06.5+00:00", datetime.datetime(2026, 2, 3, 4, 5, 6, 500_000, datetime.UTC)),
        ("published", "20260203", datetime.date(2026, 2, 3)),
        ("price", "12.50", Decimal("12.50")),
        ("price", 2**70, Decimal(2**70)),
        ("ref", UUID.upper(), uuid.UUID(UUID)),
        ("tags", None, None),
        ("tags", 1.0, 1.0),
    ],
)
def test_a_value_in_another_form_is_in_its_column_and_comes_back_as_it_was(
    database: str, name: str, value: Json, column: object
) -> None:
    query(database, "DROP TABLE IF EXISTS forms")
    sink = open_sink(database, "forms", TYPES)
    sink.create(make_record())
    points = write(sink, [{name: value}, {}])
    assert query(database, f'SELECT "{name}" FROM forms ORDER BY text') == [(column,), (None,)]
    for again in (sink, open_sink(database, "forms")):
        assert same_types(read(again, points[0]), {name: value})
        assert read(again, points[1]) == {}
    for point in sink.scan():
        assert point.payload is not None
        assert same_types(point.payload["metadata"], {name: value} if point.id == points[0] else {})


def test_an_update_of_the_payload_moves_the_columns_too(database: str) -> None:
    sink = open_sink(database, "updated", TYPES)
    sink.create(make_record())
    points = write(sink, [{"language": "de", "views": 1}])
    sink.update_payload(points, [make_payload("0", metadata={"language": "fr", "other": 2})])
    assert query(database, "SELECT language, views, metadata FROM updated") == [("fr", None, {"other": 2})]
    assert read(sink, points[0]) == {"language": "fr", "other": 2}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("views", "many", 'invalid input syntax for type bigint: "many"'),
        ("views", 7.0, "invalid input syntax for type bigint"),
        ("views", 2**63, "out of range for type bigint"),
        ("views", True, "invalid input syntax for type bigint"),
        ("draft", "perhaps", "invalid input syntax for type boolean"),
        ("published", "2026-02-30", "date/time field value out of range"),
        ("changed at", "yesterday evening", "invalid input syntax for type timestamp"),
        ("ref", "no uuid", "invalid input syntax for type uuid"),
    ],
)
def test_a_value_that_does_not_fit_is_rejected_with_the_stores_words(
    database: str, name: str, value: Json, words: str
) -> None:
    sink = open_sink(database, f"rejected {name}", TYPES)
    if sink.inspect() is None:
        sink.create(make_record())
    with pytest.raises(RejectedError, match=words):
        write(sink, [{name: value}])
    good = write(sink, [{}])
    with pytest.raises(RejectedError, match=words):
        sink.update_payload(good, [make_payload("0", metadata={name: value})])
    assert sink.count() == 1


def test_a_filter_uses_the_column(database: str) -> None:
    sink = open_sink(database, "filtered", TYPES)
    sink.create(make_record())
    points = write(
        sink,
        [
            {"language": "de", "views": 1, "changed at": "2026-02-03T04:05:06+02:00"},
            {"language": "en", "views": 2, "weight": 3},
            {"language": None},
            {},
        ],
    )
    query_vector = make_batch(["x"]).vectors[0]

    def found(**equal: Json) -> list[int]:
        conditions = {f"metadata.{name.replace('_', ' ')}": value for name, value in equal.items()}
        return sorted(points.index(hit.id) for hit in sink.search(query_vector, 10, conditions))

    assert found(language="de") == [0]
    assert found(language=None) == [2]
    assert found(views=2, language="en") == [1]
    assert found(views=3) == []
    assert found(weight=3.0) == [1]
    assert found(changed_at="2026-02-03T02:05:06Z") == [0]
    with pytest.raises(UsageError, match=r"cannot be made.*bigint"):
        found(views="many")
    # The JSON holds none of these fields, so only the column can have told.
    assert query(database, "SELECT count(*) FROM filtered WHERE metadata ? 'views'") == [(0,)]


def test_the_table_keeps_its_columns_and_refuses_others(database: str) -> None:
    sink = open_sink(database, "kept", {"language": "text"})
    sink.create(make_record())
    sink.save_record(make_record())
    point = write(open_sink(database, "kept"), [{"language": "de"}])[0]
    assert query(database, "SELECT language FROM kept") == [("de",)]
    assert read(open_sink(database, "kept"), point) == {"language": "de"}
    for other, words in (({"language": "bigint"}, "language bigint"), ({}, "no columns of its own")):
        with pytest.raises(RefusedError, match=f"has the columns language text, and sink.columns asks for .*{words}"):
            open_sink(database, "kept", other).inspect()
    query(database, "ALTER TABLE kept DROP COLUMN language")
    with pytest.raises(RefusedError, match="lacks language text"):
        open_sink(database, "kept").inspect()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"embedding": "text"}, "'embedding' is there already"),
        ({"ctid": "text"}, "'ctid' is there already"),
        ({"": "text"}, "1 to 63 bytes"),
        ({"x" * 64: "text"}, "1 to 63 bytes"),
        ({"a": "serial"}, "columns"),
    ],
)
def test_columns_that_cannot_be_are_refused(columns: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        PgvectorSettings.model_validate({"columns": columns})
