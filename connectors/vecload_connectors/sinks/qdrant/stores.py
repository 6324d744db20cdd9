"""Where the points live: a folder (qdrant-client's local mode, in this process) or a server.

Both run requests against the same client interface; they differ in locking, in how points are built and in what an
error means.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vecload.connectorkit import Fault
from vecload.contracts import SinkCapabilities
from vecload.documents import VectorBatch
from vecload.errors import SinkError, UsageError

from .errors import folder_fault, server_fault
from .points import REQUEST_BYTES, grpc_points, json_sizes, local_points, parts

if TYPE_CHECKING:
    from qdrant_client.client_base import QdrantBase
    from qdrant_client.local.qdrant_local import QdrantLocal

    from .settings import QdrantSettings

T = TypeVar("T")

MAX_DIMENSIONS = 65_536
"""Of a vector, in a server and in the local mode."""


class Store(Protocol):
    id: str
    capabilities: SinkCapabilities
    page: int
    """Points per page of a scan."""
    indexes_payload: bool

    def exists(self) -> bool:
        """False when nothing can be there yet, told without writing anything."""

    def run(self, request: Callable[[QdrantBase], T], writes: bool = False) -> T: ...

    def upserts(
        self, target: str, batch: VectorBatch, vector_name: str | None
    ) -> Iterator[Callable[[QdrantBase], object]]:
        """The requests that write the points, in the form that this store takes fastest; each for use within `run`.

        Raises RejectedError for a point that no request can hold.
        """

    def fault(self, error: Exception, where: str) -> Fault | None: ...

    def close(self) -> None: ...


class Folder:
    """A folder, held by one process at a time (the client locks it)."""

    capabilities = SinkCapabilities(
        max_request_bytes=16 << 20,
        max_request_points=1_000,
        concurrent_writers=1,
        max_dimensions=MAX_DIMENSIONS,
        aliases=True,
    )
    # Each page sorts all ids and filters all payloads, so few large pages.
    page = 8_192
    indexes_payload = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = f"qdrant:{path}"
        self._lock = threading.RLock()
        self._local: QdrantLocal | None = None

    def exists(self) -> bool:
        return (self.path / "meta.json").exists()

    def run(self, request: Callable[[QdrantBase], T], writes: bool = False) -> T:
        with self._lock:
            local = self._open()
            if not writes:
                return request(local)
            self._pragma(local, "journal_mode=WAL")
            self._pragma(local, "synchronous=NORMAL")
            result = request(local)
            self._pragma(local, "wal_checkpoint")
            return result

    @staticmethod
    def _pragma(local: QdrantLocal, pragma: str) -> None:
        """The client commits each point on its own, and with SQLite's defaults each commit waits for the disk twice:
        10,000 points take a minute or more. With a write-ahead log that is synced once, at the end of a request, they
        take a second, and an acknowledged request still survives a power cut.
        """
        for collection in local.collections.values():
            if collection.storage is not None:
                collection.storage.storage.execute(f"PRAGMA {pragma}").fetchall()

    def _open(self) -> QdrantLocal:
        if self._local is not None:
            return self._local
        from qdrant_client.local.qdrant_local import QdrantLocal

        if not self.exists() and self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise UsageError(f"{self.path} is not a Qdrant folder and holds other files; choose an empty or a new one.")
        try:
            # Safe: every call goes through `run`, under the lock.
            self._local = QdrantLocal(str(self.path), force_disable_check_same_thread=True)
        except RuntimeError as error:
            if "already accessed" not in str(error):
                raise
            raise SinkError(
                f"The Qdrant folder {self.path} is in use by another process; wait until that one has ended."
            ) from error
        except (OSError, ValueError, KeyError) as error:
            raise SinkError(f"The Qdrant folder {self.path} cannot be opened: {error}.") from error
        return self._local

    def upserts(
        self, target: str, batch: VectorBatch, vector_name: str | None
    ) -> Iterator[Callable[[QdrantBase], object]]:
        points = local_points(batch, vector_name)
        yield lambda client: client.upsert(target, points, wait=True)

    def fault(self, error: Exception, where: str) -> Fault | None:
        return folder_fault(error, where)

    def close(self) -> None:
        with self._lock:
            if self._local is not None:
                self._local.close()
                self._local = None


class Server:
    """A server, over gRPC or REST."""

    # The core's requests, by its own estimate; `upserts` cuts them again by their encoded size.
    page = 500
    indexes_payload = True

    def __init__(self, url: str, settings: QdrantSettings) -> None:
        self.id = f"qdrant+{url}"
        self.capabilities = SinkCapabilities(
            max_request_bytes=REQUEST_BYTES,
            max_request_points=1_000,
            concurrent_writers=4,
            max_dimensions=MAX_DIMENSIONS,
            aliases=True,
            deferred_index=settings.index == "defer",
        )
        self._url = url
        self._settings = settings
        self._lock = threading.Lock()
        self._client: QdrantBase | None = None

    def exists(self) -> bool:
        return True

    def run(self, request: Callable[[QdrantBase], T], writes: bool = False) -> T:
        return request(self._connect())

    def _connect(self) -> QdrantBase:
        with self._lock:
            if self._client is None:
                from qdrant_client import QdrantClient

                key = self._settings.api_key
                with warnings.catch_warnings():
                    # Behind a proxy or on one host a key over plain HTTP is a choice that the URL states.
                    warnings.filterwarnings("ignore", message="Api key is used with an insecure connection")
                    self._client = QdrantClient(
                        url=self._url,
                        port=None,
                        api_key=key.get_secret_value() if key else None,
                        prefer_grpc=self._settings.prefer_grpc,
                        grpc_port=self._settings.grpc_port,
                        timeout=self._settings.timeout,
                        pool_size=self.capabilities.concurrent_writers,
                        # The check asks the REST port in a thread and only prints a warning.
                        check_compatibility=False,
                        # Else a client that saw an outage waits up to two minutes before it looks again.
                        grpc_options={"grpc.max_reconnect_backoff_ms": 10_000},
                    )
            return self._client

    def upserts(
        self, target: str, batch: VectorBatch, vector_name: str | None
    ) -> Iterator[Callable[[QdrantBase], object]]:
        if not self._settings.prefer_grpc:
            for part in parts(batch, json_sizes(batch)):
                few = VectorBatch(batch.ids[part], batch.vectors[part], batch.payloads[part])
                points = local_points(few, vector_name)
                yield partial(_upsert_json, target=target, points=points)
            return
        encoded = grpc_points(batch, vector_name)
        for part in parts(batch, [point.ByteSize() for point in encoded]):
            yield partial(self._upsert_grpc, target=target, points=encoded[part])

    def _upsert_grpc(self, client: QdrantBase, target: str, points: list[Any]) -> object:
        from qdrant_client import QdrantClient, grpc

        assert isinstance(client, QdrantClient)
        request = grpc.UpsertPoints(collection_name=target, wait=True, points=points)
        return client.grpc_points.Upsert(request, timeout=self._settings.timeout)

    def fault(self, error: Exception, where: str) -> Fault | None:
        return server_fault(error, where)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


def _upsert_json(client: QdrantBase, target: str, points: list[Any]) -> object:
    return client.upsert(target, points, wait=True)
