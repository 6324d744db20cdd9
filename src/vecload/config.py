"""Settings: flag, then environment, then `vecload.yaml`, then default; and the jobs that they make.

A connector's own settings are validated by its own model, so that a third party's weigh the same as ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from vecload import registry
from vecload.contracts import EngineConnector, SinkConnector, SourceConnector
from vecload.errors import UsageError

CONFIG_NAME = "vecload.yaml"
DEFAULT_MODEL = "Qwen/Qwen3-Embedding-0.6B"
DEFAULT_COLLECTION = "vecload"

AnyModel = TypeVar("AnyModel", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TransformSettings(_Strict):
    kind: Literal["embed"] = Field("embed", description="what is done with a chunk")
    model: str = Field(DEFAULT_MODEL, description="a hub name, a folder, or package:NAME")
    engine: dict[str, Any] = Field({}, description="kind (vllm), and that engine's own settings")
    too_long: Literal["truncate", "skip", "fail"] = Field(
        "truncate", description="a text longer than the model takes: keep its head, leave it out, or a dead letter"
    )
    pooling: Literal["MEAN", "CLS", "LAST"] | None = Field(None, description="instead of the model's own")
    normalize: bool | None = Field(None, description="instead of the model's own")
    max_tokens: int | None = Field(None, ge=8, description="instead of the model's own limit")
    document_prompt: str | None = Field(None, description="instead of the model's own")
    query_prompt: str | None = Field(None, description="instead of the model's own")


class ChunkSettings(_Strict):
    max_tokens: int | None = Field(
        None, ge=8, description="default: min(512, the model's limit less prompt and special tokens)"
    )
    overlap_tokens: int | None = Field(None, ge=0, description="default: 64, and at most a quarter of max_tokens")


class ParseSettings(_Strict):
    processes: int = Field(1, ge=1, le=256, description="parser processes, for formats other than plain text")
    timeout_seconds: float = Field(60, gt=0, description="for one document; then its parser is killed")
    memory_bytes: int = Field(2 << 30, ge=64 << 20, description="for one parser process")


class JobSettings(_Strict):
    source: str | None = None
    sink: str | None = None
    collection: str | None = None
    transform: dict[str, Any] = {}
    chunk: dict[str, Any] | Literal["none"] = {}


class Settings(BaseSettings):
    """The whole of `vecload.yaml`. `source` and `sink` are laid over the source and the sink that a job names."""

    model_config = SettingsConfigDict(env_prefix="VECLOAD_", env_nested_delimiter="__", extra="forbid")

    sources: dict[str, dict[str, Any]] = {}
    sinks: dict[str, dict[str, Any]] = {}
    source: dict[str, Any] = {}
    sink: dict[str, Any] = {}
    transform: dict[str, Any] = {}
    chunk: dict[str, Any] | Literal["none"] = {}
    parse: dict[str, Any] = {}
    jobs: dict[str, JobSettings] = {}
    ledger: str | None = Field(None, description="the path of the SQLite ledger")


@dataclass(frozen=True)
class Job:
    """All that one pipeline needs, validated; nothing is opened yet."""

    name: str | None
    source: SourceConnector | None
    """None in a library call over documents at hand."""
    source_settings: BaseModel | None
    source_name: str | None
    """The name in `vecload.yaml`, which becomes the source's id."""
    sink: SinkConnector
    sink_settings: BaseModel
    collection: str
    transform: TransformSettings
    engine: EngineConnector
    engine_settings: BaseModel
    chunk: ChunkSettings | None
    """None: one chunk a document."""
    parse: ParseSettings
    ledger: Path


