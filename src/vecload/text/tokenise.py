"""Text to token ids, by the model's own tokenizer."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vecload.documents import TokenBatch
from vecload.errors import MissingDependencyError, UsageError

if TYPE_CHECKING:
    import tokenizers

_HEAD_CHARACTERS_PER_TOKEN = 16
"""Where the search for a long text's head begins; natural languages have three to five."""

_HEAD_MARGIN_TOKENS = 128
"""How far behind the last kept token a head is cut. A cut within a word changes that word's tokens; the longest word
that WordPiece does not give up on has 100 characters, so 128 tokens later it cannot reach back to what is kept."""


class Tokenizer:
    """A fast tokenizer with the truncation and padding that its file may carry switched off. Thread-safe."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._json = tokenizer.to_str()
        self.hash = hashlib.sha256(self._json.encode()).hexdigest()
        """SHA-256 of the tokenizer's content, as 64 hex digits."""
        self.special_tokens: int = tokenizer.num_special_tokens_to_add(False)
        """How many tokens each text gets beside its own, such as [CLS] and [SEP]."""
        self._truncating: dict[int, tokenizers.Tokenizer] = {}
        self._lock = threading.Lock()

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """From a model's folder. Raises UsageError where it holds no tokenizer that can be used.

        Without a tokenizer.json the model's older files are converted, which needs transformers.
        """
        import tokenizers

        file = folder / "tokenizer.json"
        if not file.is_file():
            return cls(_convert(folder))
        try:
            return cls(tokenizers.Tokenizer.from_file(str(file)))
        except Exception as error:  # the Rust library raises bare Exception
            raise UsageError(f"The tokenizer {file} cannot be read ({error}); fetch the model again.") from error

    @property
    def raw(self) -> tokenizers.Tokenizer:
        """The Rust tokenizer, for libraries that take one. Its state must not be changed."""
        return self._tokenizer

    def count(self, text: str) -> int:
        """How many tokens `text` has, special ones not counted."""
        return self.counts([text])[0]

    def counts(self, texts: Sequence[str]) -> list[int]:
        """As `count`, for many texts at once and on all cores."""
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def encode(self, texts: Sequence[str], *, prompt: str, max_tokens: int) -> tuple[TokenBatch, list[int]]:
        """The token ids of `prompt` + text with special tokens, and the indexes of the texts that were cut.

        Of a text with more than `max_tokens` (special tokens and prompt counted) the head is kept, special tokens
        stay. The cost of a very long text follows what is kept of it.
        """
        import numpy as np

        if max_tokens <= self.special_tokens:
            raise ValueError(f"max_tokens must be more than the {self.special_tokens} special tokens, not {max_tokens}")
        tokenizer = self._truncating_at(max_tokens)
        encodings = tokenizer.encode_batch_fast([self._head(prompt + text, max_tokens) for text in texts])
        offsets = np.zeros(len(encodings) + 1, dtype=np.int32)
        np.cumsum([len(encoding) for encoding in encodings], out=offsets[1:])
        ids = np.empty(int(offsets[-1]), dtype=np.int32)
        for encoding, start, end in zip(encodings, offsets[:-1], offsets[1:], strict=True):
            ids[start:end] = encoding.ids
        truncated = [index for index, encoding in enumerate(encodings) if encoding.overflowing]
        return TokenBatch(ids, offsets), truncated

    def _head(self, text: str, max_tokens: int) -> str:
        """The beginning of `text`: all of it, or more than `max_tokens` by a margin.

        No number of characters is safe for every tokenizer (an unknown word of any length is one [UNK], normalisers
        remove characters), so the head is doubled until its tokens are enough. That costs about four times what is
        kept, and is why a text that is cut here is always one that `encode` truncates and reports.
        """
        length = (max_tokens + _HEAD_MARGIN_TOKENS) * _HEAD_CHARACTERS_PER_TOKEN
        while length < len(text):
            if self.count(text[:length]) >= max_tokens + _HEAD_MARGIN_TOKENS:
                return text[:length]
            length *= 2
        return text

    def _truncating_at(self, max_tokens: int) -> tokenizers.Tokenizer:
        """A copy for this limit: the limit is state of a tokenizer, and another thread may use another one."""
        import tokenizers

        with self._lock:
            if max_tokens not in self._truncating:
                copy = tokenizers.Tokenizer.from_str(self._json)
                copy.enable_truncation(max_tokens, direction="right")
                self._truncating[max_tokens] = copy
            return self._truncating[max_tokens]


def _convert(folder: Path) -> tokenizers.Tokenizer:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingDependencyError(
            f"The model {folder} has no tokenizer.json; converting its tokenizer", "gpu"
        ) from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder))
        return tokenizer.backend_tokenizer
    except (OSError, ValueError, AttributeError, ImportError) as error:
        raise UsageError(
            f"The model {folder} has neither a tokenizer.json nor a tokenizer that can be converted to one ({error})."
        ) from error
