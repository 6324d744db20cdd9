"""The command that a person would type to run a sync again, for messages and reports."""

from __future__ import annotations

import re
import shlex

import click

_NOT_AGAIN = {"full", "reembed", "no_delete", "allow_delete", "every", "job"}
"""What must not be repeated (read or embed everything once more), what is added anew, and what stands in front."""

_PASSWORD_IN_URL = re.compile(r"(://[^/@:\s]*):[^/@\s]*@")
_SECRET_VALUE = re.compile(r"((?:passw\w*|secret\w*|token(?!s)\w*|api_?key|access_?key\w*)=)[^&\s]+", re.IGNORECASE)


def again(ctx: click.Context, job: str | None) -> str:
    """The flags of this command in their order, for this job where one was named, without what is secret in them."""
    words = ["vecload", "sync"]
    if job is not None:
        words += ["--job", job]
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if parameter.name in _NOT_AGAIN or not value:
            continue
        if value is True:
            words.append(parameter.opts[0])
        else:
            for one in value if isinstance(value, tuple) else (value,):
                words += [parameter.opts[0], without_secrets(str(one))]
    return shlex.join(words)


def without_secrets(text: str) -> str:
    """`text` with `***` for passwords in URLs and for the values of settings such as `api_key`."""
    return _SECRET_VALUE.sub(r"\1***", _PASSWORD_IN_URL.sub(r"\1:***@", text))
