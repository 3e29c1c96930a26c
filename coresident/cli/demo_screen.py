"""The demo's screen: the answer, who holds the device, the memory account, and the decisions, at a glance."""

from __future__ import annotations

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..actors.events import Granted
from ..actors.work import StepKind
from ..policies.views import WorkClass
from .demo_run import Decided, Run
from .wording import duration, percentile, size

STYLES = {
    WorkClass.DECISION: "bold magenta",
    WorkClass.FOREGROUND: "green",
    WorkClass.UTILITY: "cyan",
    WorkClass.PREPARATION: "blue",
}
LETTERS = {StepKind.PREFILL: "p", StepKind.DECODE: "t", StepKind.DECISION: "D"}
BAR = (("weights", "#", "yellow"), ("kv", "=", "green"), ("decision_kv", "d", "magenta"), ("retained", "r", "cyan"))
BESIDE = 100
ROOMY = 30


class DemoScreen:
    """Draws a run as it is at the moment of drawing."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        beside = width >= BESIDE
        small = console.height < ROOMY
        frame = (14 if small else 18) if beside else (19 if small else 24)
        inner = (width // 2 if beside else width) - 4
        device, memory = self._device(inner, 1 if small else 2), self._memory(inner, small)
        yield _one_line(Text(self._run.label or "loading the model", style="bold"))
        yield self._answer(width - 4, max(1, console.height - frame))
        if beside:
            pair = Table.grid(expand=True)
            pair.add_column(ratio=1)
            pair.add_column(ratio=1)
            pair.add_row(device, memory)
            yield pair
        else:
            yield device
            yield memory
        yield self._decisions(1 if small else 2)

    # --- the answer ---------------------------------------------------------------------------------------------

    def _answer(self, width: int, lines: int) -> Panel:
        run = self._run
        wrapped = Text(run.text).wrap(Console(width=width), width)
        body = Text("\n").join(wrapped[-lines:]) if run.text else Text(_phase(run), style="dim")
        body.end = ""
        rate = "" if run.rate is None else f" · {run.rate:.1f} tokens/s"
        title = f"answer · {len(run.token_times)} of {run.tokens_asked} tokens{rate} · {_phase(run)}"
        return _panel(body, title, STYLES[WorkClass.FOREGROUND])

    # --- the device ---------------------------------------------------------------------------------------------

    def _device(self, width: int, strips: int) -> Panel:
        watch = self._run.watch
        grants = list(watch.strip)[-strips * width :]
        lines = [_holder(watch.now), *(strip(grants[part * width :][:width]) for part in range(strips))]
        lines.append(Text("grants: D decision  p prefill  t tokens  . other", style="dim"))
        return _panel(Group(*(_one_line(line) for line in lines)), "who has the device", "yellow")

    # --- memory -------------------------------------------------------------------------------------------------

    def _memory(self, width: int, small: bool) -> Panel:
        statistics = self._run.statistics_now()
        if statistics is None:
            return _panel(Text("nothing reserved yet" + "\n" * (2 if small else 3)), "memory", "yellow")
        ledger = statistics.device.ledger
        reserved = {
            name: sum(a.reserved for key, a in ledger.accounts.items() if key.split("/")[0] == name)
            for name, _, _ in BAR
        }
        bar, legend = Text(), Text()
        for name, mark, style in BAR:
            bar.append(mark * round(width * reserved[name] / ledger.partition), style)
            figure = "" if small else f" {size(reserved[name])}"
            legend.append(f"{mark} {name.replace('_', ' ')}{figure}  ", style)
        space = ledger.accounts["workspace"]
        bar.append("w" * round(width * space.reserved / ledger.partition), "red")
        legend.append("w workspace" if small else f"w workspace {size(space.reserved)}", "red")
        bar.append("." * max(0, width - len(bar)), "dim")
        now = Text(f"workspace charged now {size(space.used)}, most {size(space.peak)}")
        title = f"memory · {size(ledger.reserved)} of {size(ledger.partition)} reserved"
        return _panel(Group(_one_line(bar), legend, _one_line(now)), title, "yellow")

    # --- decisions ----------------------------------------------------------------------------------------------

    def _decisions(self, latest: int) -> Panel:
        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        table.add_column("message", ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column("urgent", justify="right")
        table.add_column("waited", justify="right")
        table.add_column("for", no_wrap=True)
        table.add_column("answered in", justify="right")
        for decided in self._run.decided[-latest:]:
            self._add(table, decided)
        for _ in range(2 * latest - table.row_count):
            table.add_row("", "", "", "", "")
        times = self._run.latencies()
        title = f"decisions · {len(times)} answered"
        if times:
            title += (
                f" · last {duration(times[-1])} · p50 {duration(percentile(times, 0.5))} · max {duration(max(times))}"
            )
        return _panel(table, title, STYLES[WorkClass.DECISION])

    def _add(self, table: Table, decided: Decided) -> None:
        waited = self._run.watch.decisions[decided.result.request]
        scores = decided.result.scores.get("probability", ("-",) * len(decided.rows))
        for place, (row, score) in enumerate(zip(decided.rows, scores, strict=True)):
            value = score if isinstance(score, str) else f"{score:.2f}"
            first = (duration(waited.waited_ns), waited.waited_for, duration(waited.total_ns))
            table.add_row(row, value, *(first if place == 0 else ("", "", "")))


def strip(grants: list[Granted]) -> Text:
    """One letter a grant, coloured by class; the newest is last."""
    line = Text()
    for grant in grants:
        line.append(LETTERS.get(grant.kind, "."), STYLES[grant.work_class])
    return line


def _holder(now: Granted | None) -> Text:
    if now is None:
        return Text("nobody", style="dim")
    if now.kind in (StepKind.LOAD, StepKind.WARMUP):
        return Text(f"the {now.kind.value} of a model", style="yellow")
    line = Text(now.work_class.label, style=STYLES[now.work_class])
    resumed = "resumed " if now.resumed else ""
    return line.append(f" · {resumed}{now.kind.value} of {now.request}, {size(now.charge)} charged", "default")


def _phase(run: Run) -> str:
    phases = {
        "loading": "loading the model",
        "answering": "prefilling" if not run.token_times else "streaming",
        "answered": "complete",
        "checking": "now once more alone, to compare",
        "done": "complete",
    }
    return phases[run.phase]


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _panel(body: object, title: str, style: str) -> Panel:
    return Panel(body, title=title, title_align="left", border_style=style, box=box.ROUNDED)  # type: ignore[arg-type]
