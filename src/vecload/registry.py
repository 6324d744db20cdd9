"""Finds connectors, engines and parsers through entry points: ours and a third party's weigh the same.

Looking one up imports its module, never its driver.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from vecload.errors import MissingDependencyError, UsageError

if TYPE_CHECKING:
    from vecload.contracts import EngineConnector, SinkConnector, SourceConnector

GROUPS = ("sources", "sinks", "engines", "parsers")


def kinds(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group (one of GROUPS) by name, sorted; nothing is imported."""
    found = {point.name: point for point in entry_points(group=f"vecload.{group}")}
    return dict(sorted(found.items()))


def _load(group: str, kind: str) -> Any:
    known = kinds(group)
    if kind not in known:
        raise UsageError(f"There is no {group[:-1]} of the kind '{kind}'; installed are: {', '.join(known) or 'none'}.")
    try:
        return known[kind].load()
    except ImportError as error:
        raise UsageError(
            f"The {group[:-1]} '{kind}' ({known[kind].value}) cannot be imported ({error}); reinstall its package."
        ) from error


def source(kind: str) -> SourceConnector:
    connector: SourceConnector = _load("sources", kind)
    return connector


def sink(kind: str) -> SinkConnector:
    connector: SinkConnector = _load("sinks", kind)
    return connector


def engine(kind: str) -> EngineConnector:
    connector: EngineConnector = _load("engines", kind)
    return connector


def missing_drivers(connector: SourceConnector | SinkConnector | EngineConnector) -> list[str]:
    """The import names that the connector needs and that are not installed."""
    return [name for name in connector.drivers if find_spec(name) is None]


def require(connector: SourceConnector | SinkConnector) -> None:
    """Raises MissingDependencyError, with the pip command, when a driver of the connector is not installed."""
    if missing_drivers(connector) and connector.extra:
        raise MissingDependencyError(f"'{connector.kind}'", connector.extra)


def source_kind_of(url: str) -> str | None:
    """The kind of source that a URL or path means, by its ending first, then by its scheme; None for a plain path."""
    connectors = [source(kind) for kind in kinds("sources")]
    path = url.split("?", 1)[0].lower()
    for connector in connectors:
        if path.endswith(connector.suffixes):
            return connector.kind
    scheme = url.split("://", 1)[0].lower() if "://" in url else ""
    return next((c.kind for c in connectors if scheme and scheme in c.schemes), None)


def sink_kind_of(url: str) -> str | None:
    """The kind of sink that a URL means, by what stands before its first colon."""
    scheme = url.split(":", 1)[0].lower() if ":" in url else ""
    return next((kind for kind in kinds("sinks") if scheme and scheme in sink(kind).schemes), None)
