from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from vecload.cli import main


def shown(*arguments: str) -> str:
    ended = CliRunner().invoke(main, ["connectors", *arguments])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another package, installed as pip would, with a sink whose driver is missing and one that is broken."""
    package = tmp_path / "otherstore"
    package.mkdir()
    (package / "__init__.py").write_text(
        """
from pydantic import BaseModel, Field
from vecload.contracts import SinkConnector

class Settings(BaseModel):
    url: str = Field(description="where it is")
    shards: int = Field(4, description="how many")
    token: str = Field(default_factory=lambda: "a-secret-of-the-environment", description="who you are")

SINK = SinkConnector("otherstore", Settings, lambda s, c: None, ("other",), extra="fast", drivers=("no_such_driver",))
""",
        encoding="utf-8",
    )
    about = tmp_path / "otherstore-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: otherstore\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(
        "[vecload.sinks]\notherstore = otherstore:SINK\nbroken = otherstore.nowhere:SINK\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "otherstore", raising=False)
    return tmp_path


def line_of(output: str, kind: str) -> str:
    return next(line for line in output.splitlines() if kind in line.split()[1:2])


def test_lists_all_groups_with_their_packages() -> None:
    output = shown()
    for group, kind in [("source", "files"), ("source", "tables"), ("sink", "qdrant"), ("engine", "vllm")]:
        assert line_of(output, kind).split()[0] == group
    assert " vecload " in line_of(output, "pgvector")
    assert ".pdf" in line_of(output, "pdf")


def test_a_missing_driver_and_how_to_get_it(third_party: Path) -> None:
    assert line_of(shown(), "otherstore").endswith(
        "otherstore  needs no_such_driver; run: pip install 'otherstore[fast]'"
    )


def test_a_broken_package_hides_no_other(third_party: Path) -> None:
    output = shown()
    assert "cannot be loaded: ModuleNotFoundError" in line_of(output, "broken")
    assert line_of(output, "null").endswith("ready")


def test_a_parser_lacks_what_its_extra_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ['no-such-reader>=1; extra == "docs"', "click>=8"])
    assert line_of(shown(), "pdf").endswith("needs no-such-reader; run: pip install 'vecload[docs]'")
    assert line_of(shown(), "markdown").endswith("ready")


def test_the_settings_of_one_kind(third_party: Path) -> None:
    output = shown("otherstore")
    assert "  sink.url: str (required)\n      where it is\n" in output
    assert "  sink.shards: int [default: 4]\n      how many\n" in output
    assert "Set one with --set sink.url=..., VECLOAD_SINK__URL, or in vecload.yaml." in output


def test_a_default_from_the_environment_is_not_shown(third_party: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", "a-key")
    assert "a-secret" not in shown("otherstore")
    assert "a-key" not in shown("qdrant")


@pytest.mark.parametrize("kind", ["files", "s3", "tables", "qdrant", "pgvector", "null", "vllm"])
def test_each_setting_of_ours_is_described(kind: str) -> None:
    lines = shown(kind).splitlines()
    names = [number for number, line in enumerate(lines) if line.startswith("  ") and not line.startswith("   ")]
    assert names
    assert [lines[number] for number in names if not lines[number + 1].startswith("      ")] == []


def test_an_unknown_kind() -> None:
    ended = CliRunner().invoke(main, ["connectors", "cloud9"])
    assert ended.exit_code == 2
    assert "no source, sink or engine 'cloud9'" in ended.stderr
    assert "qdrant" in ended.stderr