@dataclass(frozen=True)
class Config:
    """The layers merged, and where they came from."""

    settings: Settings
    above: Settings
    """Flags and environment alone: they weigh more than a job's own settings in the file."""
    path: Path | None
    """`vecload.yaml`, where there is one."""

    @property
    def ledger(self) -> Path:
        if self.settings.ledger:
            if "://" in self.settings.ledger:
                raise UsageError(f"The ledger is the path of an SQLite file, not a URL ({self.settings.ledger}).")
            return Path(self.settings.ledger).expanduser().absolute()
        folder = self.path.parent if self.path else Path.cwd()
        return folder / ".vecload" / "ledger.db"

    def job(
        self,
        *,
        name: str | None = None,
        source: str | None = None,
        sink: str | None = None,
        collection: str | None = None,
        needs_source: bool = True,
    ) -> Job:
        """The job of that name, or the one that the flags, the environment and the file describe.

        Raises UsageError: which setting is wrong or missing, and every place where it was looked for.
        """
        settings = self.settings
        if collection is not None and not collection.strip():
            raise UsageError("--collection is empty; name a collection, or leave the flag out.")
        job = JobSettings()
        if name is not None:
            if name not in settings.jobs:
                raise UsageError(f"There is no job '{name}'; {self._file_says('jobs', settings.jobs)}.")
            job = settings.jobs[name]
        source_connector, source_settings, source_name = None, None, None
        if needs_source:
            values, source_name = self._chosen("source", source or job.source, settings.sources, settings.source)
            source_connector = registry.source(values.pop("kind"))
            source_settings = validated(source_connector.settings, values, "source")
        values, _ = self._chosen("sink", sink or job.sink, settings.sinks, settings.sink)
        sink_connector = registry.sink(values.pop("kind"))
        own_collection = values.pop("collection", None)
        values_of_job = _merged(_merged(settings.transform, job.transform), self.above.transform)
        transform = validated(TransformSettings, expanded(values_of_job), "transform")
        engine_values = {"kind": "vllm", **transform.engine}
        engine = registry.engine(engine_values.pop("kind"))
        chunk = _chunk(settings.chunk, job.chunk, self.above.chunk)
        return Job(
            name=name,
            source=source_connector,
            source_settings=source_settings,
            source_name=source_name,
            sink=sink_connector,
            sink_settings=validated(sink_connector.settings, values, "sink"),
            collection=collection or job.collection or own_collection or DEFAULT_COLLECTION,
            transform=transform,
            engine=engine,
            engine_settings=validated(engine.settings, engine_values, "transform.engine"),
            chunk=None if chunk is None else validated(ChunkSettings, chunk, "chunk"),
            parse=validated(ParseSettings, settings.parse, "parse"),
            ledger=self.ledger,
        )

    def _chosen(
        self, what: Literal["source", "sink"], flag: str | None, named: Mapping[str, Any], overlay: Mapping[str, Any]
    ) -> tuple[dict[str, Any], str | None]:
        """The settings of a source or sink, with its `kind`; and its name where it has one."""
        kind_of = registry.source_kind_of if what == "source" else registry.sink_kind_of
        name = flag
        if flag is None and not overlay and len(named) == 1:
            name = next(iter(named))
        if name is not None and name in named:
            values, found = _merged(named[name], overlay), name
        elif flag is not None and flag in registry.kinds(f"{what}s"):
            values, found = {**overlay, "kind": flag}, None
        elif flag is not None:
            values, found = {**overlay, "url": absolute_url(flag, Path.cwd())}, None
            values.setdefault("kind", _kind_of_url(what, flag, named))
        elif "kind" in overlay or "url" in overlay:
            values, found = dict(overlay), None
        else:
            raise UsageError(
                f"No {what} is set; looked at --{what}, the environment (VECLOAD_{what.upper()}__URL) "
                f"and {self._file_says(f'{what}s', named)}."
            )
        values = expanded(values)
        if "url" in values and isinstance(values["url"], str):
            values["url"] = absolute_url(values["url"], Path.cwd())
            values.setdefault("kind", kind_of(values["url"]) or ("files" if what == "source" else None))
        if not values.get("kind"):
            raise UsageError(
                f"The {what}'s kind is not set; add 'kind: …' (one of {', '.join(registry.kinds(f'{what}s'))})."
            )
        return values, found

    def _file_says(self, section: str, named: Mapping[str, Any]) -> str:
        if self.path is None:
            return f"no {CONFIG_NAME} is in this folder (write one with: vecload init)"
        return f"{self.path} names under '{section}': {', '.join(sorted(named)) or 'nothing'}"


def _kind_of_url(what: Literal["source", "sink"], url: str, named: Mapping[str, Any]) -> str:
    if what == "source":
        kind = registry.source_kind_of(url)
        if kind is None and "://" in url:
            raise UsageError(f"--source {url}: no installed source takes this kind of URL; see: vecload connectors.")
        if kind is None and re.fullmatch(r"[\w-]+", url) and not Path(url).exists():
            raise UsageError(
                f"--source {url} is no source of {CONFIG_NAME} ({', '.join(sorted(named)) or 'it names none'}), "
                f"no kind ({', '.join(registry.kinds('sources'))}) and no path here."
            )
        return kind or "files"
    kind = registry.sink_kind_of(url)
    if kind is None:
        raise UsageError(
            f"--sink {url} is no sink of {CONFIG_NAME} ({', '.join(sorted(named)) or 'it names none'}), "
            f"no kind ({', '.join(registry.kinds('sinks'))}) and no URL of one, such as qdrant:./vectors."
        )
    return kind


