"""A sink's collection with its record: which vectors it holds, and whether others may join them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from vecload import probes
from vecload._version import __version__
from vecload.contracts import CollectionRecord, Engine, Sink, VectorSpace
from vecload.embedding import packed
from vecload.errors import EngineError, RefusedError

if TYPE_CHECKING:
    from vecload.models import Model


class Collection:
    """Found at the start of a run, and made when its first vectors are about to come."""

    def __init__(self, sink: Sink, model: Model) -> None:
        """Raises RefusedError when it holds vectors of another space, or the sink cannot hold ones of this width."""
        self.sink = sink
        self._model = model
        space = model.space
        widest = sink.capabilities.max_dimensions
        if widest is not None and space.dimensions > widest:
            raise RefusedError(
                f"{model.name} gives {space.dimensions} dimensions and {sink.id} takes at most {widest}: "
                f"{sink.capabilities.too_wide_advice}."
            )
        found = sink.inspect()
        self.exists = found is not None
        index = "pending" if sink.capabilities.deferred_index else "ready"
        self.record = found or CollectionRecord(uuid.uuid4().hex, space, "", __version__, index)
        if not self.record.space.same_as(space):
            raise RefusedError(
                f"{sink.id} holds vectors of {described(self.record.space)}, and this run would add those of "
                f"{described(space)}; use that model, or name another --collection."
            )

    def admit(self, engine: Engine) -> None:
        """Checks a started engine by the probe texts, and makes the collection if it is not there.

        Raises RefusedError when the same model gives other vectors than those that the collection was filled with.
        """
        space = self._model.space
        batch, _ = self._model.tokenizer().encode(
            probes.TEXTS, prompt=space.document_prompt, max_tokens=self._model.max_tokens
        )
        vectors = engine.submit(packed(list(batch))).result()
        if vectors.shape != (len(probes.TEXTS), space.dimensions):
            raise EngineError(
                f"{self._model.name} should give {space.dimensions} dimensions by its files, and the engine "
                f"returned an array of shape {vectors.shape}; check engine.args."
            )
        if not self.record.probes:
            self.record = replace(self.record, probes=probes.encode(vectors))
            if self.exists:
                self.sink.save_record(self.record)
        elif not probes.agree(probes.decode(self.record.probes, space.dimensions), vectors):
            raise RefusedError(
                f"The engine's vectors for the probe texts are not those that {self.sink.id} was filled with, "
                "though the model is the same; check engine.args, or re-embed into another --collection."
            )
        if not self.exists:
            self.sink.create(self.record)
            self.exists = True

    def finish_index(self) -> None:
        """Builds the index that a first load left for later, also one that an earlier run did not get to."""
        if self.exists and self.record.index == "pending":
            self.sink.build_index()
            self.record = replace(self.record, index="ready")
            self.sink.save_record(self.record)


def described(space: VectorSpace) -> str:
    """A vector space in words; the hash tells two models of the same name apart."""
    words = [f"{space.dimensions} dimensions", f"{space.pooling} pooling"]
    words.append("normalized" if space.normalize else "not normalized")
    if space.document_prompt:
        words.append(f"prompt {space.document_prompt!r}")
    return f"{space.model} ({', '.join(words)}; weights {space.model_hash[:8]})"
