"""Prefixes to files and back under virtual time: grants, order, reservations, and that every request ends once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import attrs
import pytest
from coresident.actors.errors import ArtifactInvalid, BackendFault, BudgetExceeded, DeviceLost
from coresident.actors.events import Accepted, CheckpointEnded, Granted, PrefixDropped, PrefixRetained, Refused
from coresident.actors.messages import Cancel, FetchPrefix, Recover, StorePrefix
from coresident.actors.work import PrefixFile, StepKind
from coresident.policies.views import WorkClass
from coresident.runtime.backends.modelled import ModelledBackend
from hypothesis import given, settings
from hypothesis import strategies as st

from support.virtual import COST, HEADS, Log, Sim, config

TOKENS = tuple(range(64))
KV = COST.kv_bytes_per_token


class Events(Log):
    """Every event besides, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events = []

    def _note(self, event, at: int) -> None:
        self.events.append(event)
        super()._note(event, at)

    def of(self, *kinds):
        return [event for event in self.events if isinstance(event, kinds)]

    def checkpoint(self, request: str) -> CheckpointEnded | Refused:
        (end,) = [event for event in self.of(CheckpointEnded, Refused) if event.request == request]
        return end


class Breaking(ModelledBackend):
    """Raises ``error`` in the next store or fetch."""

    error: Exception | None = None

    def _broken(self, steps):
        error, self.error = self.error, None
        yield from self._spend(COST.prefill_ns)
        if error is not None:
            raise error
        yield from steps

    def store(self, model, handle, file):
        return self._broken(super().store(model, handle, file))

    def fetch(self, model, handle, file):
        return self._broken(super().fetch(model, handle, file))


def sim(**sections) -> Sim:
    return Sim(
        config=config(decision=False, **sections),
        cost=attrs.evolve(COST, copy_ns=100_000),
        backend=Breaking(attrs.evolve(COST, copy_ns=100_000), tuple(HEADS)),
        log=Events(),
    )


def store(host: Sim, at: float, request: str, path, tokens=TOKENS) -> None:
    message = StorePrefix(request, tuple(tokens), "model", str(path), "launch")
    host.at(at, lambda: host.host.send("generation", message))


def fetch(host: Sim, at: float, request: str, path, tokens=TOKENS, aligned=64) -> None:
    message = FetchPrefix(request, PrefixFile(str(path), "launch", "model", tuple(tokens), aligned, 16))
    host.at(at, lambda: host.host.send("generation", message))


def retained(host: Sim) -> int:
    return host.assembly.device.statistics().ledger.accounts["retained/generation"].used


@pytest.fixture
def path(tmp_path):
    """A file with 64 tokens."""
    host = sim()
    host.generate(0, "g", 64)
    store(host, 500, "s", tmp_path / "prefix")
    host.run()
    assert host.log.checkpoint("s").outcome == "completed"
    return tmp_path / "prefix"


def test_R66_a_restored_prefix_is_reused_as_if_it_had_been_computed(path):
    host = sim()
    fetch(host, 0, "f", path)
    host.generate(100, "g", 80)
    host.run()
    assert host.log.checkpoint("f") == CheckpointEnded("f", "completed", "", str(path), 64, 64 * KV)
    assert host.log.reuse["g"].reused == 64
    assert host.log.ends["g"].prefilled == 16


def test_F60_storing_and_fetching_take_a_grant_in_the_class_utility(path, tmp_path):
    host = sim()
    fetch(host, 0, "f", path)
    store(host, 100, "s", tmp_path / "again")
    host.run()
    grants = [(e.kind, e.work_class, e.charge) for e in host.log.of(Granted) if e.request in "fs"]
    assert grants == [(StepKind.FETCH, WorkClass.UTILITY, 0), (StepKind.STORE, WorkClass.UTILITY, 0)]


def test_the_bytes_of_a_fetch_are_reserved_before_it_runs_and_nothing_matches_before_it_ends(path):
    host = sim(generation={"sequences": 1})
    host.generate(0, "first", range(500, 600), 4)
    fetch(host, 1, "f", path)
    host.generate(2, "early", 80, retain=False)
    host.run(3)
    assert retained(host) == 64 * KV
    host.run()
    ended = host.log.events.index(host.log.checkpoint("f"))
    reused = host.log.events.index(host.log.reuse["early"])
    assert (host.log.reuse["early"].reused == 64) == (ended < reused)