def _chunk(*layers: dict[str, Any] | Literal["none"]) -> dict[str, Any] | None:
    """The chunk settings of layers, the last of which weighs most; None where that says `none`."""
    merged: dict[str, Any] | None = {}
    for layer in layers:
        if layer == "none":
            merged = None
        elif layer:
            merged = _merged(merged, layer)
    return merged


def load(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Reads `path`, else `vecload.yaml` in the working directory if there is one, under environment and `overrides`.

    Raises UsageError when the file cannot be read or holds a setting that does not exist.
    """
    if path is None and Path(CONFIG_NAME).is_file():
        path = Path(CONFIG_NAME)
    content: dict[str, Any] = {}
    if path is not None:
        path = path.absolute()
        content = _read(path)

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, content)

    flags = dict(overrides or {})
    try:
        return Config(Layered(**flags), Settings(**flags), path)
    except ValidationError as error:
        raise UsageError(_sentence(error, "", Settings)) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} must hold settings such as 'sources:' and 'sinks:'; see: vecload init.")
    # Paths in the file are relative to the file: a cron job starts anywhere.
    sections = [content.get("source"), content.get("sink")]
    for plural in ("sources", "sinks"):
        if isinstance(content.get(plural), dict):
            sections += content[plural].values()
    for section in sections:
        if isinstance(section, dict) and isinstance(section.get("url"), str):
            section["url"] = absolute_url(section["url"], path.parent)
    if isinstance(content.get("ledger"), str):
        content["ledger"] = absolute_url(content["ledger"], path.parent)
    return content


def absolute_url(url: str, base: Path) -> str:
    """A path, or the path behind `kind:`, made absolute; URLs with `//` and values with `${…}` stay as they are."""
    if "://" in url or url.startswith("${"):
        return url
    kind, colon, path = url.partition(":")
    if colon and re.fullmatch(r"[a-z][a-z0-9+]+", kind):
        return f"{kind}:{_absolute(path, base)}" if path else url
    return _absolute(url, base)


def _absolute(path: str, base: Path) -> str:
    # abspath rather than resolve: a glob must survive, and the connector resolves links where it wants to.
    return os.path.abspath(base / Path(path).expanduser())


def expanded(value: Any) -> Any:
    """`value` with each ${NAME} in its strings replaced from the environment. Raises UsageError for an unset one."""
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda m: _variable(m[1]), value)
    if isinstance(value, Mapping):
        return {k: expanded(v) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [expanded(v) for v in value]
    return value


def _variable(name: str) -> str:
    if name not in os.environ:
        raise UsageError(f"The settings refer to ${{{name}}}, and the environment variable {name} is not set.")
    return os.environ[name]


def _merged(base: Any, over: Any) -> dict[str, Any]:
    merged = dict(base or {})
    for key, value in (over or {}).items():
        merged[key] = (
            _merged(merged[key], value) if isinstance(value, dict) and isinstance(merged.get(key), dict) else value
        )
    return merged


def set_value(overrides: dict[str, Any], assignment: str) -> None:
    """Puts one `KEY=VALUE` of `--set` into nested overrides; VALUE is read as YAML, so numbers and lists work.

    Raises UsageError when it is no assignment.
    """
    key, equals, text = assignment.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        # Not the rest of it: that may be a secret whose '=' is missing.
        name = assignment.split()[0] if assignment.split() else ""
        raise UsageError(f"--set {name}…: write KEY=VALUE, such as --set chunk.max_tokens=256.")
    try:
        value = yaml.safe_load(text) if text else ""
    except yaml.YAMLError:
        value = text
    # A template such as {title} is YAML too, of a mapping without values; nobody means that.
    if isinstance(value, dict) and not (text.startswith("{") and ":" in text):
        value = text
    for part in parts[:-1]:
        inner = overrides.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set {assignment}: '{part}' was set to a plain value before.")
        overrides = inner
    overrides[parts[-1]] = value


def validated(model: type[AnyModel], values: Mapping[str, Any], where: str) -> AnyModel:
    """An instance of a settings model; a wrong value raises UsageError in one sentence that names the setting."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise UsageError(_sentence(error, where, model)) from None


def setting_names(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The settings of a model by the names that a user writes."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _sentence(error: ValidationError, where: str, model: type[BaseModel]) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join([*filter(None, [where]), *(str(part) for part in first["loc"])])
    if first["type"] == "extra_forbidden":
        return f"There is no setting '{name}'; known are: {', '.join(setting_names(model))}."
    if first["type"] == "missing":
        return f"The setting '{name}' is missing; give it with --set {name}=…, in the environment, or in {CONFIG_NAME}."
    message = first["msg"].removeprefix("Value error, ")
    return f"The setting '{name}' is wrong: {message[:1].lower() + message[1:]}."
