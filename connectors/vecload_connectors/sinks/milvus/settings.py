"""Settings of the Milvus sink."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

ConsistencyLevel = Literal["Strong", "Session", "Bounded", "Eventually"]


def _secret(variable: str) -> SecretStr | None:
    value = os.environ.get(variable)
    return SecretStr(value) if value else None


class MilvusSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: str | None = Field(
        default_factory=lambda: os.environ.get("MILVUS_URI"),
        repr=False,
        description="`milvus:./milvus.db` (embedded: Milvus Lite), or a server: `milvus+http://host:19530`, "
        "`milvus+https://host:19530`. Also MILVUS_URI.",
    )
    token: SecretStr | None = Field(
        default_factory=lambda: _secret("MILVUS_TOKEN"),
        description="The server's token or API key; it weighs more than user and password. Also MILVUS_TOKEN.",
    )
    user: str | None = Field(
        default_factory=lambda: os.environ.get("MILVUS_USER"), description="The server's user. Also MILVUS_USER."
    )
    password: SecretStr | None = Field(
        default_factory=lambda: _secret("MILVUS_PASSWORD"), description="The user's password. Also MILVUS_PASSWORD."
    )
    database: str = Field(
        default_factory=lambda: os.environ.get("MILVUS_DATABASE", ""),
        pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$",
        description="The server's database; without it the default one. Also MILVUS_DATABASE.",
    )
    consistency_level: ConsistencyLevel = Field(
        default="Strong",
        description="Of searches, and of other readers of a new collection by default. What vecload itself has to "
        "know (which points are there) is always read at Strong.",
    )
    timeout: float = Field(default=60.0, gt=0, description="Seconds after which a request to the server is tried anew.")
