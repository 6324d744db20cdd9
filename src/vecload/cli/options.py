"""Flags and look-ups that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from vecload.config import Config, load, set_value
from vecload.errors import UsageError
from vecload.report.logs import Verbosity, configure

Function = TypeVar("Function", bound=Callable[..., Any])


def config_options(function: Function) -> Function:
    """`--config` and `--set`."""
    function = click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any setting of the file, such as chunk.max_tokens=256; repeatable.",
    )(function)
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The settings file [default: vecload.yaml in this folder].",
    )(function)


def _remember(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    verbosity = ctx.find_object(Verbosity)
    if value and verbosity is not None and param.name is not None:
        setattr(verbosity, param.name, True)
        configure(verbosity)


def debug_option(function: Function) -> Function:
    """`--debug`."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Show tracebacks and the log of every part.",
    )(function)


def verbosity_options(function: Function) -> Function:
    """`--quiet`, `--verbose` and `--debug`."""
    function = debug_option(function)
    function = click.option(
        "--verbose", is_flag=True, expose_value=False, callback=_remember, help="Say more about each step."
    )(function)
    return click.option(
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Say nothing unless something failed or waits for a person.",
    )(function)


def read_config(path: Path | None, assignments: tuple[str, ...], model: str | None = None) -> Config:
    """The settings under these flags. Raises UsageError."""
    overrides: dict[str, Any] = {}
    for assignment in assignments:
        set_value(overrides, assignment)
    if model is not None:
        set_value(overrides, "transform.model=")
        overrides["transform"]["model"] = model
    return load(path, overrides)


def only_job(config: Config, advice: str) -> str | None:
    """The job of a file that names exactly one; None when it names none. Raises UsageError when it names several."""
    jobs = list(config.settings.jobs)
    if len(jobs) > 1:
        raise UsageError(f"{config.path} names several jobs ({', '.join(jobs)}); {advice}.")
    return jobs[0] if jobs else None
