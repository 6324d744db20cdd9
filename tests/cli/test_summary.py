from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from vecload.report.run_report import ChunkCounts, DocumentCounts, RunReport, StageTimes
from vecload.report.summary import summary


def full_report() -> RunReport:
    """A run in which everything happened."""
    return RunReport(
        job="nightly",
        source="handbook",
        sink="qdrant:/srv/vectors#handbook",
        ledger="/srv/.vecload/ledger.db",
        documents=DocumentCounts(
            listed=1300, read=20, unchanged=1280, new=12, changed=3, moved=1, deleted=0, withheld=60, failed=4
        ),
        chunks=ChunkCounts(unchanged=4000, embedded=145, reused=12, payload_updated=30, upserted=157, deleted=5),
        dead_letters=4,
        truncated=2,
        skipped=Counter({"empty": 3, "binary": 1}),
        tokens=12345,
        seconds=75.0,
        stages={"embed": StageTimes(seconds=5.0)},
        exit_code=3,
        next_command="vecload sync --job nightly --allow-delete 60",
    )


def test_everything_in_eight_lines_or_less() -> None:
    assert summary(full_report()) == [
        "nightly: handbook -> qdrant:/srv/vectors#handbook: done, and something waits for you after 1 min 15 s",
        "documents:  1,300 listed, 12 new, 3 changed, 1 moved, 1,280 unchanged, 4 failed",
        "chunks:     145 embedded (12,345 tokens, 2,469 a second), 12 reused, 30 with a new payload only, 5 deleted, "
        "4,000 unchanged",
        "left out:   1 skipped (binary), 3 skipped (empty), 2 chunks longer than the model takes, cut to their head",
        "waiting:    4 dead letters; see: vecload status --dead-letters --set ledger=/srv/.vecload/ledger.db",
        "withheld:   60 documents are gone from the source and were kept; to delete them: "
        "vecload sync --job nightly --allow-delete 60",
        "ledger:     /srv/.vecload/ledger.db",
    ]


def test_a_quiet_night_is_four_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = str(tmp_path / ".vecload" / "ledger.db")
    report = RunReport(source="docs", sink="null:#docs", ledger=ledger, seconds=0.4)
    report.documents.listed = report.documents.unchanged = 300
    assert summary(report) == [
        "docs -> null:#docs: in step after 0.4 s",
        "documents:  300 listed, 300 unchanged",
        "chunks:     0 embedded",
        f"ledger:     {ledger}",
    ]


def test_the_command_is_short_where_the_ledger_is_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = RunReport(ledger=str(tmp_path / ".vecload" / "ledger.db"), dead_letters=2)
    assert "waiting:    2 dead letters; see: vecload status --dead-letters" in summary(report)


def test_names_cannot_act_on_the_terminal() -> None:
    report = RunReport(source="docs\x1b[2J\nmore", sink="null:#d")
    assert summary(report)[0].startswith("docs\\x1b[2J\\nmore -> null:#d: ")
