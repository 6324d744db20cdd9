"""Seeded text sets of technical prose, made from what every Python installation carries."""

from __future__ import annotations

import random
import re
import sysconfig
from pathlib import Path

WORDS_PER_TOKEN = 0.765
"""About, in this prose, for a BPE vocabulary of 150,000."""

SETS = {"mid": 19_239, "short": 40_000}
"""How many texts each set has. `mid`: lengths log-normal, 310 tokens on average; `short`: 68 tokens on average."""


def make(name: str) -> list[str]:
    """The texts of one set; the same on each machine with the same Python."""
    chance = random.Random(name)
    sentences = _sentences()
    return [_text(sentences, _words(name, chance), chance) for _ in range(SETS[name])]


def _words(name: str, chance: random.Random) -> int:
    tokens = chance.uniform(40, 96) if name == "short" else min(2800.0, chance.lognormvariate(5.43, 0.78))
    return max(5, int(tokens * WORDS_PER_TOKEN))


def _text(sentences: list[list[str]], words: int, chance: random.Random) -> str:
    text: list[str] = []
    while len(text) < words:
        text += chance.choice(sentences)
    return " ".join(text[:words])


def _sentences() -> list[list[str]]:
    """The sentences in the docstrings and comments of the standard library's own files, in a fixed order."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for file in sorted(folder.glob("*.py")):
        source = file.read_text(encoding="utf-8", errors="replace")
        for docstring in re.findall(r'"""(.+?)"""', source, re.DOTALL):
            for sentence in re.split(r"(?<=[.!?])\s+", docstring):
                words = sentence.split()
                if 5 <= len(words) <= 60 and sum(word.isalpha() for word in words) > len(words) / 2:
                    found.append(words)
    return found
