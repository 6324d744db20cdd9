from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vecload.cli import main
from vecload.ledger import DeadLetter, DocumentRow, Ledger


def status(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["status", "--set", f"ledger={path}", *arguments])


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Two sources in one collection: one in order, one with a document half written and 25 dead letters."""
    path = tmp_path / "ledger.db"
    opened = Ledger.open(path)
    good = opened.scope("incarnation", "qdrant:/v#docs", "handbook")
    good.begin_run()
    good.finish_writing([DocumentRow(f"d{n}", f"d{n}", ids=(bytes(16),), payload_hashes=(bytes(8),)) for n in range(3)])
    good.end_run()
    bad = opened.scope("incarnation", "qdrant:/v#docs", "wiki")
    bad.begin_run()
    bad.begin_writing([DocumentRow("half.md", "half.md", "writing", ids=(bytes(16),), payload_hashes=(bytes(8),))])
    bad.bury([DeadLetter(f"x{n:02}.pdf", f"x{n:02}.pdf", "parse", "broken", "is no PDF.") for n in range(24)])
    bad.bury([DeadLetter("evil\x1b[2J.md", "e", "embed", "bad_vector", "is not finite.", transient=True, chunk=7)])
    opened.close()
    return path


def test_a_line_for_each_source(ledger: Path) -> None:
    ended = status(ledger)
    assert ended.exit_code == 0, ended.output
    lines = ended.stdout.splitlines()
    assert lines[0] == f"ledger: {ledger}"
    assert lines[1].split() == ["source", "sink", "documents", "chunks", "dead", "letters", "unfinished", "last", "run"]
    assert lines[2].split()[:6] == ["handbook", "qdrant:/v#docs", "3", "3", "0", "0"]
    assert lines[3].split()[:2] == ["wiki", "qdrant:/v#docs"]
    assert lines[3].split()[4:6] == ["25", "1"]
    assert "the next sync finishes them" in ended.stdout
    assert "vecload status --dead-letters" in ended.stdout


def test_dead_letters_with_their_reasons(ledger: Path) -> None:
    ended = status(ledger, "--dead-letters")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.splitlines()[-1] == "... and 5 more (--limit, --json)"
    whole = status(ledger, "--dead-letters", "--limit", "100").stdout
    assert "x07.pdf: broken (parse): is no PDF.\n    wiki -> qdrant:/v#docs; 1 attempts, last 2" in whole
    assert "evil\\x1b[2J.md (chunk 7): bad_vector (embed): is not finite." in whole
    assert whole.count("tried again by each sync") == 1
    assert "more (" not in whole


def test_json_has_all(ledger: Path) -> None:
    content = json.loads(status(ledger, "--json", "--dead-letters").stdout)
    assert content["ledger"] == str(ledger)
    assert [(s["source"], s["documents"], s["dead_letters"]) for s in content["scopes"]] == [
        ("handbook", 3, 0),
        ("wiki", 1, 25),
    ]
    assert len(content["dead_letters"]) == 25
    assert {"document", "chunk", "stage", "reason", "message", "transient", "attempts"} <= set(
        content["dead_letters"][0]
    )
    assert "dead_letters" not in json.loads(status(ledger, "--json").stdout)


def test_no_ledger_is_said_and_none_is_made(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "ledger.db"
    ended = status(path)
    assert ended.exit_code == 0
    assert ended.stdout.startswith(f"There is no ledger at {path} yet;")
    assert json.loads(status(path, "--json").stdout) == {"ledger": str(path), "exists": False, "scopes": []}
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("not a database, though long enough to be looked at by SQLite " * 40, encoding="utf-8")
    ended = status(path)
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"Error: The ledger {path} cannot be opened")
    assert len(ended.stderr.splitlines()) == 1
