"""Where the points live: a folder (Milvus Lite, in this process) or a server.

Both are spoken to through the same client; they differ in how they are opened, in locking and in what an error means.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vecload.connectorkit import FIRST_PATIENCE, Fault
from vecload.contracts import SinkCapabilities
from vecload.errors import MissingDependencyError, SinkError, UsageError

from .errors import lite_fault, server_fault
from .schema import MAX_DIMENSIONS, MAX_TEXT_BYTES

if TYPE_CHECKING:
    from pymilvus import MilvusClient

    from .settings import MilvusSettings

T = TypeVar("T")


class Store(Protocol):
    id: str
    capabilities: SinkCapabilities
    page: int
    """Points per page of a scan, where an answer may be so large."""
    timeout: float | None
    """Seconds for one request; None: as long as it takes."""

    def exists(self) -> bool:
        """False when nothing can be there yet, told without writing anything."""

    def run(self, request: Callable[[MilvusClient], T]) -> T: ...

    def fault(self, error: Exception, where: str) -> Fault | None: ...

    def close(self) -> None: ...


class Lite:
    """A folder, held by one process at a time (Milvus Lite locks it)."""

    capabilities = SinkCapabilities(
        max_request_bytes=16 << 20,
        max_request_points=1_000,
        concurrent_writers=1,
        max_text_bytes=MAX_TEXT_BYTES,
        max_dimensions=MAX_DIMENSIONS,
        payload_update=False,
        aliases=True,
    )
    # Each page sorts all ids, so few large pages.
    page = 8_192
    timeout: float | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = f"milvus:{path}"
        self._lock = threading.RLock()
        self._client: MilvusClient | None = None
        self._stop: Callable[[], None] | None = None

    def exists(self) -> bool:
        return (self.path / "collections").is_dir()

    def run(self, request: Callable[[MilvusClient], T]) -> T:
        # Writes beside each other harm a collection of Milvus Lite.
        with self._lock:
            return _quietly(request, self._open())

    def _open(self) -> MilvusClient:
        if self._client is None:
            if self.path.is_file():
                raise UsageError(
                    f"{self.path} is a file, maybe of Milvus Lite 2, and Milvus Lite 3 keeps a folder; name a new one."
                )
            if not self.exists() and self.path.exists() and any(self.path.iterdir()):
                raise UsageError(f"{self.path} is no Milvus Lite folder and holds other files; choose a new one.")
            address = self._serve()
            self._client = _quietly(_connect, {"uri": address, "timeout": FIRST_PATIENCE})
        return self._client

    def _serve(self) -> str:
        """Starts Milvus Lite in this process, as the client would for a path, and so that it can be stopped again."""
        try:
            from milvus_lite import DataDirLockedError
            from milvus_lite.adapter.grpc.server import start_server_in_thread
        except ImportError:
            raise MissingDependencyError("Milvus Lite (the milvus:./milvus.db sink)", "milvus") from None
        # It reports each refused request with a traceback; what matters of it comes back as an error.
        logging.getLogger("milvus_lite").addHandler(logging.NullHandler())
        try:
            server, database, port = start_server_in_thread(str(self.path))
        except DataDirLockedError as error:
            raise SinkError(
                f"The Milvus Lite folder {self.path} is in use, by another process or another client in this one; "
                "wait until that one has ended."
            ) from error
        except OSError as error:
            raise SinkError(
                f"The Milvus Lite folder {self.path} cannot be opened: {error.strerror or error}."
            ) from error

        def stop() -> None:
            server.stop(grace=None).wait()
            database.close()

        self._stop = stop
        return f"http://127.0.0.1:{port}"

    def fault(self, error: Exception, where: str) -> Fault | None:
        return lite_fault(error, where)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None
            if self._stop is not None:
                self._stop()
                self._stop = None


class Server:
    """A server, over gRPC."""

    # The server's own limit is 64 MiB a request.
    capabilities = SinkCapabilities(
        max_request_bytes=16 << 20,
        max_request_points=1_000,
        concurrent_writers=4,
        max_text_bytes=MAX_TEXT_BYTES,
        max_dimensions=MAX_DIMENSIONS,
        payload_update=False,
        aliases=True,
    )
    # Each page waits for the server's clock to tick.
    page = 4_096

    def __init__(self, url: str, token: str, settings: MilvusSettings) -> None:
        self.id = f"milvus+{url}" + (f"/{settings.database}" if settings.database else "")
        self.timeout: float | None = settings.timeout
        self._options = {
            "uri": url,
            "token": token,
            "db_name": settings.database,
            # Of connecting; a lost connection is made anew within it too.
            "timeout": min(settings.timeout, FIRST_PATIENCE),
        }
        self._lock = threading.Lock()
        self._client: MilvusClient | None = None

    def exists(self) -> bool:
        return True

    def run(self, request: Callable[[MilvusClient], T]) -> T:
        with self._lock:
            if self._client is None:
                self._client = _quietly(_connect, self._options)
            client = self._client
        return _quietly(request, client)

    def fault(self, error: Exception, where: str) -> Fault | None:
        return server_fault(error, where)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


def _connect(options: dict[str, Any]) -> MilvusClient:
    from pymilvus import MilvusClient

    # Not the connection that the client shares between all its users in a process: that one is never closed.
    return MilvusClient(**options, dedicated=True)


# ------------------------------------------------------------ the client's own lines on stderr

_within = threading.local()


class _FromElsewhere(logging.Filter):
    """Drops what the client logs on behalf of a thread that is in :func:`_quietly`."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_within, "quiet", False)


_from_elsewhere = _FromElsewhere()


def _quietly(call: Callable[[Any], T], argument: Any) -> T:
    """`call(argument)` without the client's lines: it prints every error with a traceback, the retried ones too."""
    for name in ("pymilvus", "pymilvus.milvus_client"):
        for handler in logging.getLogger(name).handlers:
            handler.addFilter(_from_elsewhere)
    _within.quiet = True
    try:
        return call(argument)
    finally:
        _within.quiet = False
