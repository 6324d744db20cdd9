"""The main job with the real engine and a real model: the command line, the vectors, the search; S3 into pgvector."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vecload
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import S3Server
from tests.world import MODEL
from vecload import config
from vecload.documents import Document
from vecload.models import Model, ModelOverrides

ROOT = Path(__file__).parents[2]
HANDBOOK = ROOT / "examples" / "handbook"


def vecload_command(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("vecload")), *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )


def sentences() -> list[tuple[str, str]]:
    """Fifty documents of several sentences, with one sentence of each."""
    subjects = [
        "the boiler in the cellar", "tax returns", "the night bus", "sourdough bread", "the school library",
        "bicycle repair", "a leaking roof", "the village choir", "solar panels", "the fishing permit",
        "wedding photographs", "the museum's dinosaurs", "a lost passport", "beekeeping", "the chess club",
        "earthquake insurance", "the botanical garden", "violin lessons", "the recycling centre", "a broken elevator",
        "sheep shearing", "the lighthouse", "pension payments", "the ice rink", "moth infestations",
        "the observatory", "vaccination records", "the ferry timetable", "antique clocks", "the water tower",
        "mountain rescue", "the blood bank", "graffiti removal", "truffle hunting", "the puppet theatre",
        "dental implants", "the parking garage", "glass blowing", "the food bank", "hot air balloons",
        "the cemetery", "software licences", "the swimming pool", "horse riding", "noise complaints",
        "the printing press", "avalanche warnings", "the perfume shop", "tree surgery", "the brewery",
    ]  # fmt: skip
    found = []
    for number, subject in enumerate(subjects):
        asked = f"Whoever wants to know more about {subject} may call the office on weekday mornings."
        text = (
            f"This page collects what is known about {subject}. {asked} It was last checked by inspector number "
            f"{number + 100}. Questions about {subject} are answered within a week, and a leaflet is free."
        )
        found.append((text, asked))
    return found


TEXTS = [
    "Short.", "a", "Two words", "The quick brown fox jumps over the lazy dog.",
    "向量数据库保存嵌入。", "今天天气很好，我们去公园散步，然后吃饺子。", "机器学习模型需要数据", "北京是中国的首都。",
    "def add(a, b):\n    return a + b", "SELECT * FROM users WHERE id = 1;",
    "for (int i = 0; i < n; ++i) { sum += x[i]; }",
    '{"key": [1, 2, 3], "nested": {"a": null}}', "<div class='x'>text</div>", "ls -la | grep foo && echo $HOME",
    "🙂", "🎉🎊 party time 🥳", "Emoji in 🐍 the 🐘 middle", "👩‍👩‍👧‍👦 family",
    "Grüße aus Köln, schöne Straßen!", "Où est la bibliothèque ?", "Привет, как дела?", "مرحبا بالعالم", "नमस्ते दुनिया",
    "UPPER CASE TEXT", "numbers 123456789 and 3.14159", "punctuation!?.,;:-()[]{}", "   spaces   inside   ",
    "tabs\tand\nnewlines\nin text", "http://example.com/path?query=1", "A" * 100,
    "long " + "word " * 180, "Sentence number one. " * 40,
]  # fmt: skip


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a collection `vectors` of the examples, made by the command line."""
    folder = tmp_path_factory.mktemp("handbook")
    done = vecload_command(
        "sync", "--source", str(HANDBOOK), "--sink", "qdrant:./vectors", "--model", MODEL, "--report", "report.json",
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(folder / ".vecload" / "ledger.db") in done.stdout + done.stderr
    return folder


def test_the_main_job(handbook: Path) -> None:
    report = json.loads((handbook / "report.json").read_text())
    files = [path for path in HANDBOOK.rglob("*") if path.is_file()]
    assert report["documents"]["new"] == len(files)
    assert report["chunks"]["embedded"] >= len(files)
    assert report["tokens"] > 0
    assert report["tokens_per_second"] > 0
    assert {"read", "embed", "upsert"} <= set(report["stages"])


def test_the_second_run_needs_no_engine(handbook: Path) -> None:
    done = vecload_command(
        "sync", "--source", str(HANDBOOK), "--sink", "qdrant:./vectors", "--model", MODEL, "--report", "second.json",
        cwd=handbook,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((handbook / "second.json").read_text())
    assert (report["documents"]["read"], report["chunks"]["embedded"]) == (0, 0)
    assert "vLLM" not in done.stderr


def test_search_finds_the_page(handbook: Path) -> None:
    done = vecload_command(
        "search", "how many days of holiday do I get each year", "--sink", "qdrant:./vectors", "--json", "--limit", "3",
        cwd=handbook,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"holiday|leave|vacation", done.stdout, re.IGNORECASE)


def test_vectors_equal_the_reference_and_the_search_is_right(tmp_path: Path) -> None:
    """Through `sync` and back from the store, against sentence-transformers on the same model in float32."""
    from sentence_transformers import SentenceTransformer

    sink = f"qdrant:{tmp_path / 'vectors'}"
    settings = {"ledger": str(tmp_path / "ledger.db"), "chunk": "none"}
    documents = [Document(key=f"text/{n}", content=text) for n, text in enumerate(TEXTS)]
    documents += [Document(key=f"page/{n}", content=text) for n, (text, _) in enumerate(sentences())]
    report = vecload.sync(documents, sink, model=MODEL, settings=settings)
    assert (report.exit_code, report.documents.new) == (0, len(documents))

    job = config.load(None, settings).job(sink=sink, needs_source=False)
    opened = job.sink.open(job.sink_settings, job.collection)
    stored = {str((point.payload or {})["document"]): point.id for point in opened.scan()}
    points = opened.fetch(list(stored.values()), vectors=True)
    vectors = {point.id: point.vector for point in points if point.vector is not None}
    opened.close()
    found = np.stack([vectors[stored[str(document.key)]] for document in documents])
    reference = SentenceTransformer(str(Model.resolve(MODEL, overrides=ModelOverrides()).path), device="cpu")
    expected = reference.encode([str(document.content) for document in documents], normalize_embeddings=True)
    cosines = (found * expected).sum(axis=1)
    assert cosines.min() >= 0.999

    with vecload.Embedder(MODEL) as embedder:
        assert np.allclose(embedder.embed_documents([str(d.content) for d in documents]), found, atol=1e-5)
        right = 0
        opened = job.sink.open(job.sink_settings, job.collection)
        for number, (_, asked) in enumerate(sentences()):
            [hit] = opened.search(embedder.embed_query(asked), 1)
            right += hit.payload["document"] == f"page/{number}"
        opened.close()
    assert right >= 48


def test_from_s3_into_pgvector(tmp_path: Path, s3: S3Server, postgres: PostgresServer) -> None:
    """The main job on real servers, with settings from the environment as a container would give them."""
    import psycopg

    s3.make_bucket("handbook")
    files = [path for path in HANDBOOK.rglob("*") if path.is_file()]
    for path in files:
        s3.put("handbook", f"docs/{path.relative_to(HANDBOOK)}", path.read_bytes())
    dsn = postgres.new_database()
    command = ["sync", "--source", "s3://handbook/docs/", "--sink", dsn, "--collection", "handbook", "--model", MODEL]
    environment = {
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_REGION": "us-east-1",
    }
    done = vecload_command(*command, "--report", "report.json", cwd=tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["documents"]["new"] == len(files)
    with psycopg.connect(dsn) as connection:
        [rows, documents, width] = connection.execute(
            "SELECT count(*), count(DISTINCT document), min(vector_dims(embedding)) FROM handbook"
        ).fetchone()  # type: ignore[misc]  # an aggregate has one row
    assert (rows, documents, width) == (report["chunks"]["upserted"], len(files), 384)

    s3.delete("handbook", f"docs/{files[0].relative_to(HANDBOOK)}")
    done = vecload_command(*command, "--report", "report.json", cwd=tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["documents"]["deleted"], report["chunks"]["embedded"], report["documents"]["read"]) == (1, 0, 0)

    found = vecload_command("search", "holiday days per year", "--sink", dsn, "--collection", "handbook", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
