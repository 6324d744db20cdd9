"""How every verb ends: one sentence, the right exit status, a traceback only with --debug."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vecload.cli import main
from vecload.cli.command import without_secrets
from vecload.cli.failures import worst
from vecload.errors import LedgerError, RefusedError, VecloadError
from vecload.report.logs import Verbosity, configure


def connectors_raising(monkeypatch: pytest.MonkeyPatch, error: BaseException, *flags: str) -> Result:
    def fail(_: str) -> None:
        raise error

    monkeypatch.setattr("vecload.registry.kinds", fail)
    return CliRunner().invoke(main, ["connectors", *flags])


@pytest.mark.parametrize(("kind", "status"), [(LedgerError, 1), (RefusedError, 2)])
def test_an_error_for_people(monkeypatch: pytest.MonkeyPatch, kind: type[VecloadError], status: int) -> None:
    ended = connectors_raising(monkeypatch, kind("This and that."))
    assert (ended.exit_code, ended.stdout, ended.stderr) == (status, "", "Error: This and that.\n")


def test_an_error_that_nobody_foresaw_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = connectors_raising(monkeypatch, ValueError("a\nb"))
    assert ended.exit_code == 1
    assert ended.stderr == "Error: unexpected ValueError: a b; run again with --debug for the traceback\n"


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = connectors_raising(monkeypatch, LedgerError("This and that."), "--debug")
    assert ended.exit_code == 1
    assert ended.stderr.startswith("Traceback (most recent call last)")
    assert ended.stderr.endswith("Error: This and that.\n")


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = connectors_raising(monkeypatch, KeyboardInterrupt())
    assert (ended.exit_code, ended.stderr) == (130, "Error: Interrupted.\n")


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["sync", "--nonsense"], ["status", "--limit", "0"], ["sync", "--allow-delete", "many"]]
)
def test_wrong_usage(arguments: list[str]) -> None:
    ended = CliRunner().invoke(main, arguments)
    assert ended.exit_code == 2
    assert ended.stderr.startswith("Usage: ")


def test_a_reader_that_goes_away_early() -> None:
    """`vecload connectors | head -1`: no traceback, no complaint of the interpreter at its end."""
    ours, theirs = os.pipe()
    os.close(ours)
    ended = subprocess.run(
        [sys.executable, "-m", "vecload", "connectors"], stdout=theirs, stderr=subprocess.PIPE, text=True
    )
    os.close(theirs)
    assert ended.stderr == ""
    assert ended.returncode != 0


def test_an_encoding_that_lacks_a_name(tmp_path: Path) -> None:
    """A name that the encoding lacks is escaped; it ends no run."""
    ended = subprocess.run(
        [sys.executable, "-m", "vecload", "status", "--set", f"ledger={tmp_path}/目录.db"],
        env={**os.environ, "PYTHONIOENCODING": "iso-8859-1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\\u76ee\\u5f55.db" in ended.stdout


@pytest.mark.parametrize(
    ("codes", "status"),
    [([0, 0], 0), ([0, 3], 3), ([3, 2, 0], 2), ([2, 1, 3], 1), ([3, 143], 143), ([], 0), ([2, 130], 130)],
)
def test_the_exit_status_of_several_jobs(codes: list[int], status: int) -> None:
    assert worst(codes) == status


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hunter2@host/db", "postgresql://me:***@host/db"),
        ("postgresql://host/db?password=hunter2&x=1", "postgresql://host/db?password=***&x=1"),
        ("sink.api_key=hunter2", "sink.api_key=***"),
        ("source.secret_access_key=hunter2", "source.secret_access_key=***"),
        ("source.session_token=hunter2", "source.session_token=***"),
        ("chunk.max_tokens=256", "chunk.max_tokens=256"),
        ("source.key=[site, id]", "source.key=[site, id]"),
        ("qdrant+http://host:6333", "qdrant+http://host:6333"),
    ],
)
def test_a_command_that_is_shown_holds_no_secret(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    ("verbosity", "lines"),
    [
        (Verbosity(quiet=True), ["Error: e"]),
        (Verbosity(), ["i", "Warning: w\\x1b[2J", "Error: e"]),
        (Verbosity(verbose=True), ["d", "i", "Warning: w\\x1b[2J", "Error: e"]),
        (Verbosity(debug=True), ["d", "i", "Warning: w\\x1b[2J", "Error: e", "the engine's", "another library's"]),
    ],
    ids=["quiet", "default", "verbose", "debug"],
)
def test_what_is_logged(verbosity: Verbosity, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    level = root.level
    try:
        configure(verbosity)
        log = logging.getLogger("vecload")
        log.debug("d")
        log.info("i")
        log.warning("w\x1b[2J")
        log.error("e")
        logging.getLogger("vecload.engine").debug("the engine's")
        logging.getLogger("another").info("another library's")
        logging.getLogger("another").debug("headers, with secrets")
    finally:
        configure(Verbosity())
        root.setLevel(level)
    assert capsys.readouterr().err.splitlines() == lines
