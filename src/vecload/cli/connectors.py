"""`vecload connectors`: what is installed and what is missing; and the settings of one kind."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from typing import Any

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from vecload import registry
from vecload.cli.options import debug_option
from vecload.config import setting_names
from vecload.errors import UsageError
from vecload.report.terminal import excerpt, printable, table

SECTIONS = {"sources": "source", "sinks": "sink", "engines": "transform.engine"}
"""Where the settings of a group stand in vecload.yaml."""


@click.command("connectors")
@click.argument("kind", required=False)
@debug_option
def connectors(kind: str | None) -> None:
    """Show what is installed, what is missing, and a connector's settings.

    With KIND (a source, sink or engine, such as files, qdrant or vllm) the settings of that.
    """
    if kind is None:
        rows = [_row(group, point) for group in registry.GROUPS for point in registry.kinds(group).values()]
        click.echo("\n".join(table(("", "kind", "takes", "package", "state"), rows)))
        click.echo("\nThe settings of one: vecload connectors KIND")
        return
    found = [(group, point) for group in SECTIONS if (point := registry.kinds(group).get(kind))]
    if not found:
        known = sorted({name for group in SECTIONS for name in registry.kinds(group)})
        raise UsageError(f"There is no source, sink or engine '{kind}'; installed are: {', '.join(known)}.")
    for group, point in found:
        _show(group, point)


def _row(group: str, point: EntryPoint) -> tuple[str, ...]:
    package = point.dist.name if point.dist else "unknown"
    try:
        connector = point.load()
        return group[:-1], point.name, _takes(connector), package, _state(connector, package)
    except Exception as error:  # one broken package must not hide the others
        state = excerpt(f"cannot be loaded: {type(error).__name__}: {error}", 80)
        return group[:-1], point.name, "", package, state


def _takes(connector: Any) -> str:
    """The URLs and endings that mean this kind."""
    schemes = [f"{scheme}:" for scheme in getattr(connector, "schemes", ())]
    return " ".join([*schemes, *getattr(connector, "suffixes", ())])


def _state(connector: Any, package: str) -> str:
    extra: str | None = connector.extra
    # A parser names no drivers of its own: what its extra asks for stands for them.
    drivers = getattr(connector, "drivers", None)
    missing = _missing(package, extra) if drivers is None else [name for name in drivers if find_spec(name) is None]
    if not missing:
        return "ready"
    wanted = f"'{package}[{extra}]'" if extra else " ".join(missing)
    return f"needs {', '.join(missing)}; run: pip install {wanted}"


def _missing(package: str, extra: str | None) -> list[str]:
    """The packages that an extra asks for and that are not installed."""
    of_extra = re.compile(rf"""([\w.-]+).*;.*\bextra\s*==\s*["']{extra}["']""")
    names = [found[1] for line in metadata.requires(package) or [] if (found := of_extra.match(line))]
    return [name for name in names if not any(metadata.Distribution.discover(name=name))]


def _show(group: str, point: EntryPoint) -> None:
    row = _row(group, point)
    click.echo(f"{row[0]} {point.name} ({row[3]}): {row[4]}")
    try:
        settings: type[BaseModel] = point.load().settings
    except Exception as error:
        raise UsageError(
            f"The {row[0]} '{point.name}' cannot be loaded ({error}); reinstall the package {row[3]}."
        ) from error
    section = SECTIONS[group]
    for name, field in setting_names(settings).items():
        click.echo(f"  {section}.{name}: {_type(field)}{_default(field)}")
        if field.description:
            click.echo(f"      {printable(field.description)}")
    example = "url" if "url" in settings.model_fields else next(iter(settings.model_fields), "kind")
    variable = "__".join([*section.split("."), example]).upper()
    click.echo(f"Set one with --set {section}.{example}=..., VECLOAD_{variable}, or in vecload.yaml.")


def _type(field: FieldInfo) -> str:
    annotation = field.annotation
    text = (
        annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else str(annotation)
    )
    # Names without their modules, and without the type's own word for "may be left out".
    return re.sub(r"\b(?:\w+\.)+", "", text).removesuffix(" | None").replace("SecretStr", "secret")


def _default(field: FieldInfo) -> str:
    """What holds when it is not set; a default that is made when asked for (it may be a secret) is not shown."""
    if field.is_required():
        return " (required)"
    return (
        ""
        if field.default_factory is not None or field.default in (None, "", [], {}, ())
        else f" [default: {printable(str(field.default))}]"
    )
