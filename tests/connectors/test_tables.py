"""The source `tables`, against real files and a real S3 server."""

from __future__ import annotations

import gzip
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from tests.connectors.test_object_store import as_nobody
from tests.servers.s3 import S3Server
from vecload.documents import Container, Document, Key, Problem, Skipped
from vecload.errors import SourceError, UsageError
from vecload_connectors.sources import tables
from vecload_connectors.sources.tables import TABLES, TablesSettings, TablesSource

Item = Document | Skipped | Problem


def source(url: Path | str, text: str = "text", **settings: object) -> TablesSource:
    opened = TABLES.open(TablesSettings.model_validate({"url": str(url), "text": text, **settings}))
    assert isinstance(opened, TablesSource)
    return opened


def containers(opened: TablesSource) -> list[Container]:
    return [item for item in opened.list() if isinstance(item, Container)]


def read(opened: TablesSource) -> list[Item]:
    return [item for container in containers(opened) for item in opened.read(container)]


def texts(items: Sequence[Item]) -> dict[Key, str | bytes]:
    return {item.key: item.content for item in items if isinstance(item, Document)}


def reasons(items: Sequence[Item]) -> dict[Key, str]:
    return {item.key: item.reason for item in items if not isinstance(item, Document)}


def jsonl(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def parquet(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


# ---------------------------------------------------------------- formats and places


ROWS = [{"id": "1", "text": "one", "lang": "en"}, {"id": "2", "text": "zwei, \u00fc", "lang": "de"}]


def write_rows(path: Path) -> Path:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    table = '\ufeffid,text,lang\n1,one,en\n2,"zwei, \u00fc",de\n'
    match path.name.split(".", 1)[1]:
        case "jsonl" | "ndjson":
            path.write_text(lines)
        case "jsonl.gz":
            path.write_bytes(gzip.compress(lines.encode()))
        case "csv":
            path.write_text(table)
        case "csv.gz":
            path.write_bytes(gzip.compress(table.encode()))
        case "parquet":
            pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "ndjson", "csv", "parquet", "jsonl.gz", "csv.gz"])
def test_every_format_gives_the_same_documents(tmp_path: Path, suffix: str) -> None:
    opened = source(write_rows(tmp_path / f"rows.{suffix}"), key="id", metadata="*")
    assert read(opened) == [
        Document("1", "one", metadata={"lang": "en"}),
        Document("2", "zwei, \u00fc", metadata={"lang": "de"}),
    ]
    assert opened.id == str(tmp_path / f"rows.{suffix}")


def test_a_folder_and_a_glob(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.csv", "sub/c.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_rows(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no table")
    os.mkfifo(tmp_path / "pipe")
    assert [c.key for c in containers(source(tmp_path))] == ["a.jsonl", "b.csv", "sub/c.parquet"]
    assert [c.key for c in containers(source(tmp_path / "**" / "*.parquet"))] == ["sub/c.parquet"]
    assert [c.key for c in containers(source(tmp_path / "*"))] == ["a.jsonl", "b.csv"]
    [whole] = containers(source(tmp_path, key="id"))
    assert whole.key == "."
    assert [item for item in source(tmp_path).list() if not isinstance(item, Container)] == []


def test_one_file_looks_at_nothing_beside_it(tmp_path: Path) -> None:
    write_rows(tmp_path / "data[1].csv")
    write_rows(tmp_path / "other.csv")
    write_rows(tmp_path / "target.csv")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "link.csv").symlink_to(tmp_path / "target.csv")
    assert len(read(source(tmp_path / "data[1].csv"))) == 2
    assert len(read(source(tmp_path / "store" / "link.csv"))) == 2


def test_a_missing_table_and_one_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "rows.xlsx").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"missing\.csv does not exist"):
        source(tmp_path / "missing.csv")
    with pytest.raises(UsageError, match=r"no table that can be read.*\.parquet"):
        source(tmp_path / "rows.xlsx")


