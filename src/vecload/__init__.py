"""vecload keeps vector collections in step with document sources.

    import vecload

    report = vecload.sync(source="./docs", sink="qdrant:./vectors", model="Qwen/Qwen3-Embedding-0.6B")
    hits = vecload.search("How do I reset my password?", sink="qdrant:./vectors")

Importing it loads nothing heavy: each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vecload._version import __version__

if TYPE_CHECKING:
    from vecload.documents import Document, Hit
    from vecload.embedder import Embedder
    from vecload.errors import VecloadError
    from vecload.library import sync
    from vecload.report.run_report import RunReport
    from vecload.searching import search

__all__ = ["Document", "Embedder", "Hit", "RunReport", "VecloadError", "__version__", "search", "sync"]

_HOMES = {
    "Document": "vecload.documents",
    "Embedder": "vecload.embedder",
    "Hit": "vecload.documents",
    "RunReport": "vecload.report.run_report",
    "VecloadError": "vecload.errors",
    "search": "vecload.searching",
    "sync": "vecload.library",
}


class _Package(ModuleType):
    """Importing the submodule `vecload.sync` must not hide the function `vecload.sync`, as it else would."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vecload' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
