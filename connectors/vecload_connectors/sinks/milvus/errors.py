"""What Milvus' errors mean.

A server of 2.3 or newer answers with a code (its source calls the list "merr"): those that are not named here, among
them a node that is away and a channel that is not ready, pass with time. Code 65535 is whatever has no code; Milvus
Lite has codes of its own, with other meanings. Errors of the connection come as gRPC errors, bare or wrapped.
"""

from __future__ import annotations

from typing import Any

from vecload.connectorkit import Fault

_CANNOT_CONNECT = 2
"""The client's own; a server's 2 is that a part of it is not ready."""
_NO_COLLECTION = 100
_NO_DATABASE = 800
_REJECTED = {1100, 1101}
"""A parameter is invalid, or missing: in a write, a value that a field does not take."""
_PERMANENT = {10, 102, 1400, 1600, 2000}
"""Not implemented, too many collections, no privilege, no such alias, a fault in the engine."""
_UNEXPECTED = 65535
_FINAL_WORDS = ("cannot parse expression", "invalid dimension", "permission deny", "auth check failure")

_LITE_ILLEGAL_ARGUMENT = 6
_LITE_NO_COLLECTION = {4, 100}


def server_fault(error: Exception, where: str) -> Fault | None:
    """`where` names the server and the collection. None: not an error of the server."""
    import grpc  # type: ignore[import-untyped]  # grpcio ships no types
    from pymilvus import MilvusException
    from pymilvus.exceptions import DataNotMatchException

    call = _grpc_error(error)
    if call is not None:
        return _grpc_fault(call, where)
    if isinstance(error, grpc.FutureTimeoutError):
        return Fault("transient", f"{where} did not answer in time.")
    if isinstance(error, DataNotMatchException):
        return Fault("rejected", f"{where} cannot take the points: {_line(error)}.")
    if isinstance(error, MilvusException):
        return _code_fault(error, where)
    return None


def _grpc_error(error: BaseException | None) -> Any:
    """The gRPC error itself, which the client wraps in one of its own when it cannot connect."""
    import grpc

    if getattr(error, "code", None) == _CANNOT_CONNECT:
        # The client raises its errors from themselves, so the cause is lost and only the context is left.
        while error is not None and not isinstance(error, grpc.RpcError):
            error = error.__context__
    return error if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call) else None


def _grpc_fault(error: Any, where: str) -> Fault:
    status = error.code().name
    detail = _short(error.details() or "")
    if status == "UNAVAILABLE":
        return Fault("transient", f"{where} is out of reach: {detail}.")
    if status in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return Fault("permanent", f"{where} refused the login (sink.token, or sink.user and sink.password): {detail}.")
    if status == "RESOURCE_EXHAUSTED" and _is_too_large(detail):
        return Fault("rejected", f"{where} does not take requests or answers of this size: {detail}.")
    if status in ("UNIMPLEMENTED", "INVALID_ARGUMENT", "FAILED_PRECONDITION"):
        return Fault("permanent", f"{where} answered {status}: {detail}.")
    return Fault("transient", f"{where} answered {status}: {detail}.")


def _code_fault(error: Any, where: str) -> Fault:
    code, line = error.code, _line(error)
    if code == _NO_COLLECTION:
        return Fault("permanent", f"{where} is not there, it may have been dropped: {line}.")
    if code == _NO_DATABASE or line.startswith("database:"):
        return Fault("permanent", f"{where} has no such database (sink.database): {line}.")
    if _is_too_large(str(error.message)):
        return Fault("rejected", f"{where} does not give answers of this size: {line}.")
    if code in _REJECTED:
        return Fault("rejected", f"{where} rejected the points: {line}.")
    if code in _PERMANENT or (code == _UNEXPECTED and any(words in line.lower() for words in _FINAL_WORDS)):
        return Fault("permanent", f"{where} failed: {line}.")
    return Fault("transient", f"{where} is not ready: {line}.")


def lite_fault(error: Exception, where: str) -> Fault | None:
    """Nothing about a folder passes by waiting."""
    from pymilvus import MilvusException
    from pymilvus.exceptions import DataNotMatchException

    if isinstance(error, OSError):
        return Fault("permanent", f"{where} cannot be written or read: {_short(str(error))}.")
    call = _grpc_error(error)
    if call is not None:
        detail = _short(call.details() or "")
        return Fault("rejected" if _is_too_large(detail) else "permanent", f"{where} failed: {detail}.")
    if not isinstance(error, MilvusException):
        return None
    if isinstance(error, DataNotMatchException) or error.code == _LITE_ILLEGAL_ARGUMENT:
        return Fault("rejected", f"{where} rejected the points: {_line(error)}.")
    if error.code in _LITE_NO_COLLECTION:
        return Fault("permanent", f"{where} is not there, it may have been dropped: {_line(error)}.")
    return Fault("permanent", f"{where} failed: {_line(error)}.")


def _is_too_large(message: str) -> bool:
    return "larger than max" in message or "exceed the limit size" in message


def _line(error: Any) -> str:
    return _short(str(error.message))


def _short(text: str) -> str:
    return " ".join(text.split())[:200].rstrip(".")
