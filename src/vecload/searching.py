"""`vecload.search`: embeds a question as its collection was embedded, and asks the sink for the nearest chunks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from vecload import config, registry
from vecload.config import Job
from vecload.contracts import VectorSpace
from vecload.documents import Hit, Json
from vecload.embedder import Embedder
from vecload.errors import RefusedError, UsageError
from vecload.models import Pooling


def search(
    question: str,
    *,
    sink: str | None = None,
    collection: str | None = None,
    limit: int = 5,
    filter: Mapping[str, Json] | None = None,
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
    job: str | None = None,
) -> list[Hit]:
    """The chunks nearest to `question`, best first, like the command of the same name.

    `sink` is what `--sink` takes; `filter` maps `source`, `document` or `metadata.NAME` to the value it must equal.
    `settings` are nested like `vecload.yaml` and weigh more than the file. The model is the collection's own; `model`
    names another place where that same model lies.

    Each call starts the engine. For many questions keep a `vecload.Embedder` and ask the store directly.

    Raises UsageError (no such collection, no such model), RefusedError (`model` is another one than the
    collection's), SinkError and EngineError.
    """
    loaded = config.load(Path(config_path) if config_path is not None else None, settings)
    chosen = loaded.job(name=job, sink=sink, collection=collection, needs_source=False)
    return nearest(question, chosen, limit=limit, filter=filter, model=model)


def nearest(question: str, job: Job, *, limit: int, filter: Mapping[str, Json] | None, model: str | None) -> list[Hit]:
    """`search` in the collection that a job writes to."""
    if not question.strip():
        raise UsageError("The question is empty; give some words to search for.")
    registry.require(job.sink)
    with closing(job.sink.open(job.sink_settings, job.collection)) as sink:
        record = sink.inspect()
        if record is None:
            raise UsageError(f"There is no collection {sink.id}; fill it first with: vecload sync.")
        with _embedder(record.space, job, model, sink.id) as embedder:
            vector = embedder.embed_query(question)
        return sink.search(vector, limit, filter or None)


def _embedder(space: VectorSpace, job: Job, model: str | None, collection: str) -> Embedder:
    """An embedder for this very space. Raises RefusedError when the model's files are not those of the collection."""
    name = model or space.model
    try:
        embedder = Embedder(
            name,
            engine=job.transform.engine,
            pooling=cast(Pooling, space.pooling),
            normalize=space.normalize,
            max_tokens=job.transform.max_tokens,
            document_prompt=space.document_prompt,
            query_prompt=space.query_prompt,
        )
    except UsageError as error:
        if model is not None:
            raise
        raise UsageError(
            f"The model of {collection} cannot be loaded: {error} If it lies elsewhere now, name it with --model."
        ) from error
    own = embedder.model.space
    if not own.same_as(space):
        raise RefusedError(
            f"{collection} holds vectors of {space.model} (content {space.model_hash[:12]}, {space.dimensions} "
            f"dimensions), and {name} here is another model (content {own.model_hash[:12]}, {own.dimensions} "
            "dimensions); name the collection's own with --model, or sync into another --collection."
        )
    return embedder
