"""The registry between processes: partitions asked for in one instant, and processes that end without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from coresident.actors.errors import BudgetExceeded
from coresident.runtime.host.registrations import Claim
from coresident.runtime.host.registry import LOCK, Registry

PHYSICAL = 62
ROUNDS = 15
PROGRAM = """
import sys
from pathlib import Path
from coresident.actors.errors import BudgetExceeded
from coresident.runtime.host.registrations import Claim
from coresident.runtime.host.registry import Registry
registry, mine = Registry(Path(sys.argv[1])), None
print("here", flush=True)
for line in sys.stdin:
    partition = int(line)
    if mine is not None:
        mine.release()
        mine = None
    if partition:
        try:
            mine = registry.register(Claim("gpu", partition, 62, "reference", "a model"))
        except BudgetExceeded as error:
            print("refused", error.details["available"], flush=True)
            continue
    print("admitted" if mine else "released", flush=True)
"""


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "run")


@pytest.fixture
def asking(registry) -> Iterator[Callable[[], subprocess.Popen]]:
    """Start a process that registers what it is told to."""
    processes = []

    def start():
        command = [sys.executable, "-c", PROGRAM, str(registry.path)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def tell(process, partition) -> None:
    process.stdin.write(f"{partition}\n")
    process.stdin.flush()


def answer(process) -> str:
    return process.stdout.readline().strip()


def test_FIELD_1_of_two_that_ask_in_one_instant_for_more_than_there_is_one_is_admitted(registry, asking):
    processes = [asking(), asking()]
    assert [answer(process) for process in processes] == ["here", "here"]
    for _ in range(ROUNDS):
        for process, partition in zip(processes, (42, 32), strict=True):
            tell(process, partition)
        answers = sorted(answer(process) for process in processes)
        assert answers[0] == "admitted"
        assert answers[1] in ("refused 20", "refused 30")
        assert sum(entry.claim.partition for entry in registry.entries()) in (42, 32)
        for process in processes:
            tell(process, 0)
            assert answer(process) == "released"
        assert registry.entries() == ()


def test_a_stopped_process_keeps_what_it_holds_and_a_killed_one_gives_it_back_at_once(registry, asking):
    process = asking()
    assert answer(process) == "here"
    tell(process, 42)
    assert answer(process) == "admitted"
    mine = Claim("gpu", 32, PHYSICAL, "reference", "mine")
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(BudgetExceeded, match=f"process {process.pid} with a model on reference holds 42"):
        registry.register(mine)
    process.kill()
    process.wait()
    assert registry.entries() == ()
    registration = registry.register(mine)
    assert [entry.pid for entry in registry.entries()] == [os.getpid()]
    assert sorted(os.listdir(registry.path)) == sorted([LOCK, f"{registration.name}.json"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_neither_keeps_nor_gives_back_what_its_parent_holds(registry):
    registration = registry.register(Claim("gpu", 42, PHYSICAL, "reference", "mine"))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        registration.release()
        os.write(writing, b"x")
        signal.pause()
    os.close(writing)
    try:
        assert os.read(reading, 1) == b"x"
        assert len(registry.entries()) == 1
        registration.release()
        registry.register(Claim("gpu", PHYSICAL, PHYSICAL, "reference", "mine"))
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
