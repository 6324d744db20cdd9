"""Settings of the Qdrant sink."""

from __future__ import annotations

import os

from pydantic import BaseModel, ConfigDict, Field, SecretStr


def _api_key_from_environment() -> SecretStr | None:
    key = os.environ.get("QDRANT_API_KEY")
    return SecretStr(key) if key else None


class QdrantSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str | None = Field(
        default_factory=lambda: os.environ.get("QDRANT_URL"),
        description="`qdrant:./folder` (embedded), or a server: `qdrant+http://host:6333`, `qdrant+https://host:6333`. "
        "Also QDRANT_URL.",
    )
    api_key: SecretStr | None = Field(
        default_factory=_api_key_from_environment, description="The server's API key. Also QDRANT_API_KEY."
    )
    prefer_grpc: bool = Field(default=True, description="Speak gRPC to the server; false: REST on the URL's own port.")
    grpc_port: int = Field(default=6334, gt=0, lt=65536, description="The server's gRPC port.")
    timeout: int = Field(default=60, gt=0, description="Seconds after which a request to the server is tried anew.")