def test_a_column_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    for suffix in ("jsonl", "csv", "parquet"):
        table = write_rows(tmp_path / f"rows.{suffix}")
        for settings in ({"text": "body"}, {"text": "{text} {body}"}, {"key": "body"}, {"key": ["id", "body"]}):
            with pytest.raises(UsageError, match=r"no column 'body' .*: id, text, lang\."):
                source(table, **settings)
    with pytest.raises(UsageError, match="no column 'body' \\(set as metadata\\)"):
        source(tmp_path / "rows.csv", metadata="body")


def test_a_later_file_without_the_column_leaves_the_rest(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("id,other\n3,x\n")
    write_rows(tmp_path / "c.csv")
    items = read(source(tmp_path, key=["id"]))
    assert texts(items) == {"1": "one", "2": "zwei, \u00fc"}
    assert reasons(items) == {".": "missing_column", "1": "duplicate_key", "2": "duplicate_key"}


def test_tags_tell_changes_of_files_and_of_settings(tmp_path: Path) -> None:
    table = write_rows(tmp_path / "rows.csv")
    for key in ([], ["id"]):
        [before] = containers(source(table, key=key))
        assert containers(source(table, key=key)) == [before]
        assert containers(source(table, text="{text}!", key=key)) != [before]
        assert containers(source(table, metadata="lang", key=key)) != [before]
        table.write_text(table.read_text() + "3,three,en\n")
        assert containers(source(table, key=key)) != [before]


# ---------------------------------------------------------------- keys


def test_keys_keep_their_types(tmp_path: Path) -> None:
    keys = [1, "1", True, 1.5, ""]
    items = read(
        source(jsonl(tmp_path / "t.jsonl", [{"k": k, "text": "x"} for k in [*keys, None, math.nan, [1]]]), key="k")
    )
    assert [(type(i.key), i.key) for i in items if isinstance(i, Document)] == [(type(k), k) for k in keys[:4]]
    assert reasons(items) == {
        "t.jsonl:5": "null_key",
        "t.jsonl:6": "null_key",
        "t.jsonl:7": "null_key",
        "t.jsonl:8": "bad_key",
    }


def test_keys_of_parquet_types(tmp_path: Path) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    columns = {
        "moment": (pa.array([moment], pa.timestamp("ns", "UTC")), "2024-05-06T07:08:09.123456+00:00"),
        "day": (pa.array([date(2024, 5, 6)]), "2024-05-06"),
        "price": (pa.array([Decimal("1.50")]), "1.50"),
        "raw": (pa.array([b"\x01\xff"]), "01ff"),
        "uuid": (pa.array([UUID(int=5).bytes], pa.uuid()), str(UUID(int=5))),
        "number": (pa.array([7], pa.int64()), 7),
    }
    table = parquet(tmp_path / "t.parquet", text=["x"], **{name: column for name, (column, _) in columns.items()})
    for name, (_, expected) in columns.items():
        assert [item.key for item in read(source(table, key=name))] == [expected]


def test_several_columns_make_a_tuple(tmp_path: Path) -> None:
    rows = [{"a": "x", "b": "yz", "text": "1"}, {"a": "xy", "b": "z", "text": "2"}, {"a": 1, "b": "", "text": "3"}]
    items = read(source(jsonl(tmp_path / "t.jsonl", rows), key=["a", "b"]))
    assert texts(items) == {("x", "yz"): "1", ("xy", "z"): "2", (1, ""): "3"}


def test_nul_and_lone_surrogates_pass_through(tmp_path: Path) -> None:
    rows = [{"id": "a\0b", "text": "nul \0"}, {"id": "\ud800", "text": "lone \ud800"}]
    items = read(source(jsonl(tmp_path / "t.jsonl", rows), key="id"))
    assert texts(items) == {"a\0b": "nul \0", "\ud800": "lone \ud800"}
    assert len(read(source(tmp_path / "t.jsonl"))) == 2


def test_the_last_of_equal_keys_wins_across_files(tmp_path: Path) -> None:
    jsonl(tmp_path / "b.jsonl", [{"id": 1, "text": "b1"}, {"id": 3, "text": "b3"}, {"id": 3, "text": "b3 again"}])
    jsonl(tmp_path / "a.jsonl", [{"id": 1, "text": "a1"}, {"id": 2, "text": "a2"}, {"id": "1", "text": "string"}])
    [container] = containers(source(tmp_path, key="id"))
    items = list(source(tmp_path, key="id").read(container))
    assert texts(items) == {2: "a2", "1": "string", 1: "b1", 3: "b3 again"}
    assert [item for item in items if isinstance(item, Skipped)] == [
        Skipped(1, "duplicate_key"),
        Skipped(3, "duplicate_key"),
    ]


def test_keys_whose_short_hashes_collide_are_still_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_short_hash", lambda key: len(key))
    rows = [{"id": i, "text": t} for i, t in ((10, "a"), (20, "b"), (10, "c"))]
    items = read(source(jsonl(tmp_path / "t.jsonl", rows), key="id"))
    assert texts(items) == {20: "b", 10: "c"}
    assert reasons(items) == {10: "duplicate_key"}


def test_without_a_key_a_row_is_named_by_its_content(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": "same"}, {"text": "same"}, {"text": "other"}]
    opened = source(jsonl(tmp_path / "t.jsonl", rows))
    before = [item.key for item in read(opened)]
    assert [(key[0], key[2]) for key in before if isinstance(key, tuple)] == [
        ("t.jsonl", 0),
        ("t.jsonl", 1),
        ("t.jsonl", 0),
    ]
    assert len(set(before)) == 3
    read(opened)
    assert [record.levelname for record in caplog.records if "no key" in record.message] == ["WARNING"]
    jsonl(tmp_path / "t.jsonl", [{"text": "new"}, *rows])
    after = [item.key for item in read(source(tmp_path / "t.jsonl"))]
    assert after[1:] == before


# ---------------------------------------------------------------- texts


def test_what_a_text_column_may_hold(tmp_path: Path) -> None:
    values = ["plain", "", None, math.nan, 7, 1.5, True, ["list"], {"a": 1}]
    rows = [{"id": str(i), "text": value} for i, value in enumerate(values)]
    items = read(source(jsonl(tmp_path / "t.jsonl", [*rows, {"id": "9"}]), key="id"))
    assert texts(items) == {"0": "plain", "1": "", "4": "7", "5": "1.5", "6": "True"}
    assert reasons(items) == {"2": "empty", "3": "empty", "7": "not_text", "8": "not_text", "9": "empty"}


def test_what_a_parquet_text_column_may_hold(tmp_path: Path) -> None:
    table = parquet(tmp_path / "a.parquet", id=[1, 2, 3], text=pa.array([1.5, math.nan, None]))
    assert (texts(read(source(table, key="id"))), reasons(read(source(table, key="id")))) == (
        {1: "1.5"},
        {2: "empty", 3: "empty"},
    )
    table = parquet(tmp_path / "b.parquet", id=[1, 2], text=pa.array([["a"], None]))
    assert reasons(read(source(table, key="id"))) == {1: "not_text", 2: "empty"}
    table = parquet(tmp_path / "c.parquet", id=[1, 2], text=pa.array([b"bytes", b"\xff"]))
    assert texts(read(source(table, key="id"))) == {1: "bytes"}
    assert reasons(read(source(table, key="id"))) == {2: "not_text"}


def test_templates(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "title": "T", "body": "B"},
        {"id": 2, "title": None, "body": "B"},
        {"id": 3, "title": None, "body": math.nan},
        {"id": 4, "title": "T", "body": ["B"]},
    ]
    table = jsonl(tmp_path / "t.jsonl", rows)
    items = read(source(table, text="{title}\n\n{body}", key="id"))
    assert texts(items) == {1: "T\n\nB", 2: "\n\nB"}
    assert reasons(items) == {3: "empty", 4: "not_text"}
    assert texts(read(source(table, text=r"{{{title}}}\n{id}", key="id")))[1] == "{T}\n1"


@pytest.mark.parametrize("template", ["{title", "{title.__class__}!r}", "{title!r}", "{title:>10}", "{}", "{{title}}"])
def test_a_template_that_is_none_is_a_wrong_setting(template: str) -> None:
    with pytest.raises(ValidationError):
        TablesSettings(url="t.csv", text=template)


def test_a_template_reaches_no_attributes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no column 'text\.__class__'"):
        source(jsonl(tmp_path / "t.jsonl", [{"text": "x"}]), text="{text.__class__}")


def test_metadata_is_chosen_and_keeps_its_types(tmp_path: Path) -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    table = parquet(tmp_path / "t.parquet", id=[1], text=["x"], at=[moment], price=[Decimal("1.5")], tags=[["a"]])
    [none] = read(source(table, key="id"))
    [some] = read(source(table, key="id", metadata=["at", "price"]))
    [every] = read(source(table, key="id", metadata="*"))
    assert isinstance(none, Document)
    assert isinstance(some, Document)
    assert isinstance(every, Document)
    assert none.metadata == {}
    assert some.metadata == {"at": moment, "price": Decimal("1.5")}
    assert every.metadata == {"at": moment, "price": Decimal("1.5"), "tags": ["a"]}


# ---------------------------------------------------------------- broken and large inputs


def test_a_broken_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"id": 1, "text": "a"}\n{"id": 2, "te\n\n[1]\n{"id": 4, "text": "\xff"}\n'
        + b"[" * 100_000
        + b'\n{"id": 6, "text": "f"}'
    )
    items = read(source(path, key="id"))
    assert texts(items) == {1: "a", 6: "f"}
    assert reasons(items) == {f"t.jsonl:{line}": "broken" for line in (2, 4, 5, 6)}
    [problem] = [item for item in items if item.key == "t.jsonl:2"]
    assert isinstance(problem, Problem)
    assert "Row 2 of 't.jsonl' is not JSON" in problem.message


