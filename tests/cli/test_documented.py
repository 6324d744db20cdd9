"""Every flag of every verb stands in the README, and every setting of the core in the file that `init` writes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from vecload.cli import VERBS, main
from vecload.config import ChunkSettings, ParseSettings, TransformSettings

README = Path(__file__).parents[2] / "README.md"


def command(verb: str) -> click.Command:
    found = main.get_command(click.Context(main), verb)
    assert found is not None
    return found


FLAGS = [
    (verb, flag)
    for verb in VERBS
    for parameter in command(verb).params
    if isinstance(parameter, click.Option)
    for flag in parameter.opts
    if flag.startswith("--")
]


@pytest.mark.parametrize(("verb", "flag"), FLAGS)
def test_each_flag_is_in_the_readme(verb: str, flag: str) -> None:
    words = README.read_text(encoding="utf-8").replace("`", " ").replace("[", " ").replace("]", " ").split()
    assert flag in (word.strip(",.;:()|").partition("=")[0] for word in words), f"{verb} {flag}"


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_in_the_readme(verb: str) -> None:
    assert f"vecload {verb}" in README.read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", VERBS)
def test_the_short_help_in_the_list_is_the_verbs_own(verb: str) -> None:
    """The list is kept apart from the verbs, so that showing it loads none of them."""
    assert (command(verb).help or "").splitlines()[0] == VERBS[verb]


def test_each_flag_says_what_it_does() -> None:
    silent = [
        (verb, parameter.name)
        for verb in VERBS
        for parameter in command(verb).params
        if isinstance(parameter, click.Option) and not parameter.help
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("section", "settings"),
    [("transform", TransformSettings), ("chunk", ChunkSettings), ("parse", ParseSettings)],
)
def test_each_setting_of_the_core_is_in_the_template(section: str, settings: type[BaseModel]) -> None:
    template = files("vecload.cli").joinpath("vecload.yaml").read_text(encoding="utf-8")
    # transform.kind has one value as yet, so that nobody needs to set it.
    names = [name for name in settings.model_fields if (section, name) != ("transform", "kind")]
    assert [name for name in names if f"{name}:" not in template] == []
