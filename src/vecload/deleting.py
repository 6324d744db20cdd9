"""Documents that vanished from the source: deleted only when that is surely what the source means."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from vecload.contracts import Sink, Source
from vecload.documents import Container, Problem
from vecload.ledger import Scope
from vecload.report.run_report import RunReport
from vecload.writing import delete_stale

log = logging.getLogger("vecload")

NAMED = 5
FREE_DOCUMENTS = 10
FREE_SHARE = 0.10
"""Up to this many documents, or this share of the source's, may vanish at once without a person's word."""


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    vanished: bool = True
    """False: keeps every point of documents that vanished (`--no-delete`)."""
    allow: int | None = None
    """`--allow-delete N`: a person expects up to N documents to go."""


def finish_deletes(sink: Sink, scope: Scope, report: RunReport) -> None:
    """Repeats the deletes of an earlier run that were never acknowledged."""
    for rows in scope.pending_deletes():
        delete_stale(sink, scope, rows, report)


def delete_vanished(policy: DeletePolicy, source: Source, sink: Sink, scope: Scope, report: RunReport) -> None:
    """After a whole listing, with all writes acknowledged: deletes what is gone, or withholds and says so.

    A document whose text came back under a new key has moved: its old points go in any case.
    """
    vanished = scope.find_vanished()
    if not policy.vanished:
        report.add(report.documents, withheld=vanished.gone + vanished.moved)
        scope.keep_vanished()
        return
    clean = True
    if vanished.gone and policy.allow is not None:
        # A person expects deletes. The source is asked once more, so that no glitch of it passes for their wish.
        clean = _list_again(source, scope)
        vanished = scope.find_vanished()
    allowed = clean and _allowed(policy, vanished.gone, vanished.total)
    if vanished.gone and not allowed:
        report.add(report.documents, withheld=vanished.gone)
        some = ", ".join(scope.vanished_keys(NAMED))
        more = f" and {vanished.gone - NAMED} more" if vanished.gone > NAMED else ""
        log.warning("No longer in the source, and not deleted: %s%s.", some, more)
        scope.keep_vanished()
    # A run that was killed may have counted some of the moved as new already.
    moved_now = min(vanished.moved, report.documents.new)
    report.add(report.documents, new=-moved_now, moved=vanished.moved, deleted=vanished.gone if allowed else 0)
    scope.mark_vanished_deleting(moved_only=not allowed)
    finish_deletes(sink, scope, report)
    scope.settle_fresh()
    scope.forget_unlisted()


def _allowed(policy: DeletePolicy, gone: int, total: int) -> bool:
    if policy.allow is not None:
        return gone <= policy.allow
    # Nothing left at all looks more like a source that is not there than like a wish, however few they were.
    return gone < total and (gone <= FREE_DOCUMENTS or gone <= FREE_SHARE * total)


def _list_again(source: Source, scope: Scope) -> bool:
    """Marks as listed whatever the source lists now; False when that listing had a problem."""
    keys = []
    for item in source.list():
        if isinstance(item, Problem):
            return False
        if isinstance(item, Container):
            keys.append(item.key)
    scope.containers(keys)
    return True