def test_rows_over_the_limit(tmp_path: Path) -> None:
    rows = [{"id": 1, "text": "a"}, {"id": 2, "text": "b" * 200}, {"id": 3, "text": "c"}]
    items = read(source(jsonl(tmp_path / "t.jsonl", rows), key="id", max_document_bytes=100))
    assert (texts(items), reasons(items)) == ({1: "a", 3: "c"}, {"t.jsonl:2": "too_large"})
    table = parquet(tmp_path / "t.parquet", id=[1, 2], text=["a", "b" * 200])
    items = read(source(table, key="id", max_document_bytes=100))
    assert (texts(items), reasons(items)) == ({1: "a"}, {2: "too_large"})


def test_csv_with_a_huge_field_line_breaks_and_ragged_rows(tmp_path: Path) -> None:
    huge = "x" * 1_000_000
    path = tmp_path / "t.csv"
    path.write_bytes(
        f'id,text\n1,{huge}\n2,"two\nlines"\n\n4,a,extra\n5\n6,'.encode() + b"caf\xe9" + "\n7,\U0001f600\n".encode()
    )
    items = read(source(path, key="id"))
    assert texts(items) == {"1": huge, "2": "two\nlines", "7": "\U0001f600"}
    assert reasons(items) == {"t.csv:6": "broken", "t.csv:7": "broken", "t.csv:8": "not_utf8"}