def test_a_save_on_its_way_is_waited_for(tmp_path):
    host = sim()
    host.generate(0, "g", 64, retain=True)
    store(host, 76, "s", tmp_path / "prefix")
    host.run()
    saved = next(i for i, e in enumerate(host.log.events) if isinstance(e, PrefixRetained))
    assert host.log.events.index(host.log.checkpoint("s")) > saved
    assert host.log.checkpoint("s").outcome == "completed"


def test_a_fetch_of_what_is_retained_already_completes_without_the_device(path):
    host = sim()
    host.generate(0, "g", 64)
    fetch(host, 500, "f", path)
    host.run()
    assert (host.log.checkpoint("f").outcome, host.log.checkpoint("f").reason) == ("completed", "retained")
    assert [e for e in host.log.of(Granted) if e.kind is StepKind.FETCH] == []


def test_a_fetch_takes_the_place_of_shorter_heads_only_once_it_is_there(path):
    host = sim()
    host.generate(0, "g", 32)
    path.write_bytes(path.read_bytes()[:-1])
    fetch(host, 500, "bad", path)
    host.run()
    assert isinstance(host.log.checkpoint("bad").error, ArtifactInvalid)
    assert (retained(host), host.log.of(PrefixDropped)) == (32 * KV, [])


def test_what_does_not_fit_is_refused_with_the_numbers(path):
    host = sim(generation={"retained": 63 * KV})
    fetch(host, 0, "f", path)
    host.run()
    error = host.log.checkpoint("f").error
    assert isinstance(error, BudgetExceeded)
    assert (error.details["asked"], error.details["available"]) == (64 * KV, 63 * KV)


@pytest.mark.parametrize("error", [BackendFault("no"), DeviceLost("gone")])
@pytest.mark.parametrize("kind", ["store", "fetch"])
def test_E10_after_a_fault_nothing_is_held_and_the_next_one_works(path, tmp_path, kind, error):
    host = sim()
    if kind == "store":
        fetch(host, 0, "before", path)
        store(host, 100, "broken", tmp_path / "other")
    else:
        fetch(host, 100, "broken", path)
    host.at(99, lambda: setattr(host.backend, "error", error))
    host.host.run()
    end = host.log.checkpoint("broken")
    assert (end.outcome, type(end.error)) == ("failed", type(error))
    if isinstance(error, DeviceLost):
        assert retained(host) == 0
        host.at(300, lambda: host.host.send("supervisor", Recover("retry")))
    fetch(host, 400, "after", path)
    host.generate(600, "g", 80)
    host.run()
    assert host.log.checkpoint("after").outcome == "completed"
    assert host.log.reuse["g"].reused == 64
    host.close()


_moment = st.integers(0, 400)
_actions = st.lists(
    st.tuples(st.sampled_from(["generate", "store", "fetch", "cancel", "break", "lose"]), _moment), max_size=14
)


@given(actions=_actions, close=st.integers(0, 500))
@settings(deadline=None, max_examples=60)
def test_every_checkpoint_ends_once_and_the_ledger_ends_at_zero(actions, close):
    with tempfile.TemporaryDirectory() as folder:
        host = sim(generation={"sequences": 2, "retained": 150 * KV})
        asked = []
        for count, (action, at) in enumerate(sorted(actions, key=lambda action: action[1])):
            path = Path(folder) / f"prefix{count % 2}"
            match action:
                case "generate":
                    host.generate(at, f"g{count}", range(count % 3, 40 + 9 * (count % 5)), 3)
                case "store":
                    store(host, at, f"c{count}", path, range(count % 3, 60))
                case "fetch":
                    fetch(host, at, f"c{count}", path, range(count % 3, 60), aligned=48)
                case "cancel":
                    host.at(at, lambda: [host.host.send("generation", Cancel(request)) for request in asked])
                case "break" | "lose":
                    error = BackendFault("no") if action == "break" else DeviceLost("gone")
                    host.at(at, lambda error=error: setattr(host.backend, "error", error))
            if action in ("store", "fetch"):
                asked.append(f"c{count}")
        host.host.run(close * 1_000_000)
        host.close()
        for request in {event.request for event in host.log.of(CheckpointEnded)}:
            host.log.checkpoint(request)
        accepted = {event.request for event in host.log.of(Accepted)}
        assert accepted.intersection(asked) == {event.request for event in host.log.of(CheckpointEnded)}
        assert not list(Path(folder).glob(".*"))
