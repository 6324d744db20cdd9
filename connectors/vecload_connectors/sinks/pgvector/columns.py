"""Metadata fields that are columns of their own: how they leave the JSON for a column, and come back.

A field moves into its column where the column gives back exactly what the JSON held. Else it is in both: the time
`2024-01-02T03:04:05+02:00` comes back from a `timestamptz` in another zone, so the JSON keeps it as it was written.
So a payload always round-trips, whatever its types, and a column always holds the value.
"""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import sql

UTC = sql.SQL("SET LOCAL TimeZone = 'UTC'")
"""For writing and filtering: a time without a zone is taken as UTC."""


def literal(text: str) -> sql.Composable:
    """A constant in a statement that is executed with parameters."""
    return sql.Literal(text.replace("%", "%%"))


def identifier(*names: str) -> sql.Identifier:
    """A name in a statement that is executed with parameters."""
    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def value(json: sql.Composable, name: str, type_: str) -> sql.Composed:
    """The field `name` of a jsonb expression as the column's type; the cast fails for a value that does not fit."""
    if type_ == "jsonb":
        return sql.SQL("nullif({} -> {}, 'null'::jsonb)").format(json, literal(name))
    return sql.SQL("({} ->> {})::{}").format(json, literal(name), sql.SQL(type_))


def rest(json: sql.Composable, columns: Mapping[str, str]) -> sql.Composable:
    """The jsonb expression without the fields that their columns give back exactly."""
    if not columns:
        return json
    moved = [
        sql.SQL("CASE WHEN ({})::text = ({} -> {})::text THEN {} END").format(
            _as_json(value(json, name, type_), type_), json, literal(name), literal(name)
        )
        for name, type_ in columns.items()
    ]
    return sql.SQL("({} - array_remove(ARRAY[{}]::text[], NULL))").format(json, sql.SQL(", ").join(moved))


def whole(columns: Mapping[str, str]) -> sql.Composable:
    """The metadata of a row, with the fields from the columns."""
    stored = sql.Identifier("metadata")
    parts: list[sql.Composable] = [
        sql.SQL("CASE WHEN {} IS NULL THEN '{{}}'::jsonb ELSE jsonb_build_object({}, {}) END").format(
            identifier(name), literal(name), _as_json(identifier(name), type_)
        )
        for name, type_ in columns.items()
    ]
    # What the JSON holds comes last, since it weighs more.
    return sql.SQL("({})").format(sql.SQL(" || ").join([*parts, stored]))


def equals(placeholder: str, name: str, type_: str) -> sql.Composed:
    """Whether the column equals the field of the JSON parameter; null is told apart from a field that is not there."""
    parameter = sql.SQL("{}::jsonb").format(sql.Placeholder(placeholder))
    return sql.SQL("({column} = {value} OR ({null} AND {column} IS NULL AND metadata @> {parameter}))").format(
        column=identifier(name),
        value=value(sql.SQL("({})").format(parameter), name, type_),
        null=sql.SQL("({} -> {}) = 'null'::jsonb").format(parameter, literal(name)),
        parameter=parameter,
    )


def _as_json(expression: sql.Composable, type_: str) -> sql.Composable:
    if type_ == "jsonb":
        return expression
    if type_ == "timestamptz":
        # Not to_jsonb alone, which depends on the connection's time zone.
        return sql.SQL("to_jsonb(to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"+00:00\"'))").format(
            expression
        )
    return sql.SQL("to_jsonb({})").format(expression)
