"""What PostgreSQL's errors mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vecload.connectorkit import Fault

if TYPE_CHECKING:
    import psycopg

# Connection lost, out of resources, shutting down, serialisation and deadlock, lock timeout, read-only (a failover).
_TRANSIENT_STATES = ("08", "53", "57P01", "57P02", "57P03", "57P05", "40", "55P03", "25006")
# Bad values, constraints, a row or index entry over a limit.
_REJECTED_STATES = ("22", "23", "54")
# A refused login has no SQLSTATE in the client, only the server's text.
_REFUSED_LOGIN = ("password", "authentication", "does not exist", "pg_hba.conf", "permission denied", "not permitted")


def fault(error: Exception, where: str) -> Fault | None:
    """`where` names the server and the collection. None: not an error of PostgreSQL."""
    import psycopg

    if isinstance(error, (UnicodeEncodeError, psycopg.DataError)) and getattr(error, "sqlstate", None) is None:
        return Fault("rejected", f"{where} cannot take the points: {_line(error)}.")
    if not isinstance(error, psycopg.Error):
        return None
    state = error.sqlstate
    if state is None:
        return _client_fault(error, where)
    if state.startswith(_TRANSIENT_STATES) or _is_race(error):
        return Fault("transient", f"{where} is not ready: {_line(error)}.")
    if state.startswith(_REJECTED_STATES):
        return Fault("rejected", f"{where} rejected the points: {_line(error)}.")
    return Fault("permanent", f"{where} failed: {_line(error)}.")


def index_fault(error: Exception, where: str) -> Fault | None:
    """The same while the index is built, where no single point is to blame."""
    found = fault(error, where)
    if found is None or found.kind != "rejected":
        return found
    return Fault("permanent", f"{where} cannot build the vector index: {_line(error)}.")


def _is_race(error: psycopg.Error) -> bool:
    """Two first runs that create the extension at the same moment: one of them meets the other's row in the catalog.

    The same error about the collection's own table comes from somebody's unique index over it, and stays.
    """
    if error.sqlstate == "42710":
        return True
    return error.sqlstate == "23505" and (error.diag.table_name or "").startswith("pg_")


def _client_fault(error: psycopg.Error, where: str) -> Fault:
    import psycopg

    line = _line(error)
    if not isinstance(error, psycopg.OperationalError):
        return Fault("permanent", f"{where} failed: {line}.")
    if any(word in line for word in _REFUSED_LOGIN):
        return Fault("permanent", f"{where} refused the login: {line}.")
    return Fault("transient", f"{where} is out of reach: {line}.")


def _line(error: Exception) -> str:
    """The main message alone: details hold the row's content, hints are for administrators."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    text = primary or next(iter(str(error).splitlines()), type(error).__name__)
    return text.strip().rstrip(".")[:300]
