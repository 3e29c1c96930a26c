"""The page as text: whole, escaped, the same again, and honest about what did not happen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest
from coresident.actors.errors import InvalidRequest
from coresident.traces.events_schedule import EndGeneration
from coresident.traces.format import Event
from coresident.traces.header import PolicyHeader
from coresident.traces.report.facts import differences, facts, opening, setting
from coresident.traces.report.gather import read_runs
from coresident.traces.report.page import render
from coresident.traces.report.tables import comparison, relation
from coresident.traces.report.words import duration

from support.reporting import EVIL, LOG, SAMPLES, busy, never_run, trace, with_outcomes

VOID = {"meta", "link", "rect", "path", "br"}
SECTIONS = ["facts", "classes", "latency", "timeline", "memory", "preemption", "fairness", "reuse", "setting"]


class Parsed(HTMLParser):
    """The page's text, ids, links and data; fails on a tag that is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.scripts = 0
        self.data = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []
        self.addresses += [value for key, value in attrs if key in ("href", "src", "action", "srcset", "data")]
        self.scripts += tag == "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.data = self.data or data
        elif "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def pages(*paths: Path) -> str:
    return render(read_runs(paths))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trace(tmp_path_factory.mktemp("log") / "log.jsonl", LOG)


def test_the_page_of_samples_is_whole_and_needs_nothing_else() -> None:
    page = pages(*SAMPLES.values())
    parsed = Parsed(page)
    assert [each for each in SECTIONS if each not in parsed.ids] == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {address.split(":")[0] for address in parsed.addresses if not address.startswith("#")} == {"data"}
    assert {address[1:] for address in parsed.addresses if address.startswith("#")} <= set(parsed.ids)
    assert re.findall(r"url\(|@import|https?:", page) == []
    assert "default-src 'none'" in page
    for label in SAMPLES:
        assert label in parsed.text


def test_what_a_trace_says_is_text_and_never_markup(log: Path) -> None:
    page = pages(log)
    parsed = Parsed(page)
    assert parsed.scripts == 2
    assert "<script>alert" not in page
    assert "<b>raised" not in page
    assert EVIL in parsed.text
    assert "it <b>raised</b>" in parsed.text
    assert r"u\x1b[2J\ud800" in parsed.text
    assert any(EVIL in slice_[3] for slice_ in json.loads(parsed.data)[0]["slices"])
    assert page.encode()


def test_titles_and_labels_are_text_too(log: Path) -> None:
    path = log.with_name("<i>x&.jsonl")
    path.write_bytes(log.read_bytes())
    page = render(read_runs([path]), title="<u>A & B</u>\x1b")
    assert "<u>" not in page
    assert "<i>x" not in page
    assert r"<u>A & B</u>\x1b" in Parsed(page).text


def test_an_import_with_its_source_s_outcomes_is_told_without_a_device(tmp_path: Path) -> None:
    runs = read_runs([with_outcomes(tmp_path / "v.jsonl")])
    parsed = Parsed(render(runs))
    assert [each for each in SECTIONS if each in parsed.ids] == ["facts", "classes", "latency", "setting"]
    assert "v is imported from vllm: it has the times of its source, and no device." in parsed.text
    told = {fact.name: fact.entries[0].value for fact in facts(runs)}
    assert told == {"requests completed": "2 of 2", "first token of foreground answers": "100 ms"}
    rows = {name: cells[0].text for name, cells in dict(comparison(runs))["foreground"].rows}
    assert (rows["arrival to end, p50"], rows["arrival to end, worst"]) == ("500 ms", "1.30 s")
    text = Parsed(render([*runs, *read_runs([SAMPLES["chat"]])])).text
    assert "device busy v - not told by its source chat" in text
    assert "chat had: model" in text


def test_an_import_that_never_ran_is_refused_and_says_what_it_asks_for(tmp_path: Path) -> None:
    path = never_run(tmp_path / "azure.jsonl")
    with pytest.raises(InvalidRequest) as caught:
        read_runs([SAMPLES["chat"], path])
    assert (
        f"{path} has no run to report: it is imported from azure, not run: 1 decision and 2 foreground requests, "
        "arriving over 2.00 s; 235 prompt tokens, 7 generated at the source, longest context 107 tokens; "
        f"run it with coresident replay {path} --backend modelled"
    ) in str(caught.value)


def test_the_same_traces_give_the_same_bytes_in_another_process(log: Path) -> None:
    probe = (
        "import sys, hashlib; from pathlib import Path; from coresident.traces.report.gather import read_runs; "
        "from coresident.traces.report.page import render; "
        "print(hashlib.sha256(render(read_runs([Path(each) for each in sys.argv[1:]])).encode()).hexdigest())"
    )
    command = [sys.executable, "-c", probe, str(log), str(SAMPLES["preparation"])]
    digests = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_nothing_is_said_plainly_and_no_chart_is_empty(tmp_path: Path) -> None:
    page = pages(trace(tmp_path / "empty.jsonl", []))
    parsed = Parsed(page)
    for words in (
        "Nothing happened in this run: no request came.",
        "No requests in these runs.",
        "No request had the device in these runs.",
        "The device had nothing to do in these runs.",
        "No memory was reserved in these runs.",
        "Nothing was told to give way in these runs, and no step was given up.",
        "Nobody waited in these runs.",
        "No prompt was looked up in these runs.",
        "No preparation in these runs.",
    ):
        assert words in parsed.text
    assert "<svg" not in page


