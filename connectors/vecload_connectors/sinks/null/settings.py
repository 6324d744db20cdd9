"""Settings of the null sink."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class NullSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str | None = Field(default=None, description="`null:`; there is nothing to set.")
