"""What a worker does with each message of its host: it opens a backend and runs steps on one thread of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from ...actors.errors import CoresidentError, InvalidRequest
from ...actors.messages import DeviceFault, GrantEnded, Message
from ...actors.work import Grant, LoadWork
from ..backends.catalog import Opened
from ..backends.contract import Backend, PlanRequest
from ..config import Config, structure
from ..host.executor import DeviceExecutor, Post, as_failure
from ..host.steps import Run
from ..models.sampling import SamplingParams
from .files import FileClaim, verified
from .flat import Body, unflatten
from .frames import FrameInvalid
from .messages import WORKS, check_hello, ended_body, error_body, hello_body, load_of, step_of
from .remote import RemoteStreams

Opener = Callable[[Config], Opened]


class _StepThread(DeviceExecutor):
    """The device's thread in a worker: a load reads only files that are what its manifest says."""

    def __init__(self, backend: Backend, streams: RemoteStreams, plans: Mapping[str, PlanRequest], post: Post) -> None:
        super().__init__(backend, streams, plans, post)
        self.manifests: dict[str, tuple[FileClaim, ...]] = {}

    def _begin(self, grant: Grant) -> Run:
        run = super()._begin(grant)
        if isinstance(grant.step.work, LoadWork):
            run.segments = verified(self.manifests[grant.step.work.model], run.segments)
        return run


class Worker:
    """Takes messages on one thread; ``send`` may be called from two."""

    def __init__(self, send: Callable[[Body], None], opener: Opener) -> None:
        self._send = send
        self._opener = opener
        self._streams = RemoteStreams(send)
        self._plans: dict[str, PlanRequest] = {}
        self._device: _StepThread | None = None
        self._greeted = False

    def take(self, body: Body) -> None:
        """Carry out one message; what is wrong with it is its answer, and the worker lives on."""
        try:
            self._carry_out(body)
        except Exception as error:
            self._send(error_body(body["id"], as_failure(error).error))

    def end(self, seconds: float) -> bool:
        """The host is gone or wants the end: give up what runs, within a time. Whether it has ended."""
        if self._device is None:
            return True
        self._streams.hang_up()
        return self._device.end_within(seconds)

    def _carry_out(self, body: Body) -> None:
        kind = body["kind"]
        if kind == "hello":
            check_hello(body, "the host")
            self._greeted = True
            self._send(hello_body(body["id"]))
        elif not self._greeted:
            raise InvalidRequest(f"a {kind} frame came before hello", field="kind", value=kind)
        elif kind == "open":
            self._open(body)
        elif kind in WORKS:
            self._step(body)
        else:
            self._other(kind, body)

    def _open(self, body: Body) -> None:
        if self._device is not None:
            raise InvalidRequest("the worker is open already: start another one")
        models = _texts(body, "models")
        try:
            config = structure(json.loads(str(body.get("config"))), "the host's configuration")
        except ValueError as error:
            raise FrameInvalid(f"the host's configuration is not JSON: {error}") from error
        backend = self._opener(config).backend
        digests = [backend.describe(model).digest for model in models]
        self._device = _StepThread(backend, self._streams, self._plans, self._post)
        self._device.start()
        self._send({"kind": "opened", "id": body["id"], "models": models, "digests": digests})

    def _step(self, body: Body) -> None:
        device = self._opened(body["kind"])
        grant = step_of(body)
        if isinstance(grant.step.work, LoadWork):
            model = grant.step.work.model
            self._plans[model], device.manifests[model] = load_of(body)
        self._streams.grant = grant.grant
        device.run(grant)

    def _other(self, kind: str, body: Body) -> None:
        match kind:
            case "verdict":
                self._streams.judged(body)
            case "sampler":
                self._streams.open(_text(body, "request"), unflatten(SamplingParams, body))
            case "forget":
                self._streams.close(_text(body, "request"))
            case "yield":
                self._opened(kind).ask_yield(body["id"], body.get("give_up") is True)
            case "drop_suspended":
                self._opened(kind).drop_suspended(_text(body, "step"))
            case "drop_retained":
                self._opened(kind).drop_retained(_text(body, "model"), _integer(body, "handle"))
            case "unload":
                self._opened(kind).unload(_text(body, "model"))
            case _:
                raise InvalidRequest(
                    f"frame kind {kind!r} is not known to this worker: run the same version of coresident on both "
                    "sides",
                    field="kind",
                    value=kind,
                )

    def _opened(self, kind: str) -> _StepThread:
        if self._device is None:
            raise InvalidRequest(f"a {kind} frame came before the worker was opened", field="kind", value=kind)
        return self._device

    def _post(self, to: str, message: Message) -> None:
        """From the device's thread. An outcome that can't be sent ends its grant as failed."""
        match message:
            case GrantEnded(grant, outcome):
                try:
                    self._send(ended_body(grant, outcome))
                except CoresidentError as error:
                    self._send(ended_body(grant, as_failure(error)))
            case DeviceFault(error):
                self._send(error_body(0, error, "fault"))
            case _:
                raise TypeError(f"a device's thread does not say {type(message).__name__}")


def _text(body: Body, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise FrameInvalid(f"field {name} of a {body['kind']} frame is {value!r}, not a text", field=name)
    return value


def _texts(body: Body, name: str) -> list[str]:
    value = body.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FrameInvalid(f"field {name} of a {body['kind']} frame is not a list of texts", field=name)
    return value


def _integer(body: Body, name: str) -> int:
    value = body.get(name)
    if type(value) is not int:
        raise FrameInvalid(f"field {name} of a {body['kind']} frame is {value!r}, not an integer", field=name)
    return value
