"""The environment chat templates run in: jinja2's sandbox, set up as transformers does for ``apply_chat_template``.

Blocks are trimmed, loops may break and continue, ``tojson`` keeps Unicode, ``raise_exception`` refuses messages,
``strftime_now`` formats the time the caller passed, and the ``generation`` block is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox


class GenerationBlock(jinja2.ext.Extension):
    """``{% generation %}`` marks an assistant's words for training; here it is only its content."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """JSON that isn't escaped for HTML, unlike jinja2's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def strftime_at(now: datetime | None) -> Callable[[str], str]:
    """``strftime_now`` for one request; without a time, a template that asks for it is refused."""

    def strftime_now(form: str) -> str:
        if now is None:
            raise jinja2.TemplateError("the template asks for the date: pass now, the time of the request")
        return now.strftime(form)

    return strftime_now


def make_environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """A fresh environment, in which templates can neither reach Python's internals nor change what they are given."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    return environment
