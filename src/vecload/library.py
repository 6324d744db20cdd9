"""`vecload.sync`: the whole tool as one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vecload import config
from vecload.documents import Document
from vecload.errors import UsageError
from vecload.report.run_report import RunReport
from vecload.sync import SyncOptions, run


def sync(
    source: str | Path | Iterable[Document] | None = None,
    sink: str | None = None,
    *,
    collection: str | None = None,
    model: str | None = None,
    source_id: str = "documents",
    settings: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
    job: str | None = None,
    full: bool = False,
    reembed: bool = False,
    checksum: bool = False,
    delete: bool = True,
    allow_delete: int | None = None,
    report: RunReport | None = None,
) -> RunReport:
    """Brings a collection in step with a source, like the command of the same name, and returns the run report.

    `source` and `sink` are what `--source` and `--sink` take, or `source` is an iterable of `Document`, read once
    as a stream. Such documents are added and updated under the name `source_id`; what is not among them is left
    alone, since an iterable may hold a part only. `settings` are nested like `vecload.yaml`, for instance
    ``{"chunk": {"max_tokens": 256}}``, and weigh more than the file and the environment. Pass a `report` to have it
    filled while the run goes on, and also when it fails.

    The report's `exit_code` is 0, or 3 when something waits for a person: dead letters, withheld deletes.

    Raises VecloadError: UsageError and RefusedError before anything is written, the others when the source, the sink
    or the engine failed.
    """
    overrides = dict(settings or {})
    if model is not None:
        overrides["transform"] = {**overrides.get("transform", {}), "model": model}
    loaded = config.load(Path(config_path) if config_path is not None else None, overrides)
    if isinstance(source, Path):
        source = str(source)
    if isinstance(source, Document):
        raise UsageError("source is one Document; give a list of them.")
    documents = None if source is None or isinstance(source, str) else source
    chosen = loaded.job(
        name=job,
        source=source if isinstance(source, str) else None,
        sink=sink,
        collection=collection,
        needs_source=documents is None,
    )
    options = SyncOptions(full, reembed, checksum, delete, allow_delete)
    return run(chosen, options, report, documents=documents, documents_id=source_id)
