"""Runs to record: a chat on the virtual host with decisions, cancels, retries, retained prefixes and a refusal."""

from __future__ import annotations

from pathlib import Path

from coresident.actors.events import DecisionEnded, GenerationEnded, PreparationEnded
from coresident.actors.messages import Cancel, Close, Start, SubmitDecision, SubmitGeneration, SubmitPreparation
from coresident.policies.views import WorkClass
from coresident.runtime.backends.modelled import CountingSampler, ModelledBackend
from coresident.runtime.config import structure
from coresident.runtime.host.assembly import assemble
from coresident.runtime.host.steps import Stream
from coresident.runtime.host.virtual import VirtualHost
from coresident.traces.recorder import Recorder

CONFIG = structure({"device": {"backend": "modelled"}, "generation": {"context": 2048, "chunk": 128}})
HEADS = {head.name: head.kind for head in CONFIG.decision.verbalizers}
MS = 1_000_000
SYSTEM = tuple(range(100, 250))


def modelled_assembly(config=CONFIG, backend=None):
    return assemble(config, backend or ModelledBackend(heads=tuple(HEADS)), HEADS)


class Client:
    """Submits to a virtual host and remembers outputs, as an application would."""

    def __init__(self, host):
        self.host = host
        self.outputs = {}
        self.then = {}
        host.listen_all(self._event)

    def generate(self, request, prompt, tokens, stop_at=None, **fields):
        taken = self.outputs[request] = []

        def take(_, sampled):
            taken.append(sampled.token)
            return "stop_token" if len(taken) == stop_at else None

        self.host.streams.open(request, Stream(CountingSampler(len(request)), take))
        self.host.send("generation", SubmitGeneration(request, tuple(prompt), tokens, "template", **fields))

    def decide(self, request, rows, instruction=(7, 8, 9), **fields):
        message = SubmitDecision(request, instruction, tuple(map(tuple, rows)), tuple(HEADS), "judge", **fields)
        self.host.send("decision", message)

    def prepare(self, request, known, conversation="", **fields):
        message = SubmitPreparation(request, tuple(known), len(SYSTEM), "template", conversation, **fields)
        self.host.send("generation", message)

    def _event(self, event, at):
        if isinstance(event, GenerationEnded | DecisionEnded | PreparationEnded):
            self.host.streams.close(event.request)
            function = self.then.pop(event.request, None)
            if function is not None:
                function()


def chat(client):
    """Every kind of workload event, from readiness on."""
    host, start = client.host, client.host.now
    first = (*SYSTEM, *range(40))

    def second_turn():
        answer = client.outputs["turn1"]
        host.call_at(
            host.now + 30 * MS,
            lambda: client.generate("turn2", (*first, *answer, 1, 2, 3), 9, stop_at=5, after="turn1"),
        )
        client.decide("gate2", [[4, 4]], after="turn1")

    client.then["turn1"] = second_turn
    client.generate("turn1", first, 6)
    host.call_at(start + 90 * MS, lambda: client.decide("gate1", [[1, 2], [1, 3], [5]]))
    host.call_at(start + 400 * MS, lambda: client.generate("cancelled", (*SYSTEM, 9, 9), 50))
    host.call_at(start + 800 * MS + 7, lambda: host.send("generation", Cancel("cancelled", "changed my mind")))
    host.call_at(start + 900 * MS, lambda: client.generate("early", range(300), 20, work_class=WorkClass.UTILITY))
    host.call_at(start + 901 * MS, lambda: host.send("generation", Cancel("early")))
    host.call_at(start + 950 * MS, lambda: client.generate("retry", (*SYSTEM, 9, 9), 4, retain=False))
    host.call_at(start + 960 * MS, lambda: client.generate("long", range(2048), 1))
    host.call_at(start + 970 * MS, lambda: client.decide("late", [[3] * 40], deadline=host.now + 2 * MS))
    host.call_at(start + 980 * MS, lambda: client.generate("timed", [6] * 20, 40, deadline=host.now + 300 * MS))


def prepared_chat(client):
    """Every end of a preparation that the default policy leads to, and prompts that begin with what was prepared."""
    host = client.host
    known = (*SYSTEM, *range(300))

    def at(ms, function):
        host.call_at(host.now + ms * MS, function)

    def second():
        after = (*known, 7, 7, *client.outputs["turn1"], *range(400))
        client.prepare("half", after[:-100], "talk", after="turn1")
        at(60, lambda: client.prepare("whole", after, "talk"))
        at(130, lambda: client.generate("turn2", (*after, 8, 8), 5))

    client.then["ahead"] = lambda: at(20, lambda: client.generate("turn1", (*known, 7, 7), 5, after="ahead"))
    client.then["turn1"] = second
    client.prepare("ahead", known, "talk")
    at(30, lambda: client.decide("gate", [[1, 2]]))
    at(4000, lambda: client.prepare("unwanted", range(5000, 6000), "other"))
    at(4100, lambda: host.send("generation", Cancel("unwanted", "left")))
    at(4200, lambda: client.prepare("long", range(3000)))
    at(4300, lambda: client.prepare("idle", range(700, 1000)))


def record_chat(path: Path, content: bool = False, story=chat, observers=()):
    """Record ``story`` on the virtual host; the assembly it ran on."""
    assembly = modelled_assembly()
    recorder = Recorder.open(path, assembly, content=content)
    play(assembly, story, (recorder, *observers))
    recorder.close()
    assert recorder.error is None
    return assembly


def play(assembly, story, observers):
    host = VirtualHost(assembly.actors, assembly.backend, assembly.plans, observers)
    host.send("supervisor", Start())
    host.run()
    story(Client(host))
    host.run()
    host.send("supervisor", Close())
    host.run()
