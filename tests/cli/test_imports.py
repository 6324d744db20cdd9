"""What the command line and the package load before a verb is used: nothing that is heavy, nothing of an extra."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Every dependency of the core but click, the engines, and the drivers of all extras.
HEAVY = {
    "charset_normalizer", "numpy", "obstore", "pyarrow", "pydantic", "pydantic_settings", "yaml", "rich",
    "semantic_text_splitter", "sqlalchemy", "tenacity", "tokenizers",
    "torch", "vllm", "transformers", "sentence_transformers", "huggingface_hub", "ray",
    "qdrant_client", "pymilvus", "psycopg", "pgvector", "lxml", "pypdfium2", "vecload_connectors",
}  # fmt: skip

HELP = """
import contextlib, io
from vecload.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
    main(["--help"])
assert "sync" in out.getvalue()
"""


def loaded_by(code: str) -> set[str]:
    """The top-level names of the modules that `code` loads in a fresh interpreter."""
    listing = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    ended = subprocess.run([sys.executable, "-c", f"{code}\n{listing}"], capture_output=True, text=True, check=True)
    return set(json.loads(ended.stdout))


@pytest.mark.parametrize("code", ["import vecload", "import vecload.cli", HELP], ids=["package", "cli", "help"])
def test_loads_nothing_heavy(code: str) -> None:
    assert loaded_by(code) & HEAVY == set()


def test_the_package_itself_needs_the_standard_library_only() -> None:
    third_party = loaded_by("import vecload") - loaded_by("") - set(sys.stdlib_module_names) - {"vecload"}
    assert third_party == set()


@pytest.mark.parametrize("verb", ["sync", "search", "status", "connectors", "init"])
def test_a_verb_shows_its_help_without_the_extras(verb: str) -> None:
    """Imports of what only an extra installs are made to fail, as on a machine without it."""
    code = f"""
import contextlib, io, sys
for name in {sorted(HEAVY)!r}:
    if name in ("torch", "vllm", "transformers", "ray", "qdrant_client", "pymilvus", "psycopg", "pgvector", "lxml",
                "pypdfium2"):
        sys.modules[name] = None
from vecload.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
    main(["{verb}", "--help"])
assert "Usage: vecload" in out.getvalue() or "{verb} [OPTIONS]" in out.getvalue(), out.getvalue()
"""
    assert "vecload" in loaded_by(code)
