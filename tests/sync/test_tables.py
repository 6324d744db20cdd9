"""Tables through the whole pipeline."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.world import World


def texts(world: World) -> dict[str, str]:
    return {str((p.payload or {})["document"]): str((p.payload or {})["text"]) for p in world.points()}


def write_jsonl(world: World, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    world.write(name, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def keyed(world: World) -> World:
    world.source = str(world.docs / "*.jsonl")
    world.settings |= {"source": {"text": "{title}: {body}", "key": "id", "metadata": ["year"]}, "chunk": "none"}
    return world


def row(number: int, body: str | None = None) -> dict[str, Any]:
    return {
        "id": number,
        "title": f"Title {number}",
        "body": body or f"The body of row {number}.",
        "year": 2000 + number,
    }


def test_rows_are_documents(keyed: World) -> None:
    write_jsonl(keyed, "a.jsonl", [row(n) for n in range(50)])
    report = keyed.sync()
    assert (report.exit_code, report.documents.new, len(keyed.points())) == (0, 50, 50)
    assert texts(keyed)["7"] == "Title 7: The body of row 7."
    assert (keyed.points()[0].payload or {})["metadata"] == {"year": 2000}
    assert keyed.sync().documents.read == 0


def test_one_changed_row_is_embedded(keyed: World) -> None:
    write_jsonl(keyed, "a.jsonl", [row(n) for n in range(50)])
    keyed.sync()
    write_jsonl(keyed, "a.jsonl", [row(n, "Changed." if n == 7 else None) for n in range(50)])
    report = keyed.sync()
    assert (report.documents.changed, report.documents.unchanged, report.chunks.embedded) == (1, 49, 1)
    write_jsonl(keyed, "a.jsonl", [row(n) | {"year": 1} for n in range(50)])
    report = keyed.sync()
    assert (report.documents.changed, report.chunks.embedded, report.chunks.payload_updated) == (50, 1, 49)


def test_removed_rows_go_and_an_emptied_table_does_not(keyed: World) -> None:
    write_jsonl(keyed, "a.jsonl", [row(n) for n in range(30)])
    keyed.sync()
    write_jsonl(keyed, "a.jsonl", [row(n) for n in range(25)])
    assert keyed.sync().documents.deleted == 5
    write_jsonl(keyed, "a.jsonl", [])
    for _ in range(2):
        report = keyed.sync()
        assert (report.exit_code, report.documents.withheld, report.documents.deleted) == (3, 25, 0)
    assert len(keyed.points()) == 25


def test_of_one_key_the_last_row_wins(keyed: World, caplog: pytest.LogCaptureFixture) -> None:
    """By file name, then row order; decided before embedding, one warning with the count."""
    write_jsonl(keyed, "b.jsonl", [row(1, "In b, first."), row(1, "In b, last."), row(3)])
    write_jsonl(keyed, "a.jsonl", [row(1, "In a."), row(2)])
    with caplog.at_level(logging.WARNING, "vecload"):
        report = keyed.sync()
    assert (report.documents.new, report.chunks.embedded, report.skipped) == (3, 3, {"duplicate_key": 2})
    assert texts(keyed)["1"] == "Title 1: In b, last."
    [warning] = [record.getMessage() for record in caplog.records if "key" in record.getMessage()]
    assert "2" in warning
    (keyed.docs / "b.jsonl").unlink()
    keyed.sync()
    assert texts(keyed)["1"] == "Title 1: In a."


def test_odd_values_cost_only_themselves(world: World) -> None:
    table = pa.table(
        {
            "id": ["ok", "none", "n\0l", "x"],
            "text": ["A text.", None, "With a\0 nul.", "Another text."],
        }
    )
    pq.write_table(table, world.docs / "rows.parquet")
    numbers = pa.table({"id": [1, 2], "text": [float("nan"), 1.5]})
    pq.write_table(numbers, world.docs / "numbers.parquet")
    lists = pa.table({"id": [1], "text": [["a", "list"]]})
    pq.write_table(lists, world.docs / "lists.parquet")
    world.settings |= {"source": {"text": "text", "key": "id"}}
    report = world.sync(str(world.docs / "rows.parquet"))
    assert (report.exit_code, report.skipped) == (0, {"empty": 1})
    assert texts(world) == {"ok": "A text.", '"n\\u0000l"': "With a nul.", "x": "Another text."}
    report = world.sync(str(world.docs / "numbers.parquet"))
    assert (report.exit_code, report.skipped, report.documents.new) == (0, {"empty": 1}, 1)
    report = world.sync(str(world.docs / "lists.parquet"))
    assert (report.exit_code, report.dead_letters) == (3, 1)


def test_a_broken_row_deletes_nothing(keyed: World) -> None:
    """Which document the broken line held is not known, so none of the file's counts as gone."""
    write_jsonl(keyed, "a.jsonl", [row(n) for n in range(5)])
    keyed.sync()
    lines = (keyed.docs / "a.jsonl").read_text().splitlines(keepends=True)
    (keyed.docs / "a.jsonl").write_text("".join([*lines[:2], '{"id": 2, "title\n', *lines[3:]]))
    report = keyed.sync()
    assert (report.exit_code, report.documents.deleted, report.dead_letters) == (3, 0, 1)
    assert len(keyed.points()) == 5


def test_without_a_key_a_row_is_its_content(world: World) -> None:
    world.settings |= {"source": {"text": "body"}}
    world.source = str(world.docs / "rows.csv")
    world.write("rows.csv", "body\nfirst\nsecond\nfirst\n")
    assert world.sync().documents.new == 3
    world.write("rows.csv", "body\nzeroth\nfirst\nsecond\nfirst\n")
    report = world.sync()
    assert (report.documents.new, report.documents.unchanged, report.documents.deleted) == (1, 3, 0)