def test_a_run_is_named_apart_from_itself(log: Path) -> None:
    text = Parsed(pages(log, log)).text
    assert "2 runs: log and log (2)" in text
    assert "log (2) against log: of the times that are judged here none differs by a tenth." in text


def test_what_sets_runs_apart_is_said_at_once() -> None:
    chat, other = read_runs([SAMPLES["chat"], SAMPLES["preparation"]])
    never = {**chat.header.policies, "preparation": PolicyHeader("never")}
    runs = [attrs.evolve(chat, header=attrs.evolve(chat.header, policies=never)), other]
    text = Parsed(render(runs)).text
    shorter, longer = (duration(span) for span in sorted(run.statistics.span_ns for run in runs))
    apart = "They differ in preparation policy: never in chat, idle in preparation."
    long = f"The traces are {shorter} to {longer} long."
    assert text.index(long) < text.index(apart) < text.index("requests completed")


def test_much_that_sets_runs_apart_is_named_at_once_and_told_at_the_end() -> None:
    chat, other = read_runs([SAMPLES["chat"], SAMPLES["preparation"]])
    long = {kind: PolicyHeader(f"module_of_mine:{kind}_policy") for kind in chat.header.policies}
    odd = attrs.evolve(chat, label="odd", header=attrs.evolve(chat.header, policies=long))
    runs = [chat, odd, attrs.evolve(other, label="third", header=chat.header)]
    first, last = opening(runs)[-1], setting(runs)
    assert first.startswith("They differ in ordering policy, quantum policy")
    assert first.endswith("preparation policy: see Setting.")
    assert "They differ in ordering policy: strict in chat and third, module_of_mine:ordering_policy in odd." in last, (
        "a value is told once"
    )


def test_faults_come_first_and_in_words(log: Path) -> None:
    text = Parsed(pages(log)).text
    fault = "At 90 ms the quantum policy failed and was replaced: it <b>raised</b>"
    assert text.index("log: something went wrong") < text.index(fault) < text.index("requests completed")
    assert "At 85 ms step generation/9 used 2.0 KiB, and was charged 1.0 KiB" in text


def test_the_facts_by_hand(log: Path) -> None:
    told = {fact.name: (fact.entries[0].value, fact.entries[0].note) for fact in facts(read_runs([log]))}
    assert told == {
        "requests completed": ("2 of 6", "1 cancelled, 1 abstained, 1 refused and 1 open at the end"),
        "decisions, from arrival to end": ("15 ms", "median; 99 % within 15 ms"),
        "longest wait for the device": ("20 ms", "foreground open"),
        "device busy": ("44 %", "ledger at most 70 % of its partition"),
    }


def test_the_table_has_the_figures_of_the_statistics() -> None:
    runs = read_runs([SAMPLES["prefill"], SAMPLES["chat"]])
    tables = dict(comparison(runs))
    for name, table in tables.items():
        entries = [run.statistics.classes.get(name) for run in runs]
        rows = dict(table.rows)
        assert [cell.text for cell in rows["requests"]] == [f"{entry.requests}" if entry else "-" for entry in entries]
    decisions = dict(tables["decision"].rows)
    worst = [run.statistics.classes["decision"].queue_wait.max for run in runs]
    cells = decisions["queue wait, worst"]
    assert [cell.best for cell in cells] == [value == min(worst) for value in worst]
    assert cells[1].note == relation(*worst)
    assert decisions["not completed"][0].text == "none"


def test_fewer_completed_requests_are_told_before_any_time(tmp_path: Path) -> None:
    def without(event: Event) -> Event:
        cancelled = isinstance(event, EndGeneration) and event.request == "r7"
        return attrs.evolve(event, outcome="cancelled") if cancelled else event

    one, other = trace(tmp_path / "one.jsonl", busy(30)), trace(tmp_path / "other.jsonl", map(without, busy(30)))
    assert differences(read_runs([one, other])) == ["other against one: 1 request fewer completed."]
    assert differences(read_runs([other, one])) == ["one against other: 1 request more completed."]


def test_runs_with_other_requests_are_not_called_alike() -> None:
    (words,) = differences(read_runs([SAMPLES["prefill"], SAMPLES["chat"]]))
    assert words.startswith("chat had other requests than prefill: ")


def test_a_long_run_makes_no_long_page(tmp_path: Path) -> None:
    path = trace(tmp_path / "busy.jsonl", busy(1500))
    short, long = (render(read_runs([path], slices=slices)) for slices in (1500, 1499))
    assert len(long) < 150_000 < len(short) < 350_000
    assert "too many to draw one by one" in Parsed(long).text
    assert json.loads(Parsed(long).data)[0]["slices"] == []


def test_many_runs_make_no_long_page(tmp_path: Path) -> None:
    path = trace(tmp_path / "busy.jsonl", busy(200))
    assert len(pages(*[path] * 24)) < 1_500_000
