"""Flags, exit statuses, reports and output of `vecload sync`, around a run that does as it is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from vecload.cli import main
from vecload.config import Job
from vecload.errors import Interrupted, SinkError, VecloadError
from vecload.report.run_report import RunReport
from vecload.sync import SyncOptions

JOBS = """
sources:
  a: {url: ./a}
  b: {url: ./b}
sinks:
  discard: {kind: "null", collection: things}
jobs:
  first: {source: a, sink: discard}
  second: {source: b, sink: discard, collection: others}
"""
ONE_JOB = JOBS.replace("  second: {source: b, sink: discard, collection: others}\n", "")


class Runs:
    """Stands for `vecload.sync.run`: remembers what it was called with, and ends each job as `ends` says."""

    def __init__(self) -> None:
        self.calls: list[tuple[Job, SyncOptions]] = []
        self.ends: dict[str | None, Callable[[RunReport], None]] = {}

    def __call__(self, job: Job, options: SyncOptions, report: RunReport) -> RunReport:
        self.calls.append((job, options))
        report.job, report.source, report.sink = job.name, "the source", "the sink"
        try:
            self.ends.get(job.name, in_step)(report)
        except VecloadError as error:
            report.end(error.exit_code, str(error))
            raise
        return report


def raising(error: BaseException) -> Callable[[RunReport], None]:
    def end(_: RunReport) -> None:
        raise error

    return end


def in_step(report: RunReport) -> None:
    report.end(0)


def waiting(report: RunReport) -> None:
    report.dead_letters = 2
    report.end(3)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.chdir(tmp_path)
    fake = Runs()
    # By its module, since the package's attribute of this name is a verb.
    import vecload.cli.sync as verb

    monkeypatch.setattr(verb, "run", fake)
    return fake


def sync(*arguments: str, config: str | None = None) -> Result:
    if config is not None:
        Path("vecload.yaml").write_text(config, encoding="utf-8")
    return CliRunner().invoke(main, ["sync", *arguments])


def report_of(path: str = "report.json") -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return content


def test_flags_make_the_job(runs: Runs, tmp_path: Path) -> None:
    ended = sync(
        *("--source", "./docs", "--sink", "qdrant:./v", "--collection", "c", "--model", "package:m"),
        *("--set", "chunk.max_tokens=64", "--set", "transform.engine.args.dtype=float32", "--set", "ledger=l.db"),
        *("--full", "--reembed", "--checksum", "--allow-delete", "7"),
    )
    assert ended.exit_code == 0, ended.output
    [(job, options)] = runs.calls
    assert job.source is not None
    assert (job.source.kind, job.sink.kind, job.collection) == ("files", "qdrant", "c")
    assert (job.transform.model, job.transform.engine) == ("package:m", {"args": {"dtype": "float32"}})
    assert job.chunk is not None
    assert (job.chunk.max_tokens, job.ledger) == (64, tmp_path / "l.db")
    assert (options.full, options.reembed, options.checksum, options.delete, options.allow_delete) == (
        True,
        True,
        True,
        True,
        7,
    )


def test_no_delete(runs: Runs) -> None:
    assert sync("--source", ".", "--sink", "null:", "--no-delete").exit_code == 0
    assert runs.calls[0][1].delete is False
    assert runs.calls[0][1].allow_delete is None


def test_the_command_to_run_again(runs: Runs) -> None:
    sync(
        *("--sink", "null:", "--source", "./two words", "--set", "source.max_document_bytes=9", "--full", "--checksum"),
        *("--allow-delete", "3", "--set", "sink.url=null://me:hunter2@host"),
    )
    assert runs.calls[0][1].command == (
        "vecload sync --source './two words' --sink null: --set source.max_document_bytes=9 "
        "--set 'sink.url=null://me:***@host' --checksum"
    )
    sync("--all", config=JOBS)
    assert [options.command for _, options in runs.calls[1:]] == [
        "vecload sync --job first",
        "vecload sync --job second",
    ]


def test_the_only_job_runs_by_itself(runs: Runs) -> None:
    assert sync(config=ONE_JOB).exit_code == 0
    assert [job.name for job, _ in runs.calls] == ["first"]


def test_of_several_jobs_one_must_be_named(runs: Runs) -> None:
    ended = sync(config=JOBS)
    assert ended.exit_code == 2
    assert "names several jobs (first, second); choose one with --job, or take --all." in ended.stderr
    assert sync("--job", "second").exit_code == 0
    assert [(job.name, job.collection) for job, _ in runs.calls] == [("second", "others")]


def test_a_job_into_another_collection(runs: Runs) -> None:
    assert sync("--job", "second", "--collection", "trial", config=JOBS).exit_code == 0
    assert runs.calls[0][0].collection == "trial"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--job", "first", "--all"),
        ("--job", "first", "--source", "./docs"),
        ("--all", "--sink", "null:"),
        ("--all", "--collection", "c"),
        ("--no-delete", "--allow-delete", "3", "--job", "first"),
        ("--job", "third"),
        ("--job", "first", "--set", "nonsense"),
        ("--job", "first", "--config", "nowhere.yaml"),
    ],
)
def test_refused_before_any_run(runs: Runs, arguments: tuple[str, ...]) -> None:
    ended = sync(*arguments, "--report", "report.json", config=JOBS)
    assert ended.exit_code == 2, ended.output
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stdout == ""
    assert runs.calls == []
    report = report_of()
    assert report["exit_code"] == 2
    assert f"Error: {report['error']}\n" == ended.stderr


def test_all_jobs_run_though_one_fails(runs: Runs) -> None:
    runs.ends = {"first": raising(SinkError("The store is down."))}
    ended = sync("--all", "--report", "deep/report.json", config=JOBS)
    assert ended.exit_code == 1
    assert [job.name for job, _ in runs.calls] == ["first", "second"]
    assert ended.stderr == "Error: job 'first': The store is down.\n"
    assert "second: the source -> the sink: in step" in ended.stdout
    report = report_of("deep/report.json")
    assert list(report["jobs"]) == ["first", "second"]
    assert (report["exit_code"], report["jobs"]["first"]["error"]) == (1, "The store is down.")
    assert (report["jobs"]["second"]["exit_code"], report["jobs"]["second"]["error"]) == (0, None)


def test_all_jobs_run_though_one_has_wrong_settings(runs: Runs) -> None:
    ended = sync("--all", config=JOBS.replace("source: a", "source: nowhere"))
    assert ended.exit_code == 2
    assert [job.name for job, _ in runs.calls] == ["second"]
    assert ended.stderr.startswith("Error: job 'first': ")


def test_an_interrupt_stops_the_other_jobs_too(runs: Runs) -> None:
    runs.ends = {"first": raising(Interrupted(15))}
    ended = sync("--all", "--report", "report.json", config=JOBS)
    assert ended.exit_code == 143
    assert [job.name for job, _ in runs.calls] == ["first"]
    assert report_of()["exit_code"] == 143


@pytest.mark.parametrize("variable", ["VECLOAD_SOURCE__URL", "VECLOAD_SINK__URL"])
def test_all_with_one_url_for_every_job(runs: Runs, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """A variable left over in the environment must not bring one source into every collection."""
    monkeypatch.setenv(variable, "null:")
    ended = sync("--all", config=JOBS)
    assert (ended.exit_code, runs.calls) == (2, [])
    assert variable in ended.stderr


def test_all_without_jobs(runs: Runs) -> None:
    ended = sync("--all", "--report", "report.json", config="sources: {}\n")
    assert ended.exit_code == 2
    assert report_of() == {"exit_code": 2, "error": ended.stderr.removeprefix("Error: ").strip(), "jobs": {}}


def test_the_report_of_a_run_that_failed(runs: Runs) -> None:
    runs.ends = {"first": raising(SinkError("The store is down."))}
    ended = sync("--report", "report.json", config=ONE_JOB)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (1, "", "Error: The store is down.\n")
    assert (report_of()["exit_code"], report_of()["error"], report_of()["job"]) == (1, "The store is down.", "first")


def test_the_report_of_an_error_that_nobody_foresaw(runs: Runs) -> None:
    runs.ends = {"first": raising(KeyError("x"))}
    assert sync("--report", "report.json", config=ONE_JOB).exit_code == 1
    assert report_of()["error"].startswith("unexpected KeyError")


def test_a_report_that_cannot_be_written_is_found_before_the_run(runs: Runs) -> None:
    Path("file").touch()
    for path in (".", "file/report.json"):
        ended = sync("--report", path, config=ONE_JOB)
        assert ended.exit_code == 2
        assert ended.stderr.startswith(f"Error: --report {path} cannot be written")
    assert runs.calls == []


def test_a_report_to_a_device(runs: Runs) -> None:
    assert sync("--report", "/dev/null", config=ONE_JOB).exit_code == 0
    assert not Path("/dev/null").is_file()


def test_quiet_speaks_only_for_a_person(runs: Runs) -> None:
    ended = sync("--quiet", config=ONE_JOB)
    assert (ended.exit_code, ended.output) == (0, "")
    runs.ends = {"first": waiting}
    ended = sync("--quiet")
    assert ended.exit_code == 3
    assert "2 dead letters; see: vecload status --dead-letters" in ended.stdout
    runs.ends = {"first": raising(SinkError("The store is down."))}
    ended = sync("--quiet")
    assert (ended.exit_code, ended.output) == (1, "Error: The store is down.\n")


def test_a_summary_also_of_what_a_failed_run_wrote(runs: Runs) -> None:
    def half(report: RunReport) -> None:
        report.add(report.chunks, upserted=5, embedded=5)
        raise SinkError("The store is down.")

    runs.ends = {"first": half}
    ended = sync(config=ONE_JOB)
    assert "first: the source -> the sink: stopped after" in ended.stdout
    assert "5 embedded" in ended.stdout


def test_a_reader_that_goes_away_changes_no_exit_status(tmp_path: Path) -> None:
    code = """
import sys
import vecload.cli.sync as verb
def run(job, options, report):
    report.end(3)
    return report
verb.run = run
from vecload.cli import main
main(["sync", "--source", ".", "--sink", "null:"])
"""
    ours, theirs = os.pipe()
    os.close(ours)
    ended = subprocess.run([sys.executable, "-c", code], stdout=theirs, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(theirs)
    assert (ended.returncode, ended.stderr) == (3, "")
