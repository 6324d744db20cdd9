from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from vecload import config
from vecload.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_makes_a_job_as_it_stands(folder: Path) -> None:
    ended = CliRunner().invoke(main, ["init"])
    assert ended.exit_code == 0, ended.output
    job = config.load().job(name="docs")
    assert job.source is not None
    assert job.source_settings is not None
    assert (job.source.kind, job.source_settings.model_dump()["url"]) == ("files", str(folder / "docs"))
    assert (job.sink.kind, job.sink_settings.model_dump()["url"]) == ("qdrant", f"qdrant:{folder / 'vectors'}")
    assert (job.source_name, job.collection, job.ledger) == ("docs", "docs", folder / ".vecload" / "ledger.db")


def test_every_example_in_it_is_valid(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the comments in front of settings taken away, each source and sink still makes a job."""
    monkeypatch.setenv("QDRANT_API_KEY", "a-key")
    CliRunner().invoke(main, ["init"])
    lines = Path(config.CONFIG_NAME).read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("sources:"))
    settings = [line.replace("# ", "", 1) if line.strip().startswith("# ") else line for line in lines[first:]]
    kept = [line for line in settings if not line.startswith("The following")]
    kept = [line for line in kept if not line.strip().startswith("The following come from")]
    Path("all.yaml").write_text("\n".join(kept), encoding="utf-8")
    loaded = config.load(Path("all.yaml"))
    assert set(loaded.settings.sources) == {"docs", "handbook", "articles"}
    assert set(loaded.settings.sinks) == {"vectors", "server", "database"}
    kinds = {
        (source, sink): (job.source.kind if job.source else None, job.sink.kind)
        for source in loaded.settings.sources
        for sink in loaded.settings.sinks
        for job in [loaded.job(source=source, sink=sink)]
    }
    assert kinds["handbook", "server"] == ("s3", "qdrant")
    assert kinds["articles", "database"] == ("tables", "pgvector")
    assert loaded.job(name="handbook").transform.model == "BAAI/bge-m3"


def test_an_existing_file_is_left_alone(folder: Path) -> None:
    Path(config.CONFIG_NAME).write_text("sources: {}\n", encoding="utf-8")
    ended = CliRunner().invoke(main, ["init"])
    assert ended.exit_code == 2
    assert ended.stderr.startswith("Error: vecload.yaml is there already")
    assert Path(config.CONFIG_NAME).read_text(encoding="utf-8") == "sources: {}\n"


def test_another_file(folder: Path) -> None:
    ended = CliRunner().invoke(main, ["init", "--config", "other.yaml"])
    assert ended.exit_code == 0
    assert "vecload sync --config other.yaml" in ended.stdout
    assert list(config.load(Path("other.yaml")).settings.jobs) == ["docs"]


def test_a_folder_that_is_not_there(folder: Path) -> None:
    ended = CliRunner().invoke(main, ["init", "--config", "nowhere/vecload.yaml"])
    assert (ended.exit_code, ended.stderr) == (
        2,
        "Error: nowhere/vecload.yaml cannot be written (No such file or directory).\n",
    )
