"""What Qdrant's errors mean.

Read from the server's source, version 1.19 (`StorageError` in lib/storage/src/content_manager/errors.rs; its gRPC
status in lib/storage/src/content_manager/conversions.rs, its HTTP status in src/actix/helpers.rs):

| error                | gRPC                | HTTP | comes from                                        | here      |
| -------------------- | ------------------- | ---- | ------------------------------------------------- | --------- |
| BadInput, BadRequest | INVALID_ARGUMENT    | 400  | wrong width, a payload not JSON, strict mode      | rejected  |
| NotFound             | NOT_FOUND           | 404  | no such collection                                | permanent |
| AlreadyExists        | ALREADY_EXISTS      | 409  | a collection of that name                         | permanent |
| ServiceError         | INTERNAL            | 500  | too few replicas, out of memory, recovery mode    | transient |
| ... "No space left"  | INTERNAL            | 500  | the disk has no room for the write-ahead log      | permanent |
| Locked               | FAILED_PRECONDITION | 403  | writes were locked by an administrator            | permanent |
| PreconditionFailed   | FAILED_PRECONDITION | 500  | a shard that is being moved or recovered          | transient |
| Timeout              | DEADLINE_EXCEEDED   | 408  | a write that was waited for and took too long     | transient |
| ShardUnavailable     | UNAVAILABLE         | 503  | a shard that is loading                           | transient |
| RateLimitExceeded    | RESOURCE_EXHAUSTED  | 429  | strict mode's rates; retry-after in whole seconds | transient |
| InsufficientStorage  | RESOURCE_EXHAUSTED  | 507  | a node's quota of memory or disk is used up       | permanent |
| Forbidden            | PERMISSION_DENIED   | 403  | a key that may not write (src/tonic/auth.rs)      | permanent |
| no or a wrong key    | UNAUTHENTICATED     | 401  | src/tonic/auth.rs, src/actix/auth.rs              | permanent |

Strict mode's limits on a whole collection ("Max points count limit of 5 reached!", update.rs and mod.rs in
lib/collection/src/operations/verification) also are bad requests, but no other point would pass either: permanent.

A body over `service.max_request_size_mb` (32 by default, config/config.yaml) is HTTP 400 "... larger than allowed
(limit: ...)" (src/actix/mod.rs), or 413 from a proxy. Over gRPC 1.19 sets no limit (src/tonic/mod.rs); where a proxy
or another version does, it answers OUT_OF_RANGE "decoded message length too large" or RESOURCE_EXHAUSTED "larger than
max". All of these are rejected: a smaller request may pass. So is a request over the whole minute's rate ("please try
to split your request", without retry-after; lib/common/common/src/rate_limiting.rs).
"""

from __future__ import annotations

import sqlite3
from typing import Any

from vecload.connectorkit import Fault

_TRANSIENT = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED", "INTERNAL", "UNKNOWN", "RESOURCE_EXHAUSTED"}
_REJECTED = {"INVALID_ARGUMENT", "OUT_OF_RANGE"}
_TOO_LARGE = ("larger than max", "try to split your request")
_FULL = ("Insufficient storage", "No space left", "Resident memory usage is at")


def server_fault(error: Exception, where: str) -> Fault | None:
    """`where` names the server and the collection. None: not an error of the server."""
    import grpc  # type: ignore[import-untyped]  # grpcio ships no types
    from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

    if isinstance(error, ResourceExhaustedResponse):
        return Fault("transient", f"{where} is limiting the rate of requests.", retry_after=error.retry_after_s)
    if isinstance(error, UnexpectedResponse):
        return _http_fault(error.status_code or 0, _detail(error.content.decode("utf-8", "replace")), where)
    if isinstance(error, ResponseHandlingException):
        return Fault("transient", f"{where} is out of reach: {_detail(str(error.source))}.")
    if isinstance(error, QdrantException):
        # A Retry-After that is a date, as a proxy may send: the client takes only whole seconds.
        return Fault("transient", f"{where} is limiting the rate of requests.")
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
    if status == "RESOURCE_EXHAUSTED" and any(words in detail for words in _TOO_LARGE):
        return Fault("rejected", f"{where} does not take a request of this size: {detail}.")
    if _is_full(detail):
        return Fault("permanent", f"{where} takes no more data: {detail}.")
    if status == "FAILED_PRECONDITION":
        locked = "Storage locked" in detail
        return Fault("permanent" if locked else "transient", f"{where} answered {status}: {detail}.")
    if status in _TRANSIENT:
        return Fault("transient", f"{where} answered {status}: {detail}.")
    if status in _REJECTED:
        return Fault("rejected", f"{where} rejected the request: {detail}.")
    return Fault("permanent", f"{where} answered {status}: {detail}.")


def _http_fault(status: int, detail: str, where: str) -> Fault:
    if status in (401, 403) and "Storage locked" not in detail:
        return Fault("permanent", f"{where} refused the API key (sink.api_key or QDRANT_API_KEY): HTTP {status}.")
    if _is_full(detail) or status == 507:
        return Fault("permanent", f"{where} takes no more data: {detail}.")
    if status == 429 and any(words in detail for words in _TOO_LARGE):
        return Fault("rejected", f"{where} does not take a request of this size: {detail}.")
    if status in (408, 429) or status >= 500:
        return Fault("transient", f"{where} answered HTTP {status}: {detail}.")
    if status in (400, 413, 422):
        return Fault("rejected", f"{where} rejected the request: {detail}.")
    return Fault("permanent", f"{where} answered HTTP {status}: {detail}.")


def _is_full(detail: str) -> bool:
    return any(words in detail for words in _FULL) or ("Max " in detail and " reached!" in detail)


def folder_fault(error: Exception, where: str) -> Fault | None:
    """The embedded client raises ValueError for bad points; nothing about a folder passes by waiting."""
    if isinstance(error, (sqlite3.Error, OSError)):
        return Fault("permanent", f"{where} cannot be written or read: {_detail(str(error))}.")
    if isinstance(error, ValueError):
        return Fault("rejected", f"{where} rejected the points: {_detail(str(error))}.")
    return None


def _detail(text: str) -> str:
    return " ".join(text.split())[:300].rstrip(".")
