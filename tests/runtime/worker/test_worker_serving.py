"""What a worker answers, without a process around it."""

from __future__ import annotations

import hashlib
import json
import threading

import attrs
import pytest
from coresident.actors.errors import ArtifactInvalid, BackendFault, InvalidRequest
from coresident.actors.messages import Failed, Finished
from coresident.actors.work import Grant, LoadWork, PrefillWork, StepRequest, WarmupWork
from coresident.policies.views import WorkClass
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.worker import messages
from coresident.runtime.worker.files import FileClaim
from coresident.runtime.worker.flat import decode_body, encode_body
from coresident.runtime.worker.serving import Worker
from hypothesis import given, settings
from hypothesis import strategies as st

from support.live import config, device_threads

PLAN = PlanRequest(64, 1, 16)


class Bench:
    """A worker and the frames it sent."""

    def __init__(self, opener=open_backend) -> None:
        self.sent = []
        self._news = threading.Semaphore(0)
        self.worker = Worker(self._send, opener)

    def _send(self, body):
        self.sent.append(decode_body(encode_body(body)))
        self._news.release()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self.worker.end(10)
        assert device_threads() == []

    def say(self, kind, number=1, **fields):
        """The first answer to a message."""
        count = len(self.sent)
        self.worker.take(decode_body(encode_body({"kind": kind, "id": number, **fields})))
        return self.sent[count] if len(self.sent) > count else None

    def error(self, *args, **fields):
        body = self.say(*args, **fields)
        assert (body["kind"], body["id"]) == ("error", 1)
        return messages.error_of(body)

    def greet(self):
        assert messages.hello_body(1) == self.say(**_named(messages.hello_body(1)))
        return self

    def open(self):
        text = json.dumps(attrs.asdict(config(), filter=lambda attribute, _: attribute.name != "policies"))
        opened = self.greet().say("open", config=text, models=["generation"])
        assert opened["kind"] == "opened", opened
        return self

    def run(self, work, manifest=(), **more):
        """How a step ended."""
        step = StepRequest("s/1", "", "", WorkClass.FOREGROUND, work, 4 << 20, 0, 0)
        body = messages.step_body(Grant(7, step))
        if isinstance(work, LoadWork):
            body |= messages.load_fields(PLAN, manifest)
        before = len(self.sent)
        self.worker.take(decode_body(encode_body({**body, **more})))
        while not any(body["kind"] in ("ended", "error") for body in self.sent[before:]):
            assert self._news.acquire(timeout=30)
        (answer,) = [body for body in self.sent[before:] if body["kind"] in ("ended", "error")]
        return messages.ended_of(answer) if answer["kind"] == "ended" else Failed(messages.error_of(answer))


def _named(body):
    return {"number" if name == "id" else name: value for name, value in body.items()}


def test_R49_what_is_not_known_or_comes_too_early_is_answered_typed_and_the_worker_lives_on():
    with Bench() as bench:
        assert "came before hello" in bench.error("load").message
        bench.greet()
        assert "frame kind 'dance' is not known" in bench.error("dance").message
        assert isinstance(bench.error("dance"), InvalidRequest)
        assert "came before the worker was opened" in bench.error("yield").message
        assert "is not JSON" in bench.error("open", config="{", models=[]).message
        assert "unknown keys speed" in bench.error("open", config='{"device": {"speed": 1}}', models=[]).message
        assert isinstance(bench.error("prefill"), InvalidRequest)


def test_R46_R47_a_load_makes_the_round_trip_and_needs_its_manifest():
    with Bench().open() as bench:
        assert "open already" in bench.error("open", config="{}", models=[]).message
        assert isinstance(bench.run(LoadWork("generation")), Finished)
        assert isinstance(bench.run(WarmupWork("generation")), Finished)
        load = StepRequest("s", "", "", WorkClass.FOREGROUND, LoadWork("generation"), 0, 0, 0)
        step = messages.step_body(Grant(1, load))
        assert "carries no manifest" in bench.error(**_named(step)).message
        unknown = bench.run(PrefillWork("generation", "generation", "g1", 0, 0, (1, 2), True))
        assert "request g1 has no sampler in the worker" in unknown.error.message
        cold = bench.run(PrefillWork("generation", "generation", "g1", 0, 0, (1, 2), False))
        assert isinstance(cold, Finished)
        assert isinstance(bench.run(LoadWork("other")), Failed)


@pytest.mark.parametrize(
    ("claim", "complaint"),
    [
        ({"size": 5}, "its size is 4, its manifest says 5"),
        ({"digest": "00"}, "its digest is 9f86d0818.*, its manifest says 00"),
        ({"path": "nowhere"}, "nowhere: can't be read"),
    ],
)
def test_a_load_reads_only_files_that_are_what_the_manifest_says(claim, complaint, tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"test")
    good = FileClaim(str(path), hashlib.sha256(b"test").hexdigest(), 4)
    with Bench().open() as bench:
        assert isinstance(bench.run(LoadWork("generation"), [good]), Finished)
        failed = bench.run(LoadWork("generation"), [good, attrs.evolve(good, **claim)])
        assert isinstance(failed.error, ArtifactInvalid)
        failed_again = bench.run(LoadWork("generation"), [attrs.evolve(good, **claim)])
        with pytest.raises(ArtifactInvalid, match=complaint):
            raise failed_again.error


def test_R49_an_operation_that_is_not_implemented_is_a_typed_error():
    class Unfinished:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def warm(self, *args):
            raise NotImplementedError("warm")

    def opener(settings_):
        opened = open_backend(settings_)
        return attrs.evolve(opened, backend=Unfinished(opened.backend))

    with Bench(opener).open() as bench:
        bench.run(LoadWork("generation"))
        failed = bench.run(WarmupWork("generation"))
        assert isinstance(failed.error, BackendFault)
        assert "NotImplementedError: warm" in failed.error.message
        assert isinstance(bench.run(LoadWork("generation")), Finished)


KINDS = [*messages.CAPABILITIES, "hello", "ended", "x"]
FIELDS = ["request", "model", "step", "handle", "stops", "raised", "give_up", "config", "models", "temperature", "role"]
values = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.lists(st.integers(0, 3), max_size=3)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), values)), max_size=6))
def test_no_message_ends_a_worker(said):
    with Bench().greet() as bench:
        for kind, fields in said:
            answer = bench.say(kind, **fields)
            assert answer is None or answer["kind"] in ("error", "opened", "hello")
        assert "frame kind 'dance' is not known" in bench.error("dance").message
