"""The live display: what it says, and that it is nowhere but on a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys

from vecload.report.progress import Line
from vecload.report.run_report import RunReport

RUN = """
import logging, sys, time
from vecload.report import progress as p
from vecload.report.logs import Verbosity, configure
from vecload.report.run_report import RunReport
p.REFRESH_PER_SECOND = 50
configure(Verbosity())
report = RunReport()
report.state, report.documents.listed, report.documents_done = "waiting for the sink", 300, 120
with p.progress(report, enabled={enabled}):
    {body}
    time.sleep(0.2)
print("the summary")
"""
LOG = 'logging.getLogger("vecload").warning("a warning")'


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def on_terminal(enabled: bool, body: str = "pass") -> tuple[str, int]:
    """What a run writes to a terminal, and its exit status."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN.format(enabled=enabled, body=body)],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    written = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            read = os.read(ours, 65536)
        except OSError:  # how a terminal says that the other side is gone
            break
        if not read:
            break
        written += read
    os.close(ours)
    return written.decode(), process.wait()


def test_what_the_line_says() -> None:
    clock = Clock()
    report = RunReport(state="embedding", seconds=12.0)
    line = Line(report, clock)
    assert str(line) == "embedding · 0/0+ documents · 12.0 s"
    clock.now, report.tokens = 2.0, 5000
    report.documents.listed, report.documents_done, report.chunks.embedded = 1200, 30, 4567
    assert str(line) == "embedding · 30/1,200+ documents · 4,567 chunks embedded · 2,500 tokens/s · 12.0 s"


def test_the_remaining_time_is_told_once_the_listing_is_complete() -> None:
    clock = Clock()
    report = RunReport()
    report.documents.listed = 100
    line = Line(report, clock)
    clock.now, report.documents_done = 10.0, 20
    assert "left" not in str(line)
    report.listing_complete = True
    assert str(line).endswith("about 40.0 s left")  # 80 are left, at 2 a second
    report.documents_done = 100
    assert "left" not in str(line)


def test_rates_forget_the_unchanged_documents_of_the_start() -> None:
    clock = Clock()
    report = RunReport(listing_complete=True)
    report.documents.listed = 1000
    line = Line(report, clock)
    for clock.now, report.documents_done, report.tokens in [(1.0, 900, 0), (61.5, 910, 1000), (81.5, 920, 3000)]:
        shown = str(line)
    # 80 are left, at 10 in the last 20 seconds.
    assert "100 tokens/s" in shown
    assert shown.endswith("about 2 min 40 s left")


def test_a_terminal_shows_it_and_keeps_the_log_lines() -> None:
    written, status = on_terminal(True, LOG)
    assert "waiting for the sink · 120/300+ documents" in written
    assert "Warning: a warning\r\n" in written
    assert written.rstrip().endswith("the summary")
    assert status == 0


def test_quiet_shows_nothing_on_a_terminal_either() -> None:
    assert on_terminal(False) == ("the summary\r\n", 0)


def test_a_pipe_gets_no_display_and_no_control_characters() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", RUN.format(enabled=True, body=LOG)], capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("the summary\n", "Warning: a warning\n")


def test_a_display_that_fails_does_not_end_the_run() -> None:
    written, status = on_terminal(True, "del report.documents")
    assert "the summary" in written
    assert "Traceback" not in written
    assert status == 0
