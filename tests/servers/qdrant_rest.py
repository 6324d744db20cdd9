"""Qdrant's REST form for tests: the paths that the sink uses, on http.server over the client's in-memory mode.

It records each request, so that tests see what a server would be sent. Like `tests.servers.qdrant_grpc` it says
nothing of how a real server behaves.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, TypeAdapter
from qdrant_client import models
from qdrant_client.local.qdrant_local import QdrantLocal

MAX_REQUEST_BYTES = 32 << 20
"""`service.max_request_size_mb` of a server's default configuration."""


@dataclass
class Answer:
    """What the next request is answered with: a status, a text, and a Retry-After."""

    status: int
    error: str = "made to fail"
    retry_after: str | None = None


@dataclass
class Request:
    method: str
    path: str
    """Without the query."""
    query: str
    body: Any
    size: int


@dataclass
class RestServer:
    url: str
    local: QdrantLocal
    requests: list[Request] = field(default_factory=list)
    failures: list[Answer] = field(default_factory=list)
    """Consumed one a request, first to last."""

    def sent(self, method: str, path: str) -> list[Any]:
        """The bodies of the requests to one path."""
        return [request.body for request in self.requests if (request.method, request.path) == (method, path)]


def _answer(local: QdrantLocal, method: str, parts: list[str], body: Any) -> Any:
    match method, *parts:
        case "GET", "aliases":
            return local.get_aliases()
        case "POST", "collections", "aliases":
            actions = TypeAdapter(models.ChangeAliasesOperation).validate_python(body).actions
            return local.update_collection_aliases(actions)
        case "GET", "collections", name, "exists":
            return {"exists": local.collection_exists(name)}
        case "GET", "collections", name:
            info = local.get_collection(name)
            return info.model_copy(update={"indexed_vectors_count": info.points_count})
        case "PUT", "collections", name:
            create = models.CreateCollection.model_validate(body)
            return local.create_collection(name, vectors_config=create.vectors, metadata=create.metadata)
        case "PATCH", "collections", name:
            models.UpdateCollection.model_validate(body)
            return local.collection_exists(name)
        case "PUT", "collections", name, "index":
            models.CreateFieldIndex.model_validate(body)
            return {"operation_id": 0, "status": "completed"}
        case "PUT", "collections", name, "points":
            return local.upsert(name, models.PointsList.model_validate(body).points)
        case "POST", "collections", name, "points":
            return local.retrieve(
                name, body["ids"], with_payload=body["with_payload"], with_vectors=body["with_vector"]
            )
        case "POST", "collections", name, "points", "scroll":
            scroll = models.ScrollRequest.model_validate(body)
            points, following = local.scroll(
                name, scroll_filter=scroll.filter, limit=scroll.limit or 10, offset=scroll.offset, with_payload=True
            )
            return {"points": points, "next_page_offset": following}
        case "POST", "collections", name, "points", "count":
            return local.count(name, exact=True)
        case "POST", "collections", name, "points", "delete":
            return local.delete(name, models.PointIdsList.model_validate(body))
        case "POST", "collections", name, "points", "batch":
            operations = models.UpdateOperations.model_validate(body).operations
            return local.batch_update_points(name, operations)
        case "POST", "collections", name, "points", "query":
            request = models.QueryRequest.model_validate(body)
            query: Any = request.query
            return local.query_points(
                name, query=query, using=request.using, query_filter=request.filter, limit=request.limit or 10
            )
        case _:
            raise NotImplementedError(f"{method} {parts}")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


@contextmanager
def rest_server() -> Iterator[RestServer]:
    """A running server, empty, for one test or more."""
    local = QdrantLocal(":memory:")
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            content = self.rfile.read(size)
            address = urlsplit(self.path)
            body = json.loads(content) if content else None
            with lock:
                state.requests.append(Request(self.command, unquote(address.path), address.query, body, size))
                if state.failures:
                    failure = state.failures.pop(0)
                    self._send(failure.status, {"status": {"error": failure.error}}, failure.retry_after)
                    return
                if size > MAX_REQUEST_BYTES:
                    error = f"JSON payload ({size} bytes) is larger than allowed (limit: {MAX_REQUEST_BYTES} bytes)."
                    self._send(400, {"status": {"error": error}})
                    return
                try:
                    parts = [unquote(part) for part in address.path.strip("/").split("/")]
                    result = _plain(_answer(local, self.command, parts, body))
                except ValueError as error:
                    self._send(404 if "not found" in str(error) else 400, {"status": {"error": str(error)}})
                    return
            self._send(200, {"result": result, "status": "ok", "time": 0.0})

        do_GET = do_PUT = do_POST = do_PATCH = _handle

        def _send(self, status: int, answer: Any, retry_after: str | None = None) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if retry_after is not None:
                self.send_header("Retry-After", retry_after)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state = RestServer(url=f"qdrant+http://127.0.0.1:{server.server_port}", local=local)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        local.close()
