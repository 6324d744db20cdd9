"""Qdrant's wire form for tests: a gRPC server on the client's own generated stubs, over its in-memory mode.

It proves that our requests fit the schema and that what comes back is read right. It does not prove what a real server
does: its limits, status codes, waiting and ordering. For that set QDRANT_URL, and the suite runs against it as well.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
from qdrant_client import grpc as api
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc, grpc_to_payload
from qdrant_client.grpc.collections_service_pb2_grpc import CollectionsServicer, add_CollectionsServicer_to_server
from qdrant_client.grpc.points_service_pb2_grpc import PointsServicer, add_PointsServicer_to_server
from qdrant_client.local.qdrant_local import QdrantLocal

T = TypeVar("T")

MAX_REQUEST_BYTES = 32 << 20
"""What Qdrant's documentation gives as the limit of a request."""

_DONE = api.PointsOperationResponse(result=api.UpdateResult(operation_id=0, status=api.UpdateStatus.Completed))


@dataclass
class Failure:
    """What the next request is answered with, instead of an answer."""

    code: grpc.StatusCode
    detail: str = "made to fail"
    retry_after: int | None = None


@dataclass
class State:
    """How far the optimizer is; `error` is what an optimizer failed with."""

    status: Any
    indexed: int = 0
    points: int = 0
    error: str = ""


@dataclass
class WireServer:
    url: str
    grpc_port: int
    local: QdrantLocal
    start: Callable[[], None]
    stop: Callable[[], None]
    """Ends the server at once, as a restart does; what it holds stays for the next `start`."""
    failures: list[Failure] = field(default_factory=list)
    """Consumed one a request, first to last."""
    requests: list[str] = field(default_factory=list)
    """The names of the requests that came in."""
    messages: list[Any] = field(default_factory=list)
    """The requests that reached their handler, as protobuf messages."""
    states: list[State] = field(default_factory=list)
    """What a collection's info says of the index: consumed one a look, the last one stays. Empty: all is done."""

    def sent(self, kind: type[T]) -> list[T]:
        """The messages of one type, in order of their arrival."""
        return [message for message in self.messages if isinstance(message, kind)]

    api_key: str | None = None


class _Interceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # grpcio ships no types
    """Counts requests, asks for the API key, answers with the failures that a test ordered."""

    def __init__(self, server: WireServer) -> None:
        self.server = server

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        self.server.requests.append(details.method.rpartition("/")[2])
        key = dict(details.invocation_metadata).get("api-key")
        if self.server.api_key is not None and key != self.server.api_key:
            return self._failing(handler, Failure(grpc.StatusCode.UNAUTHENTICATED, "Invalid API key"))
        if self.server.failures:
            return self._failing(handler, self.server.failures.pop(0))
        return self._recording(handler)

    def _recording(self, handler: Any) -> Any:
        def answer(request: Any, context: Any) -> Any:
            self.server.messages.append(request)
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)

    @staticmethod
    def _failing(handler: Any, failure: Failure) -> Any:
        def fail(request: Any, context: Any) -> None:
            if failure.retry_after is not None:
                context.set_trailing_metadata((("retry-after", str(failure.retry_after)),))
            context.abort(failure.code, failure.detail)

        return grpc.unary_unary_rpc_method_handler(fail, handler.request_deserializer, handler.response_serializer)


class _Collections(CollectionsServicer):
    def __init__(self, call: Callable[..., Any], states: list[State]) -> None:
        self.call = call
        self.states = states

    def CollectionExists(self, request: Any, context: Any) -> Any:
        exists = self.call(context, "collection_exists", request.collection_name)
        return api.CollectionExistsResponse(result=api.CollectionExists(exists=exists))

    def Create(self, request: Any, context: Any) -> Any:
        vectors = GrpcToRest.convert_vectors_config(request.vectors_config)
        metadata = grpc_to_payload(request.metadata)
        result = self.call(
            context, "create_collection", request.collection_name, vectors_config=vectors, metadata=metadata
        )
        return api.CollectionOperationResponse(result=result)

    def Get(self, request: Any, context: Any) -> Any:
        info = RestToGrpc.convert_collection_info(self.call(context, "get_collection", request.collection_name))
        info.indexed_vectors_count = info.points_count
        if self.states:
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            info.status, info.indexed_vectors_count, info.points_count = state.status, state.indexed, state.points
            info.optimizer_status.ok, info.optimizer_status.error = not state.error, state.error
        return api.GetCollectionInfoResponse(result=info)

    def Update(self, request: Any, context: Any) -> Any:
        # The in-memory mode has no index and no optimizer.
        self.call(context, "get_collection", request.collection_name)
        return api.CollectionOperationResponse(result=True)

    def ListAliases(self, request: Any, context: Any) -> Any:
        aliases = self.call(context, "get_aliases").aliases
        return api.ListAliasesResponse(aliases=map(RestToGrpc.convert_alias_description, aliases))

    def UpdateAliases(self, request: Any, context: Any) -> Any:
        operations = [GrpcToRest.convert_alias_operations(action) for action in request.actions]
        result = self.call(context, "update_collection_aliases", operations)
        return api.CollectionOperationResponse(result=result)


