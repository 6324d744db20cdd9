"""The null sink: `null:` discards vectors. For measuring everything before the store.

`inspect` always says that there is no collection, so each run makes it anew with a new incarnation, which voids what
the ledger remembers of it: a run into `null:` always writes everything again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vecload.contracts import SinkConnector

from .settings import NullSettings

if TYPE_CHECKING:
    from vecload.contracts import Sink


def open_sink(settings: NullSettings, collection: str) -> Sink:
    from .sink import NullSink

    return NullSink(collection)


NULL = SinkConnector(kind="null", settings=NullSettings, open=open_sink, schemes=("null",))