@pytest.mark.parametrize("name", ["b.parquet", "b.jsonl.gz"])
def test_a_broken_file_makes_its_container_incomplete(tmp_path: Path, name: str) -> None:
    write_rows(tmp_path / "a.jsonl")
    (tmp_path / name).write_bytes(b"PAR1 this is no table")
    keyed = read(source(tmp_path, key="id"))
    assert texts(keyed) == {"1": "one", "2": "zwei, \u00fc"}
    assert reasons(keyed) == {".": "broken"}
    assert reasons(read(source(tmp_path))) == {name: "broken"}


def test_a_parquet_file_broken_in_the_middle(tmp_path: Path) -> None:
    rows = [f"text {i} " * 50 for i in range(2000)]
    table = pa.table({"id": list(range(2000)), "text": rows})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=500, compression="snappy", use_dictionary=False)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4000] = b"\xff" * 4000
    path.write_bytes(content)
    counts = Counter(type(item) for item in read(source(path, key="id")))
    assert counts[Problem] == 1
    assert counts[Document] >= 500


def test_a_value_that_python_cannot_hold_costs_only_its_row(tmp_path: Path) -> None:
    far = pa.array([0, 10**18, 1], pa.int64()).cast(pa.timestamp("us"))
    table = parquet(tmp_path / "t.parquet", id=[1, 2, 3], text=["a", "b", "c"], at=far)
    items = read(source(table, key="id", metadata="at"))
    assert texts(items) == {1: "a", 3: "c"}
    assert reasons(items) == {"t.parquet:2": "broken"}


