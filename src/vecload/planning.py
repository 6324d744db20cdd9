"""A batch of documents as read becomes a plan: parse, clean, chunk, diff against what is known, tokenise."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from vecload.contracts import Sink
from vecload.diff import DocumentDiff, canonical, diff, document_text_hash, payload_hash
from vecload.documents import Chunk, Document, Json, Key, Problem, Skipped, key_from_text, key_text, point_id, text_hash
from vecload.ledger import DeadLetter, DocumentRow, Scope
from vecload.report.run_report import RunReport
from vecload.text.chunk import Chunker, whole_document
from vecload.text.clean import clean, json_value
from vecload.text.failure import ParseFailure
from vecload.text.parse_pool import ParserPool
from vecload.text.parsers import MARKDOWN
from vecload.text.tokenise import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from vecload.documents import IntVector
    from vecload.tracking import ContainerProgress

log = logging.getLogger("vecload")

Read = Document | Skipped | Problem


@dataclass(slots=True)
class PlannedDocument:
    """What must be done to one document's points. Positions count its chunks: `ids[i]`, `payloads[i]` and so on."""

    container: ContainerProgress
    row: DocumentRow
    """As the ledger will hold it when all is acknowledged."""
    is_new: bool
    diff: DocumentDiff
    ids: list[bytes]
    payloads: list[dict[str, Json]]
    payload_bytes: list[int]
    tokens: dict[int, IntVector] = field(default_factory=dict)
    """The token ids of the positions to embed."""
    vectors: dict[int, npt.NDArray[np.float32]] = field(default_factory=dict)
    """The positions to write with a vector that the sink already holds under another id."""
    unwritten: int = 0
    """Points whose write is not acknowledged yet."""
    failed: bool = False
    """A chunk could not be embedded or written: the old points stay."""

    def leave_out(self, position: int) -> None:
        """This position gets no point."""
        self.diff = replace(self.diff, embed=tuple(i for i in self.diff.embed if i != position))
        del self.tokens[position]
        index = self.row.ids.index(self.ids[position])
        self.row = replace(
            self.row,
            ids=self.row.ids[:index] + self.row.ids[index + 1 :],
            payload_hashes=self.row.payload_hashes[:index] + self.row.payload_hashes[index + 1 :],
        )


@dataclass(frozen=True, slots=True)
class PlanSettings:
    source: str
    fingerprint: str
    """The content fingerprint: another one chunks the document again."""
    prompt: str
    max_tokens: int
    too_long: Literal["truncate", "skip", "fail"]
    max_text_bytes: int | None
    reembed: bool


@dataclass(slots=True)
class _Draft:
    """A document on its way to a plan."""

    document: Document
    container: ContainerProgress
    key: str
    content_hash: bytes
    known: DocumentRow | None
    chunks: list[Chunk] = field(default_factory=list)
    payloads: list[dict[str, Json]] = field(default_factory=list)


