"""What Qdrant's errors mean.

A server tells errors by gRPC status (or HTTP status). How they map: a rate limit and a lack of memory or disk come as
RESOURCE_EXHAUSTED, the former with `retry-after`; a request over the size limit as OUT_OF_RANGE; bad points (width,
strict mode) as INVALID_ARGUMENT; "service internal error" as INTERNAL, among them consistency errors that ask for a
retry, so INTERNAL is tried again.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from vecload.connectorkit import Fault

_TRANSIENT = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED", "INTERNAL", "UNKNOWN", "RESOURCE_EXHAUSTED"}
_REJECTED = {"INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"}


def server_fault(error: Exception, where: str) -> Fault | None:
    """`where` names the server and the collection. None: not an error of the server."""
    import grpc  # type: ignore[import-untyped]  # grpcio ships no types
    from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

    if isinstance(error, ResourceExhaustedResponse):
        return Fault("transient", f"{where} is limiting the rate of requests.", retry_after=error.retry_after_s)
    if isinstance(error, UnexpectedResponse):
        return _http_fault(error.status_code or 0, _detail(error.content.decode("utf-8", "replace")), where)
    if isinstance(error, ResponseHandlingException):
        return Fault("transient", f"{where} is out of reach: {_detail(str(error.source))}.")
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return _grpc_fault(error, where)
    return None


def _grpc_fault(error: Any, where: str) -> Fault:
    status = error.code().name
    detail = _detail(error.details() or "")
    if status == "UNAVAILABLE":
        return Fault("transient", f"{where} is out of reach: {detail}.")
    if status in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return Fault("permanent", f"{where} refused the API key (sink.api_key or QDRANT_API_KEY): {detail}.")
    if status == "RESOURCE_EXHAUSTED" and "larger than max" in detail:
        return Fault("rejected", f"{where} does not take a request of this size: {detail}.")
    if status in _TRANSIENT:
        return Fault("transient", f"{where} answered {status}: {detail}.")
    if status in _REJECTED:
        return Fault("rejected", f"{where} rejected the points: {detail}.")
    return Fault("permanent", f"{where} answered {status}: {detail}.")


def _http_fault(status: int, detail: str, where: str) -> Fault:
    if status in (401, 403):
        return Fault("permanent", f"{where} refused the API key (sink.api_key or QDRANT_API_KEY): HTTP {status}.")
    if status in (408, 429) or status >= 500:
        return Fault("transient", f"{where} answered HTTP {status}: {detail}.")
    if status in (400, 413, 422):
        return Fault("rejected", f"{where} rejected the points: {detail}.")
    return Fault("permanent", f"{where} answered HTTP {status}: {detail}.")


def folder_fault(error: Exception, where: str) -> Fault | None:
    """The embedded client raises ValueError for bad points; nothing about a folder passes by waiting."""
    if isinstance(error, (sqlite3.Error, OSError)):
        return Fault("permanent", f"{where} cannot be written or read: {_detail(str(error))}.")
    if isinstance(error, ValueError):
        return Fault("rejected", f"{where} rejected the points: {_detail(str(error))}.")
    return None


def _detail(text: str) -> str:
    return " ".join(text.split())[:300].rstrip(".")
