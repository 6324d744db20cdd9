"""`vecload status`: what the ledger knows of each source in each collection, and the dead letters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from vecload.cli.options import config_options, debug_option, read_config
from vecload.ledger import DeadLetter, Ledger, ScopeSummary
from vecload.report.terminal import printable, table

SHOWN = 20


@click.command("status")
@config_options
@click.option("--dead-letters", is_flag=True, help="Show each document or chunk that could not be brought in, and why.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"How many dead letters to show, newest first [default: {SHOWN}; with --json all].",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
def status(
    config: Path | None, assignments: tuple[str, ...], dead_letters: bool, limit: int | None, as_json: bool
) -> None:
    """Show what the ledger knows.

    Documents, chunks and dead letters, by source and collection. Nothing is written, no source and no store is asked.
    Another ledger than the settings' own: --set ledger=PATH.
    """
    path = read_config(config, assignments).ledger
    scopes: list[ScopeSummary] = []
    letters: list[DeadLetter] = []
    exists = path.is_file()
    if exists:
        with closing(Ledger.open(path)) as ledger:
            scopes = ledger.summary()
            if dead_letters:
                letters = list(ledger.dead_letters(limit if limit or as_json else SHOWN))
    if as_json:
        content: dict[str, object] = {"ledger": str(path), "exists": exists, "scopes": [asdict(s) for s in scopes]}
        if dead_letters:
            content["dead_letters"] = [asdict(letter) for letter in letters]
        click.echo(json.dumps(content, indent=2))
    elif not exists:
        click.echo(
            f"There is no ledger at {path} yet; the first vecload sync makes it, and --set ledger=PATH names another."
        )
    elif dead_letters:
        _show_letters(letters, sum(scope.dead_letters for scope in scopes))
    else:
        _show_scopes(path, scopes)


def _show_scopes(path: Path, scopes: Sequence[ScopeSummary]) -> None:
    click.echo(f"ledger: {printable(str(path))}")
    if not scopes:
        click.echo("It knows of no collection yet.")
        return
    header = ("source", "sink", "documents", "chunks", "dead letters", "unfinished", "last run")
    rows = [
        (s.source, s.sink, s.documents, s.chunks, s.dead_letters, s.writing + s.deleting, s.last_run or "never ended")
        for s in scopes
    ]
    click.echo("\n".join(table(header, rows)))
    if any(scope.writing + scope.deleting for scope in scopes):
        click.echo("Unfinished documents were being written when a run ended; the next sync finishes them.")
    if any(scope.dead_letters for scope in scopes):
        click.echo("What could not be brought in, and why: vecload status --dead-letters")


def _show_letters(letters: Sequence[DeadLetter], outstanding: int) -> None:
    if not letters:
        click.echo("There are no dead letters.")
    for letter in letters:
        place = letter.document if letter.chunk is None else f"{letter.document} (chunk {letter.chunk})"
        again = "tried again by each sync" if letter.transient else "tried again when the document changes"
        click.echo(f"{printable(place)}: {printable(letter.reason)} ({letter.stage}): {printable(letter.message)}")
        click.echo(
            f"    {printable(letter.source)} -> {printable(letter.sink)}; {letter.attempts} attempts, "
            f"last {letter.last_at}; {again}"
        )
    if outstanding > len(letters):
        click.echo(f"... and {outstanding - len(letters):,} more (--limit, --json)")
