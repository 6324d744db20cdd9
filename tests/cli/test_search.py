"""Search over a real embedded collection. The deterministic engine gives equal texts equal vectors: score 1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import vecload
from tests.world import MODEL, World
from vecload.cli import main
from vecload.documents import Document
from vecload.embedder import Embedder
from vecload.errors import RefusedError, UsageError

OTHER_MODEL = "package:sre-embedding-model"
TEXT = "The office opens at nine."
GUIDE = f"# Guide\n\n{'About all of it. ' * 6}\n\n## Rooms\n\nThe \x1b[2Jroom is {'very ' * 20}blue."


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three documents: one plain, one with headings and an escape sequence, one with metadata."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        world = World(tmp_path_factory.mktemp("world"))
        documents = [
            Document("hours", TEXT, metadata={"year": 2024, "lang": "en"}),
            Document("guide.md", GUIDE.encode(), name="guide.md", metadata={"year": 2023}),
            Document("long", "word " * 300, metadata={"year": 2024, "lang": "de"}),
        ]
        world.sync(documents, source_id="notes", settings={"chunk": {"max_tokens": 32}})
        yield world


def search(world: World, *arguments: str) -> Result:
    engine = ("--set", "transform.engine.kind=deterministic")
    return CliRunner().invoke(main, ["search", *arguments, "--sink", world.sink, *engine])


def found(world: World, *arguments: str) -> list[str]:
    ended = search(world, *arguments, "--json")
    assert ended.exit_code == 0, ended.output
    return [hit["payload"]["document"] for hit in json.loads(ended.stdout)]


def test_the_nearest_comes_first(world: World) -> None:
    ended = search(world, TEXT)
    assert ended.exit_code == 0, ended.output
    lines = ended.stdout.splitlines()
    assert lines[:2] == ["1. 1.000  hours", f"   {TEXT}"]
    assert lines[2].startswith("2. ")


def test_headings_and_excerpts_fit_the_terminal_and_cannot_act_on_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = search(world, TEXT, "--limit", "100").stdout
    assert "  guide.md  |  Guide > Rooms\n" in shown
    assert "\x1b" not in shown
    assert "…\n" in shown
    assert max(len(line) for line in shown.splitlines()) <= 60


def test_json(world: World) -> None:
    [hit] = json.loads(search(world, TEXT, "--limit", "1", "--json").stdout)
    assert set(hit) == {"id", "score", "payload"}
    assert hit["score"] == pytest.approx(1.0, abs=1e-5)
    assert (hit["payload"]["text"], hit["payload"]["source"]) == (TEXT, "notes")
    assert len(hit["id"]) == 36


def test_filters(world: World) -> None:
    assert set(found(world, TEXT, "--filter", "document=guide.md")) == {"guide.md"}
    assert set(found(world, TEXT, "--filter", "metadata.year=2024")) == {"hours", "long"}
    assert set(found(world, TEXT, "--filter", "metadata.year=2024", "--filter", "metadata.lang=de")) == {"long"}
    assert found(world, TEXT, "--filter", 'metadata.year="2024"') == []
    assert found(world, TEXT, "--filter", "source=others") == []
    assert search(world, TEXT, "--filter", "source=others").stdout == "Nothing was found.\n"


@pytest.mark.parametrize("condition", ["year=2024", "metadata.=1", "document", "ordinal=1"])
def test_a_filter_that_is_none(world: World, condition: str) -> None:
    ended = search(world, TEXT, "--filter", condition)
    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"Error: --filter {condition}: write")


def test_another_model_is_refused_and_both_are_named(world: World) -> None:
    ended = search(world, TEXT, "--model", OTHER_MODEL)
    assert ended.exit_code == 2
    assert f"holds vectors of {MODEL} (content " in ended.stderr
    assert f"{OTHER_MODEL} here is another model" in ended.stderr


def test_the_same_model_in_another_place(world: World, tmp_path: Path) -> None:
    with Embedder(MODEL, engine="deterministic") as embedder:
        (tmp_path / "moved").symlink_to(embedder.model.path)
    assert found(world, TEXT, "--limit", "1", "--model", str(tmp_path / "moved")) == ["hours"]


def test_a_model_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Embedder(MODEL, engine="deterministic") as embedder:
        (tmp_path / "model").symlink_to(embedder.model.path)
    world = World(tmp_path)
    world.sync([Document("hours", TEXT)], model="./model")
    (tmp_path / "model").unlink()
    ended = search(world, TEXT)
    assert ended.exit_code == 2
    assert str(tmp_path / "model") in ended.stderr
    assert "name it with --model" in ended.stderr
    assert found(world, TEXT, "--model", MODEL) == ["hours"]


def test_no_such_collection(world: World) -> None:
    ended = search(world, TEXT, "--collection", "nowhere")
    assert ended.exit_code == 2
    assert ended.stderr.startswith("Error: There is no collection qdrant:")
    assert len(ended.stderr.splitlines()) == 1


def test_an_empty_question(world: World) -> None:
    assert search(world, " ").exit_code == 2


def test_the_jobs_of_a_file(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    only = f"""
sinks: {{here: {{url: "{world.sink}"}}, there: {{kind: "null"}}}}
transform: {{engine: {{kind: deterministic}}}}
jobs:
  first: {{source: ./docs, sink: here}}
"""
    Path("vecload.yaml").write_text(only, encoding="utf-8")
    ended = CliRunner().invoke(main, ["search", TEXT])
    assert ended.stdout.startswith("1. 1.000  hours\n"), ended.output
    Path("vecload.yaml").write_text(only + "  second: {source: ./docs, sink: there}\n", encoding="utf-8")
    ended = CliRunner().invoke(main, ["search", TEXT])
    assert ended.exit_code == 2
    assert "choose one with --job, or name a --sink" in ended.stderr
    assert CliRunner().invoke(main, ["search", TEXT, "--job", "first"]).exit_code == 0


def test_as_a_library_call(world: World) -> None:
    hits = vecload.search(TEXT, sink=world.sink, settings=world.settings, limit=2, filter={"metadata.year": 2024})
    assert hits[0].payload["document"] == "hours"
    assert hits[0].score == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(RefusedError):
        vecload.search(TEXT, sink=world.sink, settings=world.settings, model=OTHER_MODEL)
    with pytest.raises(UsageError):
        vecload.search(TEXT, sink=world.sink, settings=world.settings, collection="nowhere")
