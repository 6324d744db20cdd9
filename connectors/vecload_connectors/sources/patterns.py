"""Which paths of a tree are wanted: include and exclude globs over the path relative to the root."""

from __future__ import annotations

import re
from collections.abc import Sequence

WILDCARDS = frozenset("*?[")


class Patterns:
    """Globs in which `*` and `?` stay within a folder and `**` spans folders; they are case-sensitive.

    As in a shell, a wildcard of `include` matches no name that begins with a dot: hidden files and folders are left
    out unless a pattern names the dot (`.github/**`, `**/.env`). `exclude` has no such exception. A pattern that ends
    in `/` means everything below that folder. No `include` at all means everything that is not hidden.
    A pattern that cannot be understood raises ValueError.
    """

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        wanted = [_whole(pattern) for pattern in include] or ["**"]
        unwanted = [_whole(pattern) for pattern in exclude]
        self._include = [_compiled(pattern, hidden=False) for pattern in wanted]
        self._exclude = [_compiled(pattern, hidden=True) for pattern in unwanted]
        self._exclude_folders = [_compiled(p.removesuffix("/**"), hidden=True) for p in unwanted if p.endswith("/**")]
        spans = any("**" in pattern.split("/") for pattern in wanted)
        self._depth = None if spans else max(pattern.count("/") for pattern in wanted)
        self._hidden_wanted = any(_is_hidden(pattern) for pattern in wanted)

    def match(self, path: str) -> bool:
        """Whether the file at this path is wanted."""
        return any(p.fullmatch(path) for p in self._include) and not any(p.fullmatch(path) for p in self._exclude)

    def may_hold(self, folder: str) -> bool:
        """Whether something wanted may lie below this folder; one that holds nothing wanted need not be readable."""
        if _is_hidden(folder) and not self._hidden_wanted:
            return False
        if self._depth is not None and folder.count("/") >= self._depth:
            return False
        return not any(pattern.fullmatch(folder) for pattern in self._exclude_folders)


def escaped(name: str) -> str:
    """The glob that matches this very name."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _whole(pattern: str) -> str:
    pattern = pattern.removeprefix("./").removeprefix("/")
    return f"{pattern}**" if pattern.endswith("/") else pattern


def _is_hidden(path: str) -> bool:
    return any(segment.startswith(".") for segment in path.split("/"))


def _compiled(pattern: str, *, hidden: bool) -> re.Pattern[str]:
    visible = "" if hidden else r"(?!\.)"
    segments = pattern.split("/")
    regex = ""
    for i, segment in enumerate(segments):
        last = i == len(segments) - 1
        if segment == "**":
            regex += rf"(?:{visible}[^/]+/)*" + (rf"{visible}[^/]+" if last else "")
        else:
            regex += (visible if segment[:1] in WILDCARDS else "") + _segment(segment) + ("" if last else "/")
    try:
        return re.compile(regex)
    except re.error as error:
        raise ValueError(f"'{pattern}' is no glob ({error})") from None


def _segment(segment: str) -> str:
    regex = ""
    i = 0
    while i < len(segment):
        char = segment[i]
        i += 1
        end = segment.find("]", i + 1) if char == "[" else -1
        if char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif end > 0:
            members = segment[i:end]
            negated = members[0] in "!^"
            members = re.sub(r"([\\\[\]&~|^])", r"\\\1", members[1:] if negated else members)
            regex += f"[^/{members}]" if negated else f"[{members}]"
            i = end + 1
        else:
            regex += re.escape(char)
    return regex
