"""The pipeline: brings a sink's collection in step with a source.

    list -> diff against the ledger -> read -> parse -> clean -> chunk -> tokenise      (reading.py, planning.py)
         -> plan batches -> embed                                                       (embedding.py)
         -> upsert -> acknowledge -> ledger -> delete stale points                      (writing.py)
    and after a whole listing: delete what vanished                                     (deleting.py)

`run` opens everything, refuses what must not be mixed, and enters `_bring_in_step`, the loop of the pipeline.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from vecload import registry
from vecload.collection import Collection
from vecload.config import Job, TransformSettings
from vecload.contracts import Engine, Sink, Source
from vecload.deleting import DeletePolicy, delete_vanished, finish_deletes
from vecload.documents import Document
from vecload.embedding import Embedding, Window
from vecload.errors import Interrupted, UsageError, VecloadError
from vecload.interrupts import Interrupts
from vecload.iterable import IterableSource
from vecload.ledger import Ledger, RunLock, Scope
from vecload.models import Model, ModelOverrides
from vecload.planning import Planner, PlanSettings
from vecload.reading import Reading
from vecload.report.run_report import RunReport
from vecload.text.chunk import Chunker, chunk_limits, content_fingerprint
from vecload.text.parse_pool import ParserPool
from vecload.tracking import ContainerTracker
from vecload.writing import Writing

log = logging.getLogger("vecload")

PATIENCE_SECONDS = 0.05
"""How long the pipeline waits for more documents before it looks after the engine and the sink again."""


@dataclass(frozen=True, slots=True)
class SyncOptions:
    full: bool = False
    """Read every container again, whatever its tag says."""
    reembed: bool = False
    """Compute every vector again."""
    checksum: bool = False
    """Trust no modification time: read every container whose tag is built from one."""
    delete: bool = True
    """False: keep the points of documents that vanished from the source."""
    allow_delete: int | None = None
    """Up to this many vanished documents may be deleted, after a second listing."""
    command: str = "vecload sync"
    """How a person would run this again, for messages."""
    report_file: Path | None = None
    """Where the caller writes the report: no document, though it may lie among them."""


def run(
    job: Job,
    options: SyncOptions,
    report: RunReport | None = None,
    *,
    documents: Iterable[Document] | None = None,
    documents_id: str = "documents",
) -> RunReport:
    """Runs one job. With `documents`, they are the source (named `documents_id`) instead of the job's own.

    Returns the report with exit code 0, or 3 when something waits for a person. Raises VecloadError otherwise; the
    report that was passed in is filled in all cases.
    """
    report = report if report is not None else RunReport()
    report.job = job.name
    try:
        with Interrupts() as interrupts, ExitStack() as opened:
            _run(job, options, report, documents, documents_id, interrupts, opened)
    except VecloadError as error:
        report.end(error.exit_code, str(error))
        raise
    except BaseException as error:
        report.end(1, f"{type(error).__name__}: {error}")
        raise
    waits = report.dead_letters or (report.documents.withheld and options.delete)
    report.end(3 if waits else 0)
    return report


def _run(
    job: Job,
    options: SyncOptions,
    report: RunReport,
    documents: Iterable[Document] | None,
    documents_id: str,
    interrupts: Interrupts,
    opened: ExitStack,
) -> None:
    report.sink, report.model, report.ledger = job.sink.kind, job.transform.model, str(job.ledger)
    model = Model.resolve(job.transform.model, overrides=_overrides(job.transform))
    source = opened.enter_context(closing(_source(job, documents, documents_id)))
    report.source = source.id
    registry.require(job.sink)
    sink = opened.enter_context(closing(job.sink.open(job.sink_settings, job.collection)))
    report.sink = sink.id

    # Whatever must be refused is refused here, before anything is written.
    collection = Collection(sink, model)
    ledger = opened.enter_context(closing(Ledger.open(job.ledger)))
    opened.enter_context(closing(RunLock(job.ledger, sink.id, source.id)))
    scope = _scope(ledger, collection, source.id)
    finish_deletes(sink, scope, report)

    tracker = ContainerTracker(scope)
    planner = _planner(job, options, model, source, scope, sink, opened, report)
    trust_tags = not (options.full or options.reembed or (options.checksum and source.capabilities.weak_tags))
    reading = Reading(
        source,
        scope,
        planner,
        tracker,
        report,
        trust_tags=trust_tags,
        fingerprint=planner.settings.fingerprint,
        own_files=_own_files(job, options),
    )
    engine = opened.enter_context(closing(job.engine.open(job.engine_settings, model)))
    embedding = Embedding(engine, model.space.dimensions, report)
    writing = opened.enter_context(closing(Writing(sink, scope, tracker, report)))

    _bring_in_step(reading, embedding, writing, collection, engine, report, interrupts)

    if tracker.incomplete:
        log.warning(
            "%d files or tables could not be read whole, so none of their documents counts as gone; "
            "see: vecload status --dead-letters",
            tracker.incomplete,
        )
    if report.skipped["duplicate_key"]:
        log.warning("%d documents have the key of another one and were left out.", report.skipped["duplicate_key"])
    tracker.flush()
    if reading.complete and documents is None:
        report.state = "deleting what vanished"
        policy = DeletePolicy(options.delete, options.allow_delete)
        delete_vanished(policy, source, sink, scope, report)
    report.state = "building the index"
    with report.working("index"):
        collection.finish_index()
    scope.end_run()
    report.dead_letters = scope.dead_letter_count()
    if report.documents.withheld and options.delete:
        report.next_command = f"{options.command} --allow-delete {report.documents.withheld}"


def _bring_in_step(
    reading: Reading,
    embedding: Embedding,
    writing: Writing,
    collection: Collection,
    engine: Engine,
    report: RunReport,
    interrupts: Interrupts,
) -> None:
    """The loop: windows of planned documents in, acknowledged points out; ends with nothing in flight.

    Each part works ahead on threads or in a process of its own: while the engine embeds one window, the next is read
    and the last is written. An interrupt ends the reading and finishes what is begun.
    """
    started = False
    reading.start()
    try:
        for window in _windows(reading, embedding, report, interrupts):
            if window.texts and not started:
                report.state = "starting the engine"
                with interrupts.at_once():
                    engine.start()
                    collection.admit(engine)
                started = True
            writing.begin(window.documents)
            embedding.submit(window)
            while not embedding.hungry and interrupts.received is None:
                report.state = "embedding"
                _write(embedding, writing, block=True)
            _write(embedding, writing, block=False)
        if interrupts.received is not None:
            embedding.abandon_waiting()
        report.state = "finishing what is in flight"
        while not embedding.idle:
            _write(embedding, writing, block=True)
        writing.settle(block=True)
    finally:
        reading.stop()
    if interrupts.received is not None:
        raise Interrupted(interrupts.received)
    reading.check()


def _windows(reading: Reading, embedding: Embedding, report: RunReport, interrupts: Interrupts) -> Iterator[Window]:
    """Gathers planned documents into windows; an empty one when nothing new has come for a moment.

    A window closes early when the engine has nothing to do: waiting for more would cost more than sorting gains.
    """
    window = Window(embedding.window_tokens)
    for planned in reading.plans(PATIENCE_SECONDS):
        if interrupts.received is not None:
            return
        window.add(planned)
        starving = not planned and embedding.idle
        if window.full or (starving and window.documents):
            yield window
            window = Window(embedding.window_tokens)
        elif not planned:
            report.state = "waiting for the source" if starving else "embedding"
            yield Window(0)
    if window.documents:
        yield window


def _write(embedding: Embedding, writing: Writing, *, block: bool) -> None:
    """Hands what the engine has finished to the sink's writers, and takes their acknowledgements."""
    for embedded in embedding.collect(block=block):
        # The text is embedded once; every further place it stands at reuses the vector.
        for number, (document, position) in enumerate(embedded.text.places):
            if embedded.vector is None:
                writing.give_up(document, position, "embed", "bad_vector", embedded.error)
            else:
                writing.put(document, position, embedded.vector, reused=number > 0)
    writing.settle(block=False)


