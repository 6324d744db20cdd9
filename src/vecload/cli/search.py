"""`vecload search`: the chunks nearest to a question, for a person or as JSON."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

import click

from vecload.cli.options import config_options, only_job, read_config, verbosity_options
from vecload.documents import Hit, Json
from vecload.errors import UsageError
from vecload.report.terminal import excerpt, printable
from vecload.searching import nearest

EXCERPT_LINES = 2


@click.command("search")
@click.argument("question")
@click.option("--sink", metavar="SINK", help="A name from the file, a kind, or a URL such as qdrant:./vectors.")
@click.option("--collection", metavar="NAME", help="The collection or table in the sink.")
@click.option("--model", metavar="MODEL", help="Where the collection's model is now, if no longer where it was.")
@config_options
@click.option("--job", metavar="NAME", help="Search where this job of the file writes.")
@click.option("--limit", type=click.IntRange(min=1), default=5, show_default=True, metavar="N", help="How many chunks.")
@click.option(
    "--filter",
    "conditions",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only chunks with this source, document or metadata.NAME; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@verbosity_options
def search(
    question: str,
    sink: str | None,
    collection: str | None,
    model: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    job: str | None,
    limit: int,
    conditions: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the chunks nearest to a question.

    QUESTION is embedded with the collection's own model and query prompt.
    """
    settings = read_config(config, assignments)
    name = job if job or sink else only_job(settings, "choose one with --job, or name a --sink")
    chosen = settings.job(name=name, sink=sink, collection=collection, needs_source=False)
    wanted = dict(_condition(condition) for condition in conditions)
    hits = nearest(question, chosen, model=model, limit=limit, filter=wanted)
    if as_json:
        found = [{"id": str(uuid.UUID(bytes=hit.id)), "score": hit.score, "payload": hit.payload} for hit in hits]
        click.echo(json.dumps(found, indent=2))
    else:
        _show(hits)


def _condition(text: str) -> tuple[str, Json]:
    """One `--filter`. A metadata value keeps its type: 2024 is a number, "2024" in quotes a string."""
    field, equals, value = text.partition("=")
    if not equals or not (field in ("source", "document") or field.removeprefix("metadata.") not in ("", field)):
        raise UsageError(f"--filter {text}: write source=NAME, document=KEY or metadata.NAME=VALUE.")
    if not field.startswith("metadata."):
        return field, value
    try:
        typed = json.loads(value)
    except ValueError:
        return field, value
    return field, typed if isinstance(typed, str | int | float | bool) else value


def _show(hits: Sequence[Hit]) -> None:
    if not hits:
        click.echo("Nothing was found.")
    width = max(20, shutil.get_terminal_size().columns - 3)
    for rank, hit in enumerate(hits, 1):
        headings = hit.payload.get("headings")
        place = [str(hit.payload.get("document", ""))]
        if isinstance(headings, list) and headings:
            place.append(" > ".join(str(heading) for heading in headings))
        click.echo(f"{rank}. {hit.score:.3f}  {printable('  |  '.join(place))}")
        text = excerpt(str(hit.payload.get("text", "")), EXCERPT_LINES * width)
        for start in range(0, len(text), width):
            click.echo("   " + text[start : start + width].strip())
