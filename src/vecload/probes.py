"""The probe texts: their vectors are kept beside a collection and compared at each start.

They catch what a fingerprint of files cannot: an endpoint that serves other weights under the same name, or an engine
that computes something else than the one that filled the collection.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix

# Never change them: the vectors in existing collections belong to exactly these.
TEXTS: tuple[str, ...] = (
    "The quick brown fox jumps over the lazy dog.",
    "How do I reset the password of my account?",
    "Die Lieferung verzögert sich wegen des Wetters um zwei Tage.",
    "数据库索引可以加快查询速度。",
    "def add(a: int, b: int) -> int:\n    return a + b",
    "Mitochondria turn nutrients into energy inside the cell.",
    "Invoice 2024-117: 3 × 19.99 € = 59.97 €, due within 30 days.",
    "🚀 Launch day! See you at 10:00 ✅",
)

LEAST_COSINE = 0.99
"""Other data types and batch shapes stay far above it, other models and poolings far below."""


def encode(vectors: FloatMatrix) -> str:
    """Vectors of shape (8, dimensions) as base64 of little-endian float32."""
    return base64.b64encode(np.ascontiguousarray(vectors, dtype="<f4").tobytes()).decode("ascii")


def decode(text: str, dimensions: int) -> FloatMatrix:
    """The vectors, of shape (8, dimensions), that :func:`encode` was given. Raises ValueError for anything else."""
    values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    return values.reshape(len(TEXTS), dimensions).astype(np.float32)


def agree(a: FloatMatrix, b: FloatMatrix) -> bool:
    """Whether two sets of probe vectors, both of shape (8, dimensions), come from the same model."""
    if a.shape != b.shape:
        return False
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = np.einsum("nd,nd->n", a, b) / np.maximum(norms, 1e-12)
    # Not `min() < LEAST`: a NaN must not agree.
    return bool((cosines >= LEAST_COSINE).all())
