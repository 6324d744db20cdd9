"""What a run did: counted while it goes, shown by the progress display, written as JSON at the end."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class DocumentCounts:
    listed: int = 0
    read: int = 0
    unchanged: int = 0
    new: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    withheld: int = 0
    failed: int = 0


@dataclass
class ChunkCounts:
    unchanged: int = 0
    embedded: int = 0
    """Points written with a vector that the engine computed for them."""
    reused: int = 0
    """Points written with a vector that was not computed for them in this run: of an equal text."""
    payload_updated: int = 0
    upserted: int = 0
    deleted: int = 0


@dataclass
class StageTimes:
    seconds: float = 0.0
    """Time at work, summed over the threads of the stage."""
    wait_seconds: float = 0.0
    """Time spent waiting for the stage before or after it."""


@dataclass
class RunReport:
    """Counts of one run. Several threads add to it: use `add`, `skip`, `working` and `waiting`."""

    job: str | None = None
    source: str = ""
    sink: str = ""
    model: str = ""
    ledger: str = ""
    documents: DocumentCounts = field(default_factory=DocumentCounts)
    chunks: ChunkCounts = field(default_factory=ChunkCounts)
    dead_letters: int = 0
    truncated: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    """Fed to the engine, with prompts and special tokens."""
    seconds: float = 0.0
    stages: dict[str, StageTimes] = field(default_factory=dict)
    exit_code: int = 0
    error: str | None = None
    next_command: str | None = None
    """What a person should run when deletes were withheld."""

    # For the progress display only.
    state: str = "opening"
    listing_complete: bool = False
    documents_done: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()

    @property
    def elapsed(self) -> float:
        return self.seconds or time.monotonic() - self._started

    @property
    def tokens_per_second(self) -> float:
        """Tokens over the time in which the engine had work, not over the whole run."""
        embed = self.stages.get("embed")
        return self.tokens / embed.seconds if embed and embed.seconds > 0 else 0.0

    def add(self, section: DocumentCounts | ChunkCounts, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                setattr(section, name, getattr(section, name) + count)

    def skip(self, reason: str, count: int = 1) -> None:
        with self._lock:
            self.skipped[reason] += count

    def count(self, *, tokens: int = 0, truncated: int = 0, documents_done: int = 0) -> None:
        with self._lock:
            self.tokens += tokens
            self.truncated += truncated
            self.documents_done += documents_done

    @contextmanager
    def working(self, stage: str) -> Iterator[None]:
        """Times a stage at work."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.spent(stage, seconds=time.monotonic() - started)

    @contextmanager
    def waiting(self, stage: str) -> Iterator[None]:
        """Times a stage that waits for its neighbours."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.spent(stage, wait_seconds=time.monotonic() - started)

    def spent(self, stage: str, *, seconds: float = 0.0, wait_seconds: float = 0.0) -> None:
        with self._lock:
            times = self.stages.setdefault(stage, StageTimes())
            times.seconds += seconds
            times.wait_seconds += wait_seconds

    def end(self, exit_code: int, error: str | None = None) -> None:
        self.seconds = time.monotonic() - self._started
        self.exit_code = exit_code
        self.error = error

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values; the keys are public."""
        return {
            "job": self.job,
            "source": self.source,
            "sink": self.sink,
            "model": self.model,
            "ledger": self.ledger,
            "documents": asdict(self.documents),
            "chunks": asdict(self.chunks),
            "dead_letters": self.dead_letters,
            "truncated": self.truncated,
            "skipped": dict(sorted(self.skipped.items())),
            "tokens": self.tokens,
            "seconds": round(self.elapsed, 3),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "stages": {
                name: {"seconds": round(t.seconds, 3), "wait_seconds": round(t.wait_seconds, 3)}
                for name, t in sorted(self.stages.items())
            },
            "exit_code": self.exit_code,
            "error": self.error,
            "next_command": self.next_command,
        }

    def write(self, path: Path) -> None:
        """Writes the report as JSON, whole or not at all."""
        write_json(path, self.to_dict())


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Writes `content` whole or not at all; a device or a pipe, such as /dev/stdout, is written to as it is."""
    text = json.dumps(content, indent=2) + "\n"
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