def test_a_file_that_changes_between_the_listing_and_the_reading(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.csv")
    write_rows(tmp_path / "b.csv")
    opened = source(tmp_path)
    [_, second] = containers(opened)
    (tmp_path / "b.csv").write_text("id,text\n9,other\n")
    [problem] = opened.read(second)
    assert isinstance(problem, Problem)
    assert (problem.key, problem.reason, problem.transient) == ("b.csv", "changed", True)


def test_with_a_folder_that_cannot_be_listed_the_set_is_left_as_it_was() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        write_rows(folder / "a.csv")
        (folder / "closed").mkdir(mode=0o000)

        def check() -> None:
            assert [type(item) for item in source(folder, key="id").list()] == [Problem]
            assert [type(item) for item in source(folder).list()] == [Problem, Container]

        as_nobody(check)


# ---------------------------------------------------------------- S3


def test_tables_on_s3(s3: S3Server, tmp_path: Path) -> None:
    bucket = s3.make_bucket("tables")
    for suffix in ("csv", "jsonl.gz", "parquet"):
        s3.put(bucket, f"in/rows.{suffix}", write_rows(tmp_path / f"rows.{suffix}").read_bytes())
    s3.put(bucket, "in/sub/part.jsonl", b'{"id": "5", "text": "five"}\n')
    s3.put(bucket, "in/notes.txt", b"no table")

    def documents(url: str) -> dict[Key, str | bytes]:
        return texts(read(source(url, key="id", **s3.settings)))

    expected = {"1": "one", "2": "zwei, \u00fc"}
    for suffix in ("csv", "jsonl.gz", "parquet"):
        assert documents(f"s3://{bucket}/in/rows.{suffix}") == expected
    assert documents(f"s3://{bucket}/in/*") == expected
    assert documents(f"s3://{bucket}/in/**/*.jsonl") == {"5": "five"}
    assert documents(f"s3://{bucket}/in") == {**expected, "5": "five"}
    assert source(f"s3://{bucket}/in/*.csv", **s3.settings).id == f"s3://{bucket}/in/*.csv"


def test_a_large_table_on_s3_is_read_in_ranges(s3: S3Server, tmp_path: Path) -> None:
    bucket = s3.make_bucket("large")
    rows = [f"{i} " + os.urandom(2000).hex() for i in range(1500)]
    table = parquet(tmp_path / "t.parquet", id=list(range(1500)), text=rows)
    s3.put(bucket, "t.parquet", table.read_bytes())
    s3.put(bucket, "t.jsonl", b"".join(json.dumps({"id": i, "text": t}).encode() + b"\n" for i, t in enumerate(rows)))
    for name in ("t.parquet", "t.jsonl"):
        assert texts(read(source(f"s3://{bucket}/{name}", key="id", **s3.settings))) == dict(enumerate(rows))


def test_s3_objects_that_change_or_are_missing(s3: S3Server, tmp_path: Path) -> None:
    bucket = s3.make_bucket("changing")
    s3.put(bucket, "a.csv", b"id,text\n1,one\n")
    table = parquet(tmp_path / "b.parquet", id=["2"], text=["two"])
    s3.put(bucket, "b.parquet", table.read_bytes())
    opened = source(f"s3://{bucket}/", **s3.settings)
    [first, second] = containers(opened)
    s3.put(bucket, "a.csv", b"id,text\n1,uno\n")
    s3.put(bucket, "b.parquet", parquet(tmp_path / "b.parquet", id=["2"], text=["dos"]).read_bytes())
    assert reasons(list(opened.read(first))) == {"a.csv": "changed"}
    assert reasons(list(opened.read(second))) == {"b.parquet": "changed"}
    s3.delete(bucket, "a.csv")
    assert reasons(list(opened.read(first))) == {"a.csv": "vanished"}
    with pytest.raises(SourceError, match="does not exist"):
        source(f"s3://{bucket}/a.csv", **s3.settings)
    with pytest.raises(SourceError, match="secret_access_key"):
        source(f"s3://{bucket}/", **{**s3.settings, "secret_access_key": "wrong"})
