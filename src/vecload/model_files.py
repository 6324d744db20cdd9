"""Where a model's files are, and the hash of their content."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from vecload.errors import UsageError

logger = logging.getLogger("vecload")

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_SMALL_FILES = ["*.json", "*.txt", "*.model", "*.py"]
_NEVER_NEEDED = ["onnx/*", "openvino/*", "original/*", "README*"]
_TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


def locate(name: str) -> Path:
    """The folder of a model: a path, `package:NAME[/sub]`, or a hub name (fetched when it is not in the hub's cache).

    Raises UsageError in one sentence when there is no such model, or it cannot be fetched.
    """
    if name.startswith("package:"):
        return _in_package(name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"The folder {folder} holds no model: it has no config.json.")
        return folder.absolute()
    if name.startswith(("/", "./", "../", "~")) or not _HUB_NAME.fullmatch(name):
        raise UsageError(f"There is no model '{name}': give a folder, package:NAME, or a hub name such as ORG/NAME.")
    return _from_hub(name)


def _in_package(name: str) -> Path:
    package, _, sub = name.removeprefix("package:").partition("/")
    roots = _package_folders(package)
    if not roots:
        raise UsageError(f"There is no model '{name}': no package of the name '{package}' is installed.")
    for root in roots:
        folder = root / sub
        if (folder / "config.json").is_file():
            return folder
        found = sorted(folder.rglob("config.json"), key=lambda path: (len(path.parts), path))
        if found:
            return found[0].parent
    where = f"the folder '{sub}' of the package '{package}'" if sub else f"the package '{package}'"
    raise UsageError(f"There is no model '{name}': {where} holds no config.json.")


def _package_folders(package: str) -> list[Path]:
    """The folders of an installed package, by its import or its distribution name. Nothing of it is imported."""
    try:
        # A dotted name would import the parent package; a distribution's name may hold dots.
        spec = None if "." in package else find_spec(package)
    except ValueError:
        spec = None
    if spec is not None and spec.submodule_search_locations:
        return [Path(folder) for folder in spec.submodule_search_locations]
    try:
        distribution = metadata.distribution(package)
    except (metadata.PackageNotFoundError, ValueError):
        return []
    tops = {file.parts[0] for file in distribution.files or () if len(file.parts) > 1}
    folders = (Path(str(distribution.locate_file(top))) for top in sorted(tops) if not top.startswith((".", "__")))
    return [folder for folder in folders if folder.is_dir() and not folder.name.endswith(".dist-info")]


def _from_hub(name: str) -> Path:
    # Imported here: it takes a while, and only hub names need it.
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    patterns = [*_SMALL_FILES, "*.safetensors"]
    with suppress(LocalEntryNotFoundError):
        folder = Path(snapshot_download(name, local_files_only=True))
        if (folder / "config.json").is_file() and _weights_complete(folder):
            return folder
    if constants.HF_HUB_OFFLINE:
        raise UsageError(
            f"The model '{name}' is not in the hub's cache ({constants.HF_HUB_CACHE}) and HF_HUB_OFFLINE forbids to "
            "fetch it; unset that, or give a folder or package:NAME."
        )
    logger.warning("Fetching %s from the hub into %s (once).", name, constants.HF_HUB_CACHE)
    try:
        folder = Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns=_NEVER_NEEDED))
        if not weight_files(folder):
            folder = Path(snapshot_download(name, allow_patterns=[*patterns, "*.bin"], ignore_patterns=_NEVER_NEEDED))
    except GatedRepoError:
        raise UsageError(f"The model '{name}' is gated: accept its terms on the hub and set HF_TOKEN.") from None
    except RepositoryNotFoundError:
        raise UsageError(
            f"There is no model '{name}', neither a folder nor on the hub (a private one needs HF_TOKEN)."
        ) from None
    except LocalEntryNotFoundError:
        raise UsageError(
            f"The model '{name}' cannot be fetched: the hub is out of reach; give a folder or package:NAME instead."
        ) from None
    except Exception as error:  # the hub's client raises its HTTP library's errors, which change between releases
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UsageError(
            f"The model '{name}' cannot be fetched from the hub ({reason}); give a folder or package:NAME instead."
        ) from error
    if not (folder / "config.json").is_file():
        raise UsageError(f"'{name}' on the hub is no model: it has no config.json.")
    return folder


def weight_files(folder: Path) -> list[Path]:
    """The weights in one folder: safetensors where there are any, else PyTorch's."""
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))


def _weights_complete(folder: Path) -> bool:
    """False for a snapshot whose download was cut short."""
    present = {path.name for path in weight_files(folder) if path.exists()}
    for index in folder.glob("*.index.json"):
        if set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values()) - present:
            return False
    return bool(present)


def content_hash(folder: Path, module_folders: Iterable[str]) -> str:
    """SHA-256 over the names and contents of the files that make the vectors, as 64 hex digits.

    Config, tokenizer, `modules.json`, weights, and the same of the modules' folders (relative paths): the same content
    in another folder gives the same hash. Prompts are left out: they are compared by themselves.
    """
    files = [folder / name for name in ("config.json", "modules.json", "sentence_bert_config.json", *_TOKENIZER_FILES)]
    files += sorted(folder.glob("*.model"))
    if "auto_map" in (folder / "config.json").read_text(encoding="utf-8"):
        files += sorted(folder.glob("*.py"))
    files += weight_files(folder)
    for name in module_folders:
        files += [folder / name / "config.json", *weight_files(folder / name)]
    cache = _HashCache()
    lines = [f"{path.relative_to(folder).as_posix()} {cache.hash(path)}" for path in files if path.is_file()]
    cache.save()
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


class _HashCache:
    """File hashes by (path, size, mtime): weights of many GB are read once, not at every start."""

    def __init__(self) -> None:
        user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._path = Path(os.environ.get("VECLOAD_CACHE") or user_cache / "vecload") / "file-hashes.json"
        self._known: dict[str, list[object]] = {}
        self._changed = False
        with suppress(OSError, ValueError):
            known = json.loads(self._path.read_text(encoding="utf-8"))
            self._known = known if isinstance(known, dict) else {}

    def hash(self, path: Path) -> str:
        path = path.resolve()
        status = path.stat()
        entry = self._known.get(str(path))
        if isinstance(entry, list) and len(entry) == 3 and entry[:2] == [status.st_size, status.st_mtime_ns]:
            return str(entry[2])
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._known[str(path)] = [status.st_size, status.st_mtime_ns, digest]
        self._changed = True
        return digest

    def save(self) -> None:
        """Keeps the hashes for the next run; a cache that cannot be written only costs time."""
        if not self._changed:
            return
        known = {path: entry for path, entry in self._known.items() if Path(path).exists()}
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self._path.parent, prefix=".file-hashes-", delete=False
            ) as file:
                json.dump(known, file)
            os.replace(file.name, self._path)
