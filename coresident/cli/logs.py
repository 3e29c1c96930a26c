"""Logging of the command line: structlog on stderr, configured here and nowhere else.

On a terminal a log line is for a person; elsewhere it is one JSON object.
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

import structlog
from structlog.typing import EventDict, Processor


class Level(StrEnum):
    """From the most to the least said."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(level: Level) -> None:
    """Send what is at least this important to stderr."""
    person = sys.stderr.isatty()
    renderers: tuple[Processor, ...] = (structlog.processors.JSONRenderer(),)
    if person:
        renderers = (worded, structlog.dev.ConsoleRenderer())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if person else "iso", utc=not person),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.value.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def worded(_: object, __: str, line: EventDict) -> EventDict:
    """Say as a sentence what an event means and why it came, where it carries both in words."""
    if "effect" in line and "error" in line:
        line["event"] = f"{line['event']}: {line.pop('effect')} ({line.pop('error')})"
    return line
