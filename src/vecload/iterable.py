"""Documents at hand as a source: for a library call inside an indexer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vecload.contracts import SourceCapabilities
from vecload.documents import Container, Document, Problem
from vecload.errors import UsageError


class IterableSource:
    """One container without a tag: it is always read, once."""

    capabilities = SourceCapabilities(concurrent_reads=1)

    def __init__(self, id: str, documents: Iterable[Document]) -> None:
        self.id = id
        self._documents = documents

    def list(self) -> Iterator[Container]:
        yield Container(key=self.id, tag=None)

    def read(self, container: Container) -> Iterator[Document | Problem]:
        for number, document in enumerate(self._documents):
            if not isinstance(document, Document):
                raise UsageError(
                    f"Item {number} of the documents is a {type(document).__name__}, not a vecload.Document."
                )
            parts = document.key if isinstance(document.key, tuple) else (document.key,)
            if not all(isinstance(part, str | int | float | bool | None) for part in parts):
                raise UsageError(f"The key of item {number} is no str, int, float, bool or None, nor a tuple of these.")
            if isinstance(document.content, str | bytes):
                yield document
            else:
                message = f"The content is a {type(document.content).__name__}, not text or bytes."
                yield Problem(document.key, "not_text", message)

    def close(self) -> None:
        pass
