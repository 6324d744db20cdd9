"""Flag, then environment, then file, then default; and what a person is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vecload import config
from vecload.errors import UsageError

FILE = """
sources:
  docs: {kind: files, url: ./docs}
  rows: {kind: tables, url: "./rows/*.jsonl", text: body}
sinks:
  here: {kind: qdrant, url: "qdrant:./vectors", collection: handbook}
transform: {model: from-the-file}
chunk: {max_tokens: 100}
jobs:
  nightly: {source: docs, sink: here, transform: {model: from-the-job}, chunk: {overlap_tokens: 5}}
  whole: {source: docs, sink: here, chunk: none}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "conf" / "vecload.yaml"
    path.parent.mkdir()
    path.write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return path


def test_a_job_of_the_file(file: Path) -> None:
    job = config.load(file).job(name="nightly")
    assert (job.transform.model, job.collection, job.source_name) == ("from-the-job", "handbook", "docs")
    assert job.chunk == config.ChunkSettings(max_tokens=100, overlap_tokens=5)
    assert job.ledger == file.parent / ".vecload" / "ledger.db"


def test_paths_in_the_file_are_relative_to_it_and_flags_to_where_one_stands(file: Path, tmp_path: Path) -> None:
    loaded = config.load(file)
    job = loaded.job(source="docs", sink="here")
    assert job.source_settings is not None
    assert job.source_settings.model_dump()["url"] == str(file.parent / "docs")
    assert job.sink_settings.model_dump()["url"] == f"qdrant:{file.parent / 'vectors'}"
    other = loaded.job(source="./docs", sink="qdrant:./vectors")
    assert other.source_settings is not None
    assert other.source_settings.model_dump()["url"] == str(tmp_path / "docs")
    assert other.source_name is None


@pytest.mark.parametrize("name", ["nightly", None])
def test_the_order_of_the_layers(file: Path, monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    flags: dict[str, Any] = {} if name else {"source": "docs", "sink": "here"}
    monkeypatch.setenv("VECLOAD_TRANSFORM__MODEL", "from-the-environment")
    assert config.load(file).job(name=name, **flags).transform.model == "from-the-environment"
    overrides = {"transform": {"model": "from-the-flag"}}
    assert config.load(file, overrides).job(name=name, **flags).transform.model == "from-the-flag"


def test_chunk_none_and_back(file: Path) -> None:
    assert config.load(file).job(name="whole").chunk is None
    assert config.load(file, {"chunk": "none"}).job(name="nightly").chunk is None
    again = config.load(file, {"chunk": {"max_tokens": 50}}).job(name="whole").chunk
    assert again == config.ChunkSettings(max_tokens=50, overlap_tokens=None)


def test_a_source_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VECLOAD_SOURCE__URL", "s3://bucket/prefix/")
    monkeypatch.setenv("VECLOAD_SINK__URL", "null:")
    job = config.load().job()
    assert job.source is not None
    assert (job.source.kind, job.sink.kind) == ("s3", "null")


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("./docs", "files"),
        ("./rows.parquet", "tables"),
        ("./rows/*.jsonl", "tables"),
        ("s3://bucket/rows.csv", "tables"),
        ("s3://bucket/docs/", "s3"),
    ],
)
def test_what_a_url_means(file: Path, source: str, kind: str) -> None:
    overrides = {"source": {"text": "body"}} if kind == "tables" else {}
    job = config.load(file, overrides).job(source=source, sink="here")
    assert job.source is not None
    assert job.source.kind == kind


def test_variables_are_expanded_only_where_they_are_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(FILE + 'ledger: ./l.db\nsource: {exclude: ["${EXCLUDED}"]}\n')
    monkeypatch.setenv("EXCLUDED", "*.tmp")
    job = config.load(file).job(name="nightly")
    assert job.source_settings is not None
    assert job.source_settings.model_dump()["exclude"] == ["*.tmp"]
    monkeypatch.delenv("EXCLUDED")
    with pytest.raises(UsageError, match="EXCLUDED is not set"):
        config.load(file).job(name="nightly")


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("chunk.max_tokens=256", {"chunk": {"max_tokens": 256}}),
        ("source.text={title}", {"source": {"text": "{title}"}}),
        ("source.text={title}: {body}", {"source": {"text": "{title}: {body}"}}),
        ("source.text=Title: {title}", {"source": {"text": "Title: {title}"}}),
        ("source.include=[a, b]", {"source": {"include": ["a", "b"]}}),
        ("transform.engine.args={dtype: float32}", {"transform": {"engine": {"args": {"dtype": "float32"}}}}),
        ("chunk=none", {"chunk": "none"}),
    ],
)
def test_set(assignment: str, expected: dict[str, Any]) -> None:
    overrides: dict[str, Any] = {}
    config.set_value(overrides, assignment)
    assert overrides == expected


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ({"chnk": {}}, ["chnk", "chunk"]),
        ({"source": {"inclde": []}}, ["source.inclde", "include"]),
        ({"transform": {"engine": {"arg": {}}}}, ["transform.engine.arg", "args"]),
        ({"chunk": {"max_tokens": "many"}}, ["chunk.max_tokens"]),
        ({"sink": {"kind": "chroma"}}, ["chroma", "qdrant"]),
    ],
)
def test_a_wrong_setting_is_named(file: Path, overrides: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        config.load(file, overrides).job(source="docs", sink=None if "sink" in overrides else "here")
    assert "\n" not in str(caught.value)
    for name in names:
        assert name in str(caught.value)


def test_nothing_set_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"--source.*VECLOAD_SOURCE__URL.*vecload\.yaml"):
        config.load().job()
