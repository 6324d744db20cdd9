"""`vecload init`: writes a commented vecload.yaml to start from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from vecload.cli.options import debug_option
from vecload.config import CONFIG_NAME
from vecload.errors import UsageError


@click.command("init")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=CONFIG_NAME,
    show_default=True,
    metavar="FILE",
    help="The file to write.",
)
@debug_option
def init(config: Path) -> None:
    """Write a commented vecload.yaml.

    It holds one job, which brings ./docs into the folder ./vectors, and examples for the rest.
    """
    template = files("vecload.cli").joinpath("vecload.yaml").read_text(encoding="utf-8")
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(template)
    except FileExistsError:
        raise UsageError(f"{config} is there already and is left as it is; name another file with --config.") from None
    except OSError as error:
        raise UsageError(f"{config} cannot be written ({error.strerror}).") from error
    run = (
        "vecload sync" if config.name == CONFIG_NAME and config.parent == Path() else f"vecload sync --config {config}"
    )
    click.echo(f"Wrote {config}. Look it through, then run: {run}")
