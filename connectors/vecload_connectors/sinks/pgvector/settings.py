"""Settings of the pgvector sink."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PgvectorSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: str | None = Field(
        default=None,
        repr=False,
        description="`postgresql://user:password@host:5432/database`. What it leaves out comes from PGHOST, PGPORT, "
        "PGDATABASE, PGUSER, PGPASSWORD, PGPASSFILE and the other usual variables; without it all of it does.",
    )
    # Not named `schema`: pydantic's own method has that name.
    schema_: str = Field(
        default="public", alias="schema", min_length=1, description="The schema that holds the collections' tables."
    )
