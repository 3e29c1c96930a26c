"""How a command ends: exit codes, and one message that a person can act on instead of a traceback."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import typer

from ..actors.errors import (
    ArtifactInvalid,
    BudgetExceeded,
    ContextExceeded,
    CoresidentError,
    InvalidRequest,
    PolicyFault,
    TraceInvalid,
)

FAULT = 1
BAD_INPUT = 2
DOES_NOT_FIT = 3
INTERRUPTED = 130
PIPE_CLOSED = 141
EXIT_CODES = (
    "Exit codes: 0 done; 1 a fault while running, a trace not whole, or a replay that came out differently or whose "
    "policy misbehaved; 2 usage or bad input; "
    "3 it does not fit the memory or the context; 130 interrupted (Ctrl-C; once more ends it at once); "
    "141 the reader of the output went away."
)
HELP = "Exit codes: 0 done; 'coresident --help' says what the others mean."


@attrs.define
class Terminal:
    """What the command line was asked for before its command, and whether the command answers in JSON."""

    debug: bool = False
    as_json: bool = False


class RecordingFailed(CoresidentError):
    """The run went well, but its trace is not whole; names the file and the reason."""


class Interrupted(Exception):
    """Ctrl-C: the scheduler has drained and closed."""


def check_recorded(record: Path | None, error: Exception | None) -> None:
    """Raise ``RecordingFailed`` when a trace was asked for and could not be written to its end."""
    if record is not None and error is not None:
        reason = error.strerror or error if isinstance(error, OSError) else repr(error)
        raise RecordingFailed(
            f"the trace {record} is not whole: {reason}; the run itself went on. "
            "Record to a file on a disk with room, in a folder that can be written",
            file=str(record),
            reason=str(reason),
        )


def exit_code(error: CoresidentError) -> int:
    """The code for a typed error: whether the input, the size or the run was at fault."""
    if isinstance(error, BudgetExceeded | ContextExceeded):
        return DOES_NOT_FIT
    if isinstance(error, InvalidRequest | ArtifactInvalid | TraceInvalid | PolicyFault):
        return BAD_INPUT
    return FAULT


@contextmanager
def reported(terminal: Terminal) -> Iterator[None]:
    """Turn whatever ends the block into an exit code, and say on stderr why."""
    try:
        yield
        sys.stdout.flush()
    except BaseException as raised:
        error = _cause(raised)
        if isinstance(error, BrokenPipeError):
            _silence(1)
            raise typer.Exit(PIPE_CLOSED) from None
        if isinstance(error, KeyboardInterrupt | Interrupted):
            if sys.stdout.isatty():
                print()
            raise typer.Exit(INTERRUPTED) from None
        if terminal.debug or not isinstance(error, CoresidentError | OSError):
            raise
        _say(terminal, error)
        raise typer.Exit(exit_code(error) if isinstance(error, CoresidentError) else FAULT) from None


def _cause(error: BaseException) -> BaseException:
    """What is to be reported of the groups that nurseries make: an interruption first, or the one error inside."""
    if isinstance(error, BaseExceptionGroup):
        inner = [_cause(each) for each in error.exceptions]
        stops = [each for each in inner if isinstance(each, KeyboardInterrupt | Interrupted)]
        return stops[0] if stops else inner[0] if len(inner) == 1 else error
    return error


def _silence(descriptor: int) -> None:
    """What is still buffered for a reader that went away goes nowhere instead of failing at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _say(terminal: Terminal, error: CoresidentError | OSError) -> None:
    kind = type(error).__name__
    message = error.message if isinstance(error, CoresidentError) else str(error)
    if terminal.as_json:
        details = dict(error.details) if isinstance(error, CoresidentError) else {}
        body = {"error": kind, "message": message, "details": details}
        print(json.dumps(body, default=str), file=sys.stderr)
    else:
        print(f"coresident: {message}", file=sys.stderr)
