"""Documents at hand as a source: for a library call inside an indexer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vecload.contracts import SourceCapabilities
from vecload.documents import Container, Document


class IterableSource:
    """One container without a tag: it is always read, once."""

    capabilities = SourceCapabilities(concurrent_reads=1)

    def __init__(self, id: str, documents: Iterable[Document]) -> None:
        self.id = id
        self._documents = documents

    def list(self) -> Iterator[Container]:
        yield Container(key=self.id, tag=None)

    def read(self, container: Container) -> Iterator[Document]:
        yield from self._documents

    def close(self) -> None:
        pass
