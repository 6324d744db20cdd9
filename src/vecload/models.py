"""What a model's own files say: pooling, normalisation, dimensions, prompts, the longest text.

Read from the files of sentence-transformers (`modules.json` and those that it names) where there are any, else told
from the kind of model. Loads no model and no heavy library.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vecload.contracts import VectorSpace
from vecload.errors import UsageError
from vecload.model_files import content_hash, locate

if TYPE_CHECKING:
    from vecload.text.tokenise import Tokenizer

logger = logging.getLogger("vecload")

Pooling = Literal["MEAN", "CLS", "LAST"]

_POOLING_NAMES: dict[str, Pooling] = {"mean": "MEAN", "cls": "CLS", "lasttoken": "LAST"}
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
# Model types that count positions from behind the padding id, so that some of their positions are never used.
_POSITIONS_BEHIND_PADDING = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer"}
# Encoders whose model type does not hold "bert".
_OTHER_ENCODERS = {"electra", "mpnet", "new", "longformer"}
_FALLBACK_MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class ModelOverrides:
    """Settings that weigh more than the model's files; None leaves what the files say."""

    pooling: Pooling | None = None
    normalize: bool | None = None
    max_tokens: int | None = None
    document_prompt: str | None = None
    query_prompt: str | None = None


@dataclass(frozen=True)
class Model:
    """An embedding model on disk."""

    name: str
    """As the user gave it."""
    path: Path
    space: VectorSpace
    max_tokens: int
    """The longest text in tokens, prompt and special tokens included."""
    architecture: str
    """The class name in `config.json`, for messages."""
    config: Mapping[str, Any]
    """The model's `config.json`."""

    @classmethod
    def resolve(cls, name: str, *, overrides: ModelOverrides | None = None) -> Model:
        """Finds the model, fetching a hub name where needed, and reads its files.

        Raises UsageError: there is no such model, its files are broken, or it has a module that vecload does not know.
        """
        overrides = overrides or ModelOverrides()
        path = locate(name)
        if Path(name).expanduser().is_dir():
            name = str(path)  # absolute: a collection's own model is looked for from other folders later
        config = _read(path / "config.json")
        modules = _modules(name, path)
        pooling, normalize = _pooling_of_modules(name, path, modules) if modules else _pooling_by_kind(name, config)
        pooling = overrides.pooling or pooling
        if pooling is None:
            raise UsageError(f"The model '{name}' does not say how to pool; set transform.pooling.")
        document_prompt, query_prompt = _prompts(path)
        if overrides.document_prompt is not None:
            document_prompt = overrides.document_prompt
        if overrides.query_prompt is not None:
            query_prompt = overrides.query_prompt
        if (document_prompt or query_prompt) and any(_skips_prompt(path, m) for m in modules):
            raise UsageError(
                f"The model '{name}' leaves the prompt out of its pooling, which vecload cannot do; set "
                "transform.document_prompt and transform.query_prompt to '' or take another model."
            )
        return cls(
            name=name,
            path=path,
            space=VectorSpace(
                model=name,
                model_hash=content_hash(path, [module.path for module in modules if module.path]),
                pooling=pooling,
                normalize=normalize if overrides.normalize is None else overrides.normalize,
                dimensions=_dimensions(name, path, config, modules),
                document_prompt=document_prompt,
                query_prompt=query_prompt,
            ),
            max_tokens=_max_tokens(name, path, config, overrides.max_tokens),
            architecture=(config.get("architectures") or [config.get("model_type", "unknown")])[0],
            config=config,
        )

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from vecload.text.tokenise import Tokenizer

        return Tokenizer.load(self.path)

    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer, loaded once."""
        return self._tokenizer


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty when there is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"The model's file {path} cannot be read ({' '.join(str(error).split())}).") from error
    if not isinstance(content, dict):
        raise UsageError(f"The model's file {path} must hold a JSON object.")
    return content


# ---------------------------------------------------------------- modules


@dataclass(frozen=True, slots=True)
class _Module:
    kind: str
    path: str


def _modules(name: str, path: Path) -> list[_Module]:
    """The sentence-transformers modules, in order; empty without a `modules.json`."""
    file = path / "modules.json"
    if not file.is_file():
        if (path / "1_Pooling" / "config.json").is_file():
            # Its pooling is known, and whether it normalises is not: a guess would give other vectors than it should.
            raise UsageError(f"The model '{name}' has a folder 1_Pooling and no modules.json; fetch it whole.")
        return []
    try:
        # The type is a dotted class path that moved between releases; its last part did not.
        modules = [_Module(str(m["type"]).rpartition(".")[2], str(m["path"])) for m in json.loads(file.read_text())]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The model's file {file} cannot be read ({error}).") from error
    kinds = [module.kind for module in modules]
    rest = [kind for kind in kinds if kind != "Dense"]
    if rest not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]) or (
        "Dense" in kinds and not kinds.index("Pooling") < kinds.index("Dense") <= len(rest[:2])
    ):
        raise UsageError(
            f"The model '{name}' is made of {', '.join(kinds)}; vecload knows Transformer, Pooling, then Dense and "
            "Normalize where needed."
        )
    if modules[0].path:
        raise UsageError(f"The model '{name}' has its transformer in the folder '{modules[0].path}', an old layout.")
    return modules


def _pooling_of_modules(name: str, path: Path, modules: Sequence[_Module]) -> tuple[Pooling | None, bool]:
    config = _read(path / modules[1].path / "config.json")
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in _POOLING_KEYS.items() if config.get(key) is True]
    elif isinstance(modes, str):
        modes = [modes]
    if len(modes) > 1 or any(mode not in _POOLING_NAMES for mode in modes):
        raise UsageError(f"The model '{name}' pools by {' and '.join(modes)}; vecload knows mean, cls and lasttoken.")
    return (_POOLING_NAMES[modes[0]] if modes else None), modules[-1].kind == "Normalize"


def _skips_prompt(path: Path, module: _Module) -> bool:
    return module.kind == "Pooling" and _read(path / module.path / "config.json").get("include_prompt") is False


def _pooling_by_kind(name: str, config: Mapping[str, Any]) -> tuple[Pooling, bool]:
    """As vLLM does for a model that brings no sentence-transformers files."""
    kind = str(config.get("model_type", ""))
    pooling: Pooling = "CLS" if "bert" in kind or kind in _OTHER_ENCODERS else "LAST"
    logger.info(
        "The model '%s' does not say how to pool: taking %s, normalised (transform.pooling and .normalize change it).",
        name,
        pooling,
    )
    return pooling, True


def _dimensions(name: str, path: Path, config: Mapping[str, Any], modules: Sequence[_Module]) -> int:
    dense = [module for module in modules if module.kind == "Dense"]
    if dense:
        width = _read(path / dense[-1].path / "config.json").get("out_features")
    else:
        text = config.get("text_config") or config
        width = next((text[key] for key in ("hidden_size", "d_model", "n_embd", "dim") if key in text), None)
    if not isinstance(width, int):
        raise UsageError(f"The files of the model '{name}' do not say how wide its vectors are.")
    return width


# ---------------------------------------------------------------- prompts and length


def _prompts(path: Path) -> tuple[str, str]:
    """The document and the query prompt, looked up as sentence-transformers does."""
    config = _read(path / "config_sentence_transformers.json")
    prompts = config.get("prompts") or {}
    default = prompts.get(config.get("default_prompt_name") or "", "")

    def first(*names: str) -> str:
        return str(next((prompts[name] for name in names if prompts.get(name) is not None), default))

    return first("document", "passage", "corpus"), first("query")


def _max_tokens(name: str, path: Path, config: Mapping[str, Any], override: int | None) -> int:
    text = config.get("text_config") or config
    positions = text.get("max_position_embeddings") or text.get("n_positions")
    if positions and config.get("model_type") in _POSITIONS_BEHIND_PADDING:
        positions -= (text.get("pad_token_id") or 0) + 1
    if override is not None:
        if positions and override > positions and not text.get("rope_scaling"):
            raise UsageError(f"transform.max_tokens is {override}, and the model '{name}' takes at most {positions}.")
        return override
    limit = _read(path / "sentence_bert_config.json").get("max_seq_length")
    if limit:
        return int(limit)
    tokenizer = _read(path / "tokenizer_config.json").get("model_max_length")
    # Tokenizers without a limit of their own write 1e30.
    limits = [int(n) for n in (positions, tokenizer) if isinstance(n, int | float) and 0 < n < 10**8]
    return min(limits, default=_FALLBACK_MAX_TOKENS)
