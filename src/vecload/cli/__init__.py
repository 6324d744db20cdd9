"""The command line: one file a verb, each verb one call of the library.

Importing this loads click and the standard library only; a verb's module is loaded when the verb is used.
"""

from __future__ import annotations

import io
import sys
import traceback
from importlib import import_module
from typing import Any

import click

from vecload._version import __version__
from vecload.cli.failures import exit_code, sentence
from vecload.report.logs import Verbosity, configure

VERBS = {
    "sync": "Bring a vector collection in step with its source.",
    "search": "Show the chunks nearest to a question.",
    "status": "Show what the ledger knows.",
    "connectors": "Show what is installed, what is missing, and a connector's settings.",
    "init": "Write a commented vecload.yaml.",
}
"""The verbs and their short helps, kept here so that `vecload --help` imports none of them."""


class Failure(click.ClickException):
    """Any other error in the form that click shows and ends with."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(sentence(error))
        self.exit_code = exit_code(error)  # type: ignore[misc]  # click itself declares it for the class only


class Verbs(click.Group):
    """Loads a verb when it is used, and turns every error into one sentence and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(import_module(f"vecload.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        verbosity = ctx.ensure_object(Verbosity)
        # A name that the terminal's encoding lacks must not turn a finished run into a failed one.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        configure(verbosity)
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click knows how to end after these
        except (Exception, KeyboardInterrupt) as error:
            if verbosity.debug:
                traceback.print_exception(error)
            raise Failure(error) from None


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vecload")
def main() -> None:
    """Keeps vector collections in step with document sources.

    The first steps: `vecload init`, then `vecload sync`, then `vecload search "a question"`.
    """