def _source(job: Job, documents: Iterable[Document] | None, documents_id: str) -> Source:
    if documents is not None:
        return IterableSource(documents_id, documents)
    if job.source is None:
        raise UsageError("No source is set; give --source, or documents in a library call.")
    registry.require(job.source)
    source = job.source.open(job.source_settings)
    if job.source_name is not None:
        source.id = job.source_name
    return source


def _scope(ledger: Ledger, collection: Collection, source: str) -> Scope:
    """The ledger's part for this run: rebuilt when it was lost, emptied when the collection's points were."""
    sink, incarnation = collection.sink, collection.record.incarnation
    if collection.exists and ledger.points(incarnation) and not sink.count():
        log.warning("%s is empty, though the ledger remembers points in it; all is brought in again.", sink.id)
        ledger.forget_incarnation(incarnation)
    scope = ledger.scope(incarnation, sink.id, source)
    scope.begin_run()
    if scope.is_new and collection.exists:
        found = scope.rebuild(sink.scan(source=source))
        if found:
            log.warning("The ledger knew nothing of %s; rebuilt it for %d documents from the payloads.", sink.id, found)
    return scope


def _planner(
    job: Job,
    options: SyncOptions,
    model: Model,
    source: Source,
    scope: Scope,
    sink: Sink,
    opened: ExitStack,
    report: RunReport,
) -> Planner:
    parse = job.parse
    largest = source.capabilities.max_document_bytes
    parsers = ParserPool(parse.processes, parse.timeout_seconds, parse.memory_bytes, largest)
    opened.enter_context(closing(parsers))
    tokenizer, prompt = model.tokenizer(), model.space.document_prompt
    limits = None
    if job.chunk is not None:
        limits = chunk_limits(
            model.max_tokens,
            tokenizer.special_tokens,
            tokenizer.count(prompt),
            job.chunk.max_tokens,
            job.chunk.overlap_tokens,
        )
    settings = PlanSettings(
        source=source.id,
        fingerprint=f"{content_fingerprint(limits, tokenizer.hash)} {job.transform.too_long}",
        prompt=prompt,
        max_tokens=model.max_tokens,
        too_long=job.transform.too_long,
        max_text_bytes=sink.capabilities.max_text_bytes,
        reembed=options.reembed,
    )
    chunker = Chunker(tokenizer, limits.max_tokens, limits.overlap_tokens) if limits else None
    return Planner(settings, scope, sink, parsers, tokenizer, chunker, report)


def _own_files(job: Job, options: SyncOptions) -> list[Path]:
    """What vecload writes itself, where it may lie within the source's folder."""
    files = [*job.ledger.parent.glob(f"{job.ledger.name}*")]
    if options.report_file is not None:
        files.append(options.report_file)
    url = str(getattr(job.sink_settings, "url", ""))
    if "://" not in url:
        files.append(Path(url.partition(":")[2]))
    return [file.resolve() for file in files]


def _overrides(transform: TransformSettings) -> ModelOverrides:
    return ModelOverrides(
        pooling=transform.pooling,
        normalize=transform.normalize,
        max_tokens=transform.max_tokens,
        document_prompt=transform.document_prompt,
        query_prompt=transform.query_prompt,
    )