class Planner:
    """Thread-safe: several threads plan batches at the same time."""

    def __init__(
        self,
        settings: PlanSettings,
        scope: Scope,
        sink: Sink,
        parsers: ParserPool,
        tokenizer: Tokenizer,
        chunker: Chunker | None,
        report: RunReport,
    ) -> None:
        """`chunker` None keeps each document as one chunk."""
        self.settings = settings
        self._scope = scope
        self._sink = sink
        self._parsers = parsers
        self._tokenizer = tokenizer
        self._chunker = chunker
        self._report = report

    def plan(self, batch: Sequence[tuple[Read, ContainerProgress]]) -> list[PlannedDocument]:
        """The documents that need anything done, even if it is only to be remembered anew.

        The others are counted here: unchanged, skipped, or buried as dead letters.
        """
        drafts = self._new_or_changed(batch)
        with self._report.working("chunk"):
            drafts = [draft for draft in drafts if self._chunk(draft)]
            drafts = self._seen_once(drafts)
            planned = self._diffed(drafts)
        self._reuse_vectors(planned)
        with self._report.working("tokenise"):
            return self._tokenised(planned)

    # ------------------------------------------------------------ diff by content

    def _new_or_changed(self, batch: Sequence[tuple[Read, ContainerProgress]]) -> list[_Draft]:
        found = []
        for item, container in batch:
            match item:
                case Skipped():
                    self._skip(container, item.key, item.reason)
                case Problem():
                    self._bury(container, item.key, "read", item.reason, item.message, transient=item.transient)
                case Document():
                    found.append((item, container))
        rows = self._scope.documents([key_text(document.key) for document, _ in found])
        drafts: list[_Draft] = []
        same: list[str] = []
        for document, container in found:
            key = key_text(document.key)
            draft = _Draft(document, container, key, self._content_hash(document), rows.get(key))
            known = draft.known
            if (
                known is None
                or self.settings.reembed
                or known.state == "writing"
                or known.content_hash != draft.content_hash
                or known.container != container.key
            ):
                drafts.append(draft)
            else:
                same.append(key)
                self._report.add(self._report.documents, listed=1, read=1, unchanged=1)
                self._report.add(self._report.chunks, unchanged=len(known.ids))
                container.document_done()
        if same:
            self._scope.see_documents(same)
            self._scope.unchanged(same)
        return drafts

    def _content_hash(self, document: Document) -> bytes:
        """Covers all that shapes the document's points, so that equal means nothing to do."""
        digest = hashlib.sha256()
        metadata = json.dumps(json_value(document.metadata), sort_keys=True, ensure_ascii=True)
        for part in (self.settings.fingerprint, document.name, metadata):
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
        content = document.content
        digest.update(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return digest.digest()[:16]

    # ------------------------------------------------------------ parse, clean, chunk

    def _chunk(self, draft: _Draft) -> bool:
        document = draft.document
        markdown = False
        if isinstance(document.content, bytes):
            try:
                parsed = self._parsers.parse(document.name, document.content)
            except ParseFailure as failure:
                self._bury(draft.container, document.key, "parse", failure.reason, failure.message)
                return False
            text, markdown = parsed.text, parsed.markdown
        else:
            text = document.content
            markdown = document.name.lower().endswith(MARKDOWN.suffixes)
        text = clean(text)
        if not text.strip():
            self._skip(draft.container, document.key, "no_text" if document.content else "empty")
            return False
        draft.chunks = self._chunker.chunk(text, markdown=markdown) if self._chunker else whole_document(text)
        limit = self.settings.max_text_bytes
        if limit is not None and any(len(chunk.text.encode()) > limit for chunk in draft.chunks):
            message = f"A chunk is longer than the {limit} bytes that the store takes; set chunk.max_tokens lower."
            self._bury(draft.container, document.key, "chunk", "text_too_long", message)
            return False
        return True

    def _seen_once(self, drafts: list[_Draft]) -> list[_Draft]:
        """Drops documents whose key has come before in this run: the first one stands."""
        first: dict[str, _Draft] = {}
        for draft in drafts:
            if first.setdefault(draft.key, draft) is not draft:
                self._skip(draft.container, draft.document.key, "duplicate_key")
        repeated = self._scope.see_documents(list(first))
        for key in repeated:
            draft = first.pop(key)
            self._skip(draft.container, draft.document.key, "duplicate_key")
        return list(first.values())

    # ------------------------------------------------------------ diff by chunks

    def _diffed(self, drafts: list[_Draft]) -> list[PlannedDocument]:
        # What a killed run left behind is not known: the sink is asked.
        unsure = [d.known for d in drafts if d.known is not None and d.known.state == "writing"]
        standing: dict[bytes, bytes] = {}
        if unsure:
            for point in self._sink.fetch([i for row in unsure for i in (*row.ids, *row.stale)]):
                standing[point.id] = payload_hash(canonical(point.payload or {}))
        planned = []
        for draft in drafts:
            known: Mapping[bytes, bytes] = {}
            if draft.known is not None and draft.known.state == "writing":
                mine = (*draft.known.ids, *draft.known.stale)
                known = {point: standing[point] for point in mine if point in standing}
            elif draft.known is not None:
                known = draft.known.known
            planned.append(self._planned(draft, known))
        return planned

    def _planned(self, draft: _Draft, known: Mapping[bytes, bytes]) -> PlannedDocument:
        settings, key = self.settings, draft.document.key
        metadata = json_value(draft.document.metadata)
        ids: list[bytes] = []
        payloads: list[dict[str, Json]] = []
        text_hashes: list[str] = []
        occurrences: Counter[str] = Counter()
        for chunk in draft.chunks:
            hashed = text_hash(chunk.text)
            ids.append(point_id(settings.source, key, hashed, occurrences[hashed]))
            occurrences[hashed] += 1
            text_hashes.append(hashed)
            payloads.append(
                {
                    "text": chunk.text,
                    "source": settings.source,
                    "document": draft.key,
                    "ordinal": chunk.ordinal,
                    "start": chunk.start,
                    "end": chunk.end,
                    "headings": list(chunk.headings),
                    "text_hash": hashed,
                    "metadata": metadata,
                }
            )
        encoded = [canonical(payload) for payload in payloads]
        hashes = [payload_hash(payload) for payload in encoded]
        changes = diff(list(zip(ids, hashes, strict=True)), known)
        if settings.reembed:
            changes = DocumentDiff(embed=tuple(range(len(ids))), update=(), unchanged=0, stale=changes.stale)
        row = DocumentRow(
            key=draft.key,
            container=draft.container.key,
            content_hash=draft.content_hash,
            text_hash=document_text_hash(text_hashes),
            ids=tuple(ids),
            payload_hashes=tuple(hashes),
            fresh=draft.known is None or draft.known.fresh,
        )
        return PlannedDocument(
            container=draft.container,
            row=row,
            is_new=draft.known is None,
            diff=changes,
            ids=ids,
            payloads=payloads,
            payload_bytes=[len(payload) for payload in encoded],
        )

    def _reuse_vectors(self, planned: list[PlannedDocument]) -> None:
        """A renamed or copied document takes the vectors of the one it equals, in one bulk fetch."""
        fresh = [p for p in planned if p.row.ids and len(p.diff.embed) == len(p.row.ids)]
        if not fresh or self.settings.reembed:
            return
        copies = self._scope.copies([p.row.text_hash for p in fresh if p.row.text_hash])
        wanted = {p.row.text_hash: copies[p.row.text_hash] for p in fresh if p.row.text_hash in copies}
        if not wanted:
            return
        with self._report.working("reuse"):
            points = self._sink.fetch([point for ids in wanted.values() for point in ids], vectors=True)
        found = {point.id: point for point in points}
        for document in fresh:
            for position, old in enumerate(wanted.get(document.row.text_hash or b"", ())):
                point = found.get(old)
                # The text is compared too: a ledger can be wrong, a vector under the wrong text must not happen.
                if point is None or point.vector is None or not point.payload:
                    continue
                if point.payload.get("text_hash") == document.payloads[position]["text_hash"]:
                    document.vectors[position] = point.vector

    # ------------------------------------------------------------ tokenise

    def _tokenised(self, planned: list[PlannedDocument]) -> list[PlannedDocument]:
        wanted = [(p, i) for p in planned for i in p.diff.embed if i not in p.vectors]
        texts = [str(p.payloads[i]["text"]) for p, i in wanted]
        batch, cut = self._tokenizer.encode(texts, prompt=self.settings.prompt, max_tokens=self.settings.max_tokens)
        for (document, position), ids in zip(wanted, batch, strict=True):
            document.tokens[position] = ids
        if self.settings.too_long == "truncate":
            self._report.count(truncated=len(cut))
        elif cut:
            planned = self._without_too_long(planned, [wanted[index] for index in cut])
        self._report.add(self._report.documents, listed=len(planned), read=len(planned))
        return planned

    def _without_too_long(
        self, planned: list[PlannedDocument], too_long: list[tuple[PlannedDocument, int]]
    ) -> list[PlannedDocument]:
        if self.settings.too_long == "fail":
            for document in {id(p): p for p, _ in too_long}.values():
                message = f"A chunk is longer than the {self.settings.max_tokens} tokens that the model takes."
                self._bury(document.container, key_from_text(document.row.key), "tokenise", "too_long", message)
            failed = {id(p) for p, _ in too_long}
            return [p for p in planned if id(p) not in failed]
        for document, position in too_long:
            document.leave_out(position)
            self._report.skip("too_long")
        return planned

    # ------------------------------------------------------------ what ends here

    def _skip(self, container: ContainerProgress, key: Key, reason: str) -> None:
        log.debug("%s: skipped (%s)", key_text(key), reason)
        self._report.add(self._report.documents, listed=1, read=1)
        self._report.skip(reason)
        self._report.count(documents_done=1)
        container.skipped(reason)

    def _bury(
        self, container: ContainerProgress, key: Key, stage: str, reason: str, message: str, *, transient: bool = False
    ) -> None:
        """A document that cannot be brought in keeps its old points, if it has any, and stops nothing.

        What could not even be read has no key that is sure (a broken row; the whole container): then any document of
        the container may be meant, and none that it did not yield counts as gone.
        """
        document = key_text(key)
        unsure = stage == "read" and not self._scope.documents([document])
        letter = DeadLetter(document, container.key, stage, reason, message, transient)
        self._scope.bury([letter])
        self._scope.see_documents([document])
        self._report.add(self._report.documents, listed=1, failed=1, read=int(stage != "read"))
        self._report.count(documents_done=1)
        container.document_failed(transient=transient, whole=unsure)