class _Points(PointsServicer):
    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def Upsert(self, request: Any, context: Any) -> Any:
        points = [GrpcToRest.convert_point_struct(point) for point in request.points]
        self.call(context, "upsert", request.collection_name, points)
        return _DONE

    def Delete(self, request: Any, context: Any) -> Any:
        selector = GrpcToRest.convert_points_selector(request.points)
        self.call(context, "delete", request.collection_name, selector)
        return _DONE

    def UpdateBatch(self, request: Any, context: Any) -> Any:
        operations = [GrpcToRest.convert_points_update_operation(operation) for operation in request.operations]
        self.call(context, "batch_update_points", request.collection_name, operations)
        return api.UpdateBatchResponse(result=[_DONE.result] * len(operations))

    def CreateFieldIndex(self, request: Any, context: Any) -> Any:
        # The in-memory mode has no payload indexes and would only warn.
        self.call(context, "get_collection", request.collection_name)
        return _DONE

    def Get(self, request: Any, context: Any) -> Any:
        ids = [GrpcToRest.convert_point_id(point_id) for point_id in request.ids]
        found = self.call(context, "retrieve", request.collection_name, ids, **_selectors(request))
        for record in found:
            record.payload = record.payload or {}  # the conversion takes no None
        return api.GetResponse(result=map(RestToGrpc.convert_record, found))

    def Scroll(self, request: Any, context: Any) -> Any:
        offset = GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None
        found, following = self.call(
            context,
            "scroll",
            request.collection_name,
            scroll_filter=_filter(request),
            limit=request.limit,
            offset=offset,
            **_selectors(request),
        )
        return api.ScrollResponse(
            result=map(RestToGrpc.convert_record, found),
            next_page_offset=None if following is None else RestToGrpc.convert_extended_point_id(following),
        )

    def Count(self, request: Any, context: Any) -> Any:
        counted = self.call(context, "count", request.collection_name, exact=request.exact)
        return api.CountResponse(result=RestToGrpc.convert_count_result(counted))

    def Query(self, request: Any, context: Any) -> Any:
        found = self.call(
            context,
            "query_points",
            request.collection_name,
            query=GrpcToRest.convert_query(request.query),
            query_filter=_filter(request),
            limit=request.limit,
            using=request.using if request.HasField("using") else None,
            **_selectors(request),
        )
        return api.QueryResponse(result=map(RestToGrpc.convert_scored_point, found.points))


def _filter(request: Any) -> Any:
    return GrpcToRest.convert_filter(request.filter) if request.HasField("filter") else None


def _selectors(request: Any) -> dict[str, Any]:
    return {
        "with_payload": GrpcToRest.convert_with_payload_selector(request.with_payload),
        "with_vectors": GrpcToRest.convert_with_vectors_selector(request.with_vectors)
        if request.HasField("with_vectors")
        else False,
    }


@contextmanager
def wire_server() -> Iterator[WireServer]:
    """A running server, empty, for one test or more."""
    local = QdrantLocal(":memory:")
    lock = threading.Lock()

    def call(context: Any, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            with lock:
                return getattr(local, method)(*arguments, **options)
        except ValueError as error:
            missing = "not found" in str(error)
            context.abort(grpc.StatusCode.NOT_FOUND if missing else grpc.StatusCode.INVALID_ARGUMENT, str(error))

    port = _free_port()
    states: list[State] = []
    running: list[Any] = []

    def start() -> None:
        options = [("grpc.max_receive_message_length", MAX_REQUEST_BYTES), ("grpc.so_reuseport", 0)]
        server = grpc.server(ThreadPoolExecutor(8), interceptors=[_Interceptor(state)], options=options)
        add_CollectionsServicer_to_server(_Collections(call, states), server)  # type: ignore[no-untyped-call]  # generated
        add_PointsServicer_to_server(_Points(call), server)  # type: ignore[no-untyped-call]  # generated
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        running.append(server)

    def stop() -> None:
        while running:
            running.pop().stop(grace=None).wait()

    url = "qdrant+http://127.0.0.1:1"
    state = WireServer(url=url, grpc_port=port, local=local, start=start, stop=stop, states=states)
    start()
    try:
        yield state
    finally:
        stop()
        local.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
