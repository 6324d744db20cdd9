"""What a run did, in a few lines: for a person at a terminal, and for the mail that cron sends."""

from __future__ import annotations

import shlex
from pathlib import Path

from vecload.report.run_report import RunReport
from vecload.report.terminal import duration, printable

_DOCUMENTS = ("new", "changed", "moved", "deleted", "unchanged", "failed")


def summary(report: RunReport) -> list[str]:
    """At most eight lines; the first says which job, the last where the ledger is."""
    lines = [_head(report), _documents(report), _chunks(report)]
    lines += filter(None, [_left_out(report), _dead_letters(report), _withheld(report)])
    if report.ledger:
        lines.append(f"ledger:     {report.ledger}")
    return [printable(line) for line in lines]


def _head(report: RunReport) -> str:
    job = f"{report.job}: " if report.job else ""
    end = "in step" if report.exit_code == 0 else "done, and something waits for you" if report.exit_code == 3 else ""
    return f"{job}{report.source} -> {report.sink}: {end or 'stopped'} after {duration(report.elapsed)}"


def _documents(report: RunReport) -> str:
    counts = {name: getattr(report.documents, name) for name in _DOCUMENTS}
    parts = [f"{count:,} {name}" for name, count in counts.items() if count]
    return f"documents:  {report.documents.listed:,} listed" + "".join(f", {part}" for part in parts)


def _chunks(report: RunReport) -> str:
    chunks = report.chunks
    counts = {
        "reused": chunks.reused,
        "with a new payload only": chunks.payload_updated,
        "deleted": chunks.deleted,
        "unchanged": chunks.unchanged,
    }
    speed = f" ({report.tokens:,} tokens, {report.tokens_per_second:,.0f} a second)" if report.tokens else ""
    parts = [f"{chunks.embedded:,} embedded{speed}", *(f"{count:,} {name}" for name, count in counts.items() if count)]
    return f"chunks:     {', '.join(parts)}"


def _left_out(report: RunReport) -> str:
    parts = [f"{count:,} skipped ({reason})" for reason, count in sorted(report.skipped.items()) if count]
    if report.truncated:
        parts.append(f"{report.truncated:,} chunks longer than the model takes, cut to their head")
    return f"left out:   {', '.join(parts)}" if parts else ""


def _dead_letters(report: RunReport) -> str:
    if not report.dead_letters:
        return ""
    return f"waiting:    {report.dead_letters:,} dead letters; see: {_status_command(report.ledger)}"


def _withheld(report: RunReport) -> str:
    if not report.documents.withheld:
        return ""
    line = f"withheld:   {report.documents.withheld:,} documents are gone from the source and were kept"
    return f"{line}; to delete them: {report.next_command}" if report.next_command else line


def _status_command(ledger: str) -> str:
    command = "vecload status --dead-letters"
    if not ledger or Path(ledger) == Path.cwd() / ".vecload" / "ledger.db":
        return command
    return f"{command} --set {shlex.quote(f'ledger={ledger}')}"
