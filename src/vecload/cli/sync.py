"""`vecload sync`: runs one job, or all of a file, and tells how they ended."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from vecload.cli.command import again
from vecload.cli.failures import exit_code, sentence, worst
from vecload.cli.options import config_options, only_job, read_config, verbosity_options
from vecload.config import Job
from vecload.errors import Interrupted, UsageError
from vecload.report.logs import Verbosity
from vecload.report.progress import progress
from vecload.report.run_report import RunReport, write_json
from vecload.report.summary import summary
from vecload.sync import SyncOptions, run


@click.command("sync")
@click.option("--source", metavar="SOURCE", help="A name from the file, a kind, or a path or URL such as ./docs.")
@click.option("--sink", metavar="SINK", help="A name from the file, a kind, or a URL such as qdrant:./vectors.")
@click.option("--collection", metavar="NAME", help="The collection or table in the sink.")
@click.option("--model", metavar="MODEL", help="A hub name, a folder, or package:NAME.")
@config_options
@click.option("--job", metavar="NAME", help="A job of the file.")
@click.option("--all", "every", is_flag=True, help="Every job of the file; one that fails does not stop the others.")
@click.option(
    "--report", "report_file", type=click.Path(path_type=Path), metavar="FILE", help="Write what happened as JSON."
)
@click.option("--full", is_flag=True, help="Read every document again.")
@click.option("--reembed", is_flag=True, help="Compute every vector again.")
@click.option("--checksum", is_flag=True, help="Trust no modification time.")
@click.option("--no-delete", is_flag=True, help="Keep the points of documents that are gone from the source.")
@click.option(
    "--allow-delete",
    type=click.IntRange(min=0),
    metavar="N",
    help="Delete up to N documents that are gone from the source, however large a part of it they are.",
)
@verbosity_options
@click.pass_context
def sync(
    ctx: click.Context,
    source: str | None,
    sink: str | None,
    collection: str | None,
    model: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    job: str | None,
    every: bool,
    report_file: Path | None,
    full: bool,
    reembed: bool,
    checksum: bool,
    no_delete: bool,
    allow_delete: int | None,
) -> None:
    """Bring a vector collection in step with its source.

    Only what changed is read, embedded and written. Without --job, --source and --sink, the one job of the file runs.

    Exit status: 0 all in step; 1 a store, a source or the engine failed; 2 refused, nothing was written; 3 finished,
    and something waits for a person (dead letters, withheld deletes); 130 and 143 interrupted, run it again to go on.
    With --all the worst of its jobs, in the order 1, 2, 3, 0.
    """
    verbosity = ctx.ensure_object(Verbosity)
    reports = _Reports(report_file, every)
    with reports:
        _check_flags(job, every, source or sink, collection, no_delete, allow_delete)
        settings = read_config(config, assignments, model)
        options = SyncOptions(
            full=full,
            reembed=reembed,
            checksum=checksum,
            delete=not no_delete,
            allow_delete=allow_delete,
            command=again(ctx, job),
            report_file=report_file,
        )
        if every:
            names = list(settings.settings.jobs)
            if not names:
                raise UsageError("--all needs a file with 'jobs:' in it; write one with: vecload init.")
            for what, values in (("source", settings.above.source), ("sink", settings.above.sink)):
                if "url" in values:
                    raise UsageError(
                        f"{what}.url is set by a flag or VECLOAD_{what.upper()}__URL, and with --all it would take the "
                        f"place of every job's own; unset it."
                    )
            for name in names:
                one = replace(options, command=again(ctx, name))
                try:
                    _run(partial(settings.job, name=name), one, reports.of(name), verbosity)
                except Interrupted:
                    raise
                except Exception as error:
                    if verbosity.debug:
                        traceback.print_exception(error)
                    click.echo(f"Error: job '{name}': {sentence(error)}", err=True)
        else:
            chosen = job if job or source or sink else only_job(settings, "choose one with --job, or take --all")
            make_job = partial(settings.job, name=chosen, source=source, sink=sink, collection=collection)
            _run(make_job, options, reports.of(chosen), verbosity)
    ctx.exit(reports.exit_code)


def _run(make_job: Callable[[], Job], options: SyncOptions, report: RunReport, verbosity: Verbosity) -> None:
    """One run with its display and summary; the report is filled also when no job could be made of the settings."""
    try:
        job = make_job()
        with progress(report, enabled=not verbosity.quiet):
            run(job, options, report)
    except (Exception, KeyboardInterrupt) as error:
        report.end(exit_code(error), sentence(error))
        raise
    finally:
        waits = report.exit_code == 3
        wrote = report.chunks.upserted or report.chunks.payload_updated or report.chunks.deleted
        if waits or (not verbosity.quiet and (report.exit_code == 0 or wrote)):
            _say("\n".join(summary(report)))


def _say(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:
        # Nobody reads any more. The run went as it went; and Python's own flush at exit must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Reports:
    """The reports of this command; leaving the context writes them to `--report`, however the runs ended."""

    def __init__(self, file: Path | None, every: bool) -> None:
        self._file = file
        self._every = every
        self._reports: dict[str | None, RunReport] = {}
        self._failure: RunReport | None = None

    def of(self, job: str | None) -> RunReport:
        self._reports[job] = RunReport(job=job)
        return self._reports[job]

    @property
    def exit_code(self) -> int:
        ended = [*self._reports.values(), *filter(None, [self._failure])]
        return worst([report.exit_code for report in ended])

    def __enter__(self) -> None:
        if self._file is None:
            return
        # Found out now, rather than after hours of work.
        folder = self._file.absolute().parent
        while not folder.exists():
            folder = folder.parent
        if self._file.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise UsageError(f"--report {self._file} cannot be written; name a file in a folder that you may write to.")

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and not any(report.error for report in self._reports.values()):
            self._failure = RunReport()
            self._failure.end(exit_code(error), sentence(error))
        if self._file is None:
            return
        try:
            write_json(self._file, self._content())
        except OSError as fault:
            click.echo(f"Error: the report {self._file} cannot be written ({fault.strerror})", err=True)
            if error is None:
                raise click.exceptions.Exit(1) from fault

    def _content(self) -> dict[str, object]:
        if self._every:
            return {
                "exit_code": self.exit_code,
                "error": self._failure.error if self._failure else None,
                "jobs": {name: report.to_dict() for name, report in self._reports.items()},
            }
        return (self._failure or next(iter(self._reports.values()))).to_dict()


def _check_flags(
    job: str | None,
    every: bool,
    endpoint: str | None,
    collection: str | None,
    no_delete: bool,
    allow_delete: int | None,
) -> None:
    if job and every:
        raise UsageError("--job and --all exclude each other; give one of them.")
    if (job or every) and endpoint:
        flag = "--job" if job else "--all"
        raise UsageError(f"{flag} takes its source and sink from the file; leave out --source and --sink, or {flag}.")
    if every and collection:
        raise UsageError(
            "--collection would send all jobs into one collection; give it with --job, or leave out --all."
        )
    if no_delete and allow_delete is not None:
        raise UsageError("--no-delete and --allow-delete exclude each other; give one of them.")
