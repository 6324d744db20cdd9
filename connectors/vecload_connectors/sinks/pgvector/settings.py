"""Settings of the pgvector sink."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

ColumnType = Literal["text", "bigint", "double precision", "boolean", "timestamptz", "date", "numeric", "uuid", "jsonb"]

OWN_COLUMNS = (
    *("id", "source", "document", "ordinal", "start", "end", "text", "text_hash", "headings", "metadata"),
    "embedding",
)
_SYSTEM_COLUMNS = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
EMBEDDED_SCHEME = "pgvector:"


class PgvectorSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: str | None = Field(
        default=None,
        repr=False,
        description="`postgresql://user:password@host:5432/database`. What it leaves out comes from PGHOST, PGPORT, "
        "PGDATABASE, PGUSER, PGPASSWORD, PGPASSFILE and the other usual variables; without it all of it does. "
        "`pgvector:./folder` runs a PostgreSQL of its own in that folder.",
    )
    # Not named `schema`: pydantic's own method has that name.
    schema_: str = Field(
        default="public", alias="schema", min_length=1, description="The schema that holds the collections' tables."
    )
    columns: dict[str, ColumnType] | None = Field(
        default=None,
        description="Metadata fields that become columns of these types, `{language: text, published: date}`; the "
        "others stay in `metadata`. Chosen when the table is made.",
    )
    column_type: Literal["vector", "halfvec"] = Field(
        default="vector", description="The type of `embedding`: `halfvec` takes half the space, at half precision."
    )
    index: Literal["defer", "live"] = Field(
        default="defer",
        description="Build the vector index after the first load (far faster), or keep it from the start.",
    )
    index_type: Literal["hnsw", "ivfflat", "none"] = Field(
        default="hnsw", description="The vector index; `none`: searches compare with every row, exactly."
    )
    index_values: Literal["auto", "halfvec", "bit"] = Field(
        default="auto",
        description="What the index holds: `auto` the column's values, as halfvec from 2,001 dimensions; `halfvec`; "
        "`bit` one bit a dimension, of which search compares the ten best for each hit with the whole vectors.",
    )
    m: int = Field(default=16, ge=2, le=100, description="HNSW: connections of a point.")
    ef_construction: int = Field(
        default=64, ge=4, le=1000, description="HNSW: candidates looked at while building; at least twice `m`."
    )
    lists: int | None = Field(
        default=None,
        ge=1,
        le=32768,
        description="IVFFlat: lists; default a thousandth of the rows, above a million their square root.",
    )
    maintenance_work_mem: str | None = Field(
        default=None,
        pattern=r"^[1-9][0-9]{0,8}(MB|GB)$",
        description="Memory for building the index, such as `4GB`; default what the index needs, at most 1 GB.",
    )
    max_parallel_maintenance_workers: int = Field(
        default=4, ge=0, le=64, description="Processes that help to build the index, as far as the server has them."
    )
    run_as: str | None = Field(
        default=None,
        min_length=1,
        description="`pgvector:` as root only: the existing user that runs the server, which refuses to be root.",
    )

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: dict[str, ColumnType] | None) -> dict[str, ColumnType] | None:
        for name in columns or {}:
            if not name or "\0" in name or len(name.encode("utf-8", "surrogatepass")) > 63:
                raise ValueError(f"a column's name has 1 to 63 bytes, and {name[:20]!r} has not")
            if name in OWN_COLUMNS or name in _SYSTEM_COLUMNS:
                raise ValueError(f"the column {name!r} is there already; leave that field in the metadata")
        return columns

    @model_validator(mode="after")
    def _check(self) -> PgvectorSettings:
        if self.index_type == "ivfflat" and self.index == "live":
            raise ValueError("index_type 'ivfflat' is built from the data; leave index at 'defer', or use 'hnsw'")
        if self.ef_construction < 2 * self.m:
            raise ValueError(f"ef_construction must be at least twice m, {2 * self.m} or more")
        if self.run_as is not None and not (self.url or "").startswith(EMBEDDED_SCHEME):
            raise ValueError("run_as is for the embedded PostgreSQL (url 'pgvector:./folder') alone")
        return self
