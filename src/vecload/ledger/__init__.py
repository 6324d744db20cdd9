"""The ledger: what is where, so that the next run does only what changed."""

from vecload.ledger.ledger import Ledger
from vecload.ledger.lock import RunLock
from vecload.ledger.rows import ContainerRow, DeadLetter, DocumentRow, ScopeSummary
from vecload.ledger.scope import Scope

__all__ = ["ContainerRow", "DeadLetter", "DocumentRow", "Ledger", "RunLock", "Scope", "ScopeSummary"]
