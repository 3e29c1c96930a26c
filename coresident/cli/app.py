"""The command line's commands, and what stands before them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .audit import audit
from .calibrate import calibrate
from .chat import chat
from .demo import demo
from .devices import devices
from .doctor import doctor
from .failures import EXIT_CODES, HELP, Terminal, reported
from .import_ import import_
from .logs import Level, configure
from .plan import plan
from .replay import replay
from .report import report
from .show import show
from .simulate import simulate
from .status import status
from .store import app as store
from .streams import allow_local_modules, open_streams
from .warm import warm


class Reporting(TyperGroup):
    """Commands whose errors end in an exit code and one message."""

    def main(self, *args: Any, **settings: Any) -> Any:
        open_streams()
        allow_local_modules()
        return super().main(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        # Any: the context's class is click's in older versions of typer, and typer's own in newer ones.
        terminal = ctx.ensure_object(Terminal)
        with reported(terminal):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Reporting,
    help="Keep several models resident on one device and decide, step by step, whose work runs next.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from .. import __version__

        typer.echo(f"coresident {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    log_level: Annotated[Level, typer.Option(help="What to log on stderr.")] = Level.WARNING,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    configure(log_level)
    context.ensure_object(Terminal).debug = debug


for command in (demo, chat, plan, devices, doctor, warm, status, replay, audit, show, report, simulate, calibrate):
    app.command(epilog=HELP)(command)
app.command("import", epilog=HELP)(import_)
app.add_typer(store, name="store")
