"""Who may import whom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPEN_TO_CONNECTORS = {"vecload.contracts", "vecload.documents", "vecload.errors", "vecload.connectorkit"}
PURE = ["diff.py", "batching.py", "documents.py", "contracts.py", "errors.py"]
DRIVERS = {"qdrant_client", "psycopg", "pymilvus", "pgvector", "obstore", "vllm", "torch"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:  # a relative one stays within the package
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("path", modules("src/vecload"), ids=str)
def test_the_core_knows_no_connector(path: Path) -> None:
    assert not [name for name in imported(path) if name.split(".")[0] == "vecload_connectors"]


@pytest.mark.parametrize("path", modules("connectors"), ids=str)
def test_a_connector_knows_only_the_contract(path: Path) -> None:
    for name in imported(path):
        if name.split(".")[0] == "vecload":
            assert any(name == room or name.startswith(f"{room}.") for room in OPEN_TO_CONNECTORS), name


@pytest.mark.parametrize("name", PURE)
def test_the_pure_parts_know_no_library_but_numpy(name: str) -> None:
    tree = {module.split(".")[0] for module in imported(ROOT / "src/vecload" / name)}
    assert not tree & (DRIVERS | {"sqlalchemy", "click", "tokenizers"})


@pytest.mark.parametrize("path", modules("src/vecload"), ids=str)
def test_the_core_names_no_store(path: Path) -> None:
    """`if sink == "qdrant"` stands nowhere: the core reads capabilities."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            values = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            assert not {"qdrant", "pgvector", "milvus"} & {v for v in values if isinstance(v, str)}, ast.unparse(node)
