"""Settings of the Qdrant sink."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

IndexType = Literal["keyword", "integer", "float", "bool", "datetime", "text"]

FORBIDDEN_IN_NAMES = '<>:"/\\|?*\0\x1f'
"""What Qdrant takes neither in a collection's nor in a vector's name (lib/common/common/src/validation.rs)."""
_MAX_VECTOR_NAME = 200
"""Bytes; the same file."""
_OWN_FIELDS = ("text", "ordinal", "start", "end", "headings", "text_hash")


def _api_key_from_environment() -> SecretStr | None:
    key = os.environ.get("QDRANT_API_KEY")
    return SecretStr(key) if key else None


class QdrantSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: str | None = Field(
        default_factory=lambda: os.environ.get("QDRANT_URL"),
        repr=False,
        description="`qdrant:./folder` (embedded), or a server: `qdrant+http://host:6333`, `qdrant+https://host:6333`. "
        "Also QDRANT_URL.",
    )
    api_key: SecretStr | None = Field(
        default_factory=_api_key_from_environment, description="The server's API key. Also QDRANT_API_KEY."
    )
    prefer_grpc: bool = Field(default=True, description="Speak gRPC to the server; false: REST on the URL's own port.")
    grpc_port: int = Field(default=6334, gt=0, lt=65536, description="The server's gRPC port.")
    timeout: int = Field(default=60, gt=0, description="Seconds after which a request to the server is tried anew.")
    vector_name: str | None = Field(
        default=None, min_length=1, description="Write a named vector of this name, in place of the unnamed one."
    )
    index: Literal["defer", "live"] = Field(
        default="defer",
        description="Build the HNSW index after the first load (far faster), or keep it from the start.",
    )
    index_timeout: int = Field(
        default=3600, gt=0, description="Seconds to wait for a deferred index; the next run waits on."
    )
    m: int = Field(default=16, ge=2, le=512, description="HNSW: links of a point.")
    ef_construct: int = Field(default=100, ge=4, description="HNSW: candidates looked at while building.")
    on_disk: bool | None = Field(
        default=None, description="Keep the vectors on disk and not in memory; default: the server's."
    )
    on_disk_payload: bool | None = Field(
        default=None, description="Keep the payloads on disk and not in memory; default: the server's."
    )
    quantization: Literal["none", "scalar", "binary"] = Field(
        default="none", description="Search smaller copies of the vectors: `scalar` 8 bits a dimension, `binary` one."
    )
    always_ram: bool | None = Field(
        default=None, description="Keep the smaller copies in memory, whatever `on_disk` says; needs `quantization`."
    )
    payload_indexes: dict[str, IndexType] = Field(
        default_factory=dict,
        description="Payload fields to index, `{metadata.language: keyword}`; `source` and `document` always are. "
        "Types: keyword, integer, float, bool, datetime, text.",
    )
    shard_number: int | None = Field(default=None, ge=1, description="Shards of the collection; default: the server's.")
    replication_factor: int | None = Field(
        default=None, ge=1, description="Copies of each shard; default: the server's."
    )

    @field_validator("vector_name")
    @classmethod
    def _is_a_vector_name(cls, name: str | None) -> str | None:
        if name is None:
            return None
        if len(name.encode("utf-8", "surrogatepass")) > _MAX_VECTOR_NAME or name in (".", ".."):
            raise ValueError(f"Qdrant takes no vector name of over {_MAX_VECTOR_NAME} bytes, and not '.' or '..'")
        if bad := sorted(set(name) & set(FORBIDDEN_IN_NAMES)):
            raise ValueError(f"Qdrant takes no {', '.join(map(repr, bad))} in a vector's name")
        return name

    @field_validator("payload_indexes")
    @classmethod
    def _are_payload_fields(cls, indexes: dict[str, IndexType]) -> dict[str, IndexType]:
        for field in indexes:
            top, _, name = field.partition(".")
            if not (field in _OWN_FIELDS or (top == "metadata" and name and '"' not in name)):
                raise ValueError(
                    f"{field!r} cannot be indexed; write metadata.NAME (without double quotes) or one of "
                    f"{', '.join(_OWN_FIELDS)}"
                )
        return indexes

    @model_validator(mode="after")
    def _fit_together(self) -> QdrantSettings:
        if self.always_ram is not None and self.quantization == "none":
            raise ValueError("always_ram speaks of quantized vectors; set quantization to scalar or binary")
        return self
