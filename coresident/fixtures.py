"""Static request fixtures: a request as it was assembled, in a file, to be measured elsewhere and run back in.

Format ``coresident.request/1``: one JSON object in UTF-8, one field a line in the order of :class:`AssembledRequest`
after ``schema``; what the caller gave (messages, tools with their schemas, template options) keeps its order. The same
request gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import attrs

from .actors.errors import ArtifactInvalid, InvalidRequest
from .runtime.models.known import Messages, render_known
from .runtime.models.sampling import SamplingParams
from .runtime.models.text import Prompt, Rendered, TextKit

SCHEMA = "coresident.request/1"
SHOWN = 80


def _refuse(field: str, value: object, needed: str) -> NoReturn:
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN else shown[:SHOWN] + "..."
    raise InvalidRequest(f"{field} is {shown}: {needed}", field=field, value=value)


def _check_whole(field: str, value: object, least: int) -> None:
    if type(value) is not int or value < least:
        _refuse(field, value, f"a whole number of at least {least} is needed")


def _check_text(field: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        _refuse(field, value, "a text that is not empty is needed")


def _check_objects(field: str, value: object) -> None:
    if value is not None and not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        _refuse(field, value, "a list of objects is needed, or null")


@attrs.frozen
class Boundaries:
    """Where the prompt's parts end, in tokens from its start, and the prefill chunk of the scheduler that assembled it.

    ``standing``: 0 where no standing part was named, or where prompts don't begin with its tokens whatever follows.
    """

    standing: int
    prompt: int
    chunk: int

    def __attrs_post_init__(self) -> None:
        for field, least in (("standing", 0), ("prompt", 1), ("chunk", 1)):
            _check_whole(f"boundaries.{field}", getattr(self, field), least)
        if self.standing > self.prompt:
            _refuse("boundaries.standing", self.standing, f"it lies behind the prompt's end at {self.prompt}")


@attrs.frozen
class AssembledRequest:
    """A request down to its tokens. Made by ``Scheduler.assemble`` and :func:`load_request`; ``generate`` runs it.

    ``library`` is the version that assembled it; ``model`` the model's label. ``text`` or ``messages`` are the prompt
    as given, both ``None`` for token ids; ``template_digest`` is ``None`` where no chat template took part.
    ``messages``, ``tools`` and ``template_options`` are copies, unchanged.

    Raises:
        InvalidRequest: a field that cannot be; names it and its value.
    """

    library: str
    model: str
    model_digest: str
    template_digest: str | None
    identity: str
    tokens: tuple[int, ...]
    boundaries: Boundaries
    text: str | None
    messages: list[dict[str, Any]] | None
    tools: list[dict[str, Any]] | None
    template_options: dict[str, Any]
    max_tokens: int
    sampling: SamplingParams

    def __attrs_post_init__(self) -> None:
        for field in ("library", "model", "model_digest", "identity"):
            _check_text(field, getattr(self, field))
        for place, token in enumerate(self.tokens):
            _check_whole(f"tokens[{place}]", token, 0)
        if self.boundaries.prompt != len(self.tokens):
            _refuse("boundaries.prompt", self.boundaries.prompt, f"there are {len(self.tokens)} tokens")
        if self.template_digest is not None:
            _check_text("template_digest", self.template_digest)
        if self.text is not None and not isinstance(self.text, str):
            _refuse("text", self.text, "a text is needed, or null")
        _check_objects("messages", self.messages)
        _check_objects("tools", self.tools)
        if not isinstance(self.template_options, dict):
            _refuse("template_options", self.template_options, "an object is needed")
        _check_whole("max_tokens", self.max_tokens, 1)

    def export(self, path: str | Path) -> None:
        """Write the fixture, in place of a file of that name. Raises ``InvalidRequest`` where it can't be written."""
        fields = {"schema": SCHEMA, **attrs.asdict(self)}
        lines = [f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in fields.items()]
        try:
            Path(path).write_bytes(("{\n" + ",\n".join(lines) + "\n}\n").encode())
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be written: {error}", field="path", value=str(path)) from error


def _copied(field: str, value: object) -> Any:
    """The same value, apart from the caller's. Refused when JSON would change it."""
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        _refuse(field, value, f"a fixture holds JSON values only: {error}")
    if copy != value:
        _refuse(field, value, "a fixture holds JSON values only (lists, objects with text keys), and this would change")
    return copy


def assemble_request(
    kit: TextKit,
    prompt: Prompt,
    rendered: Rendered,
    *,
    standing: Messages | str | None,
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any] | None,
    chunk: int,
    max_tokens: int,
    sampling: SamplingParams,
) -> AssembledRequest:
    """What ``rendered`` was made of, and its boundaries. Raises ``InvalidRequest`` as ``Scheduler.assemble``."""
    text = prompt if isinstance(prompt, str) else None
    chat = text is None and not isinstance(prompt[0], int)
    return AssembledRequest(
        library=version("coresident"),
        model=kit.tokenizer.label,
        model_digest=kit.digest,
        template_digest=kit.template.digest(options or {}) if chat else None,
        identity=rendered.identity,
        tokens=rendered.tokens,
        boundaries=Boundaries(_standing(kit, rendered, standing, tools, options), len(rendered.tokens), chunk),
        text=text,
        messages=_copied("messages", list(prompt)) if chat else None,
        tools=None if tools is None else _copied("tools", list(tools)),
        template_options=_copied("template_options", dict(options or {})),
        max_tokens=max_tokens,
        sampling=sampling,
    )


def _standing(
    kit: TextKit,
    rendered: Rendered,
    standing: Messages | str | None,
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any] | None,
) -> int:
    if standing is None:
        return 0
    known = render_known(kit, standing, (), tools, options)
    if rendered.tokens[: known.standing] != known.tokens[: known.standing]:
        _refuse("standing", standing, "the prompt does not begin with it")
    return known.standing


def run_back(request: AssembledRequest, kit: TextKit, given: Mapping[str, object], force: bool) -> Rendered:
    """The prompt of a fixture for the model of ``kit``; ``given`` are arguments that it already answers.

    Raises:
        InvalidRequest: another model assembled it (``force`` runs its tokens all the same), a token outside the
            vocabulary, or an argument beside it.
    """
    for name, value in given.items():
        if value is not None:
            _refuse(name, value, "an assembled request has its own; change it there with attrs.evolve")
    here = kit.render(request.tokens)
    if request.model_digest == kit.digest:
        return Rendered(request.tokens, request.identity)
    if not force:
        raise InvalidRequest(
            f"the request was assembled for {request.model} with digest {request.model_digest}, but "
            f"{kit.tokenizer.label} with digest {kit.digest} is resident: open that model, or run the same tokens on "
            "this one with force=True",
            field="model_digest",
            value=request.model_digest,
            resident=kit.digest,
        )
    return here


# --- reading ----------------------------------------------------------------------------------------------------------


def load_request(path: str | Path) -> AssembledRequest:
    """Read a fixture.

    Raises:
        ArtifactInvalid: it can't be read, or isn't one; names the file, the field and the value.
    """
    try:
        return _request(json.loads(Path(path).read_bytes(), object_pairs_hook=_once, parse_constant=_no_constant))
    except InvalidRequest as error:
        raise ArtifactInvalid(f"{path}: {error}", **{**error.details, "file": str(path)}) from error
    except OSError as error:
        raise ArtifactInvalid(
            f"{path} cannot be read: {error}", file=str(path), field="path", value=str(path)
        ) from error
    except (ValueError, RecursionError) as error:
        raise ArtifactInvalid(f"{path} is no JSON: {error}", file=str(path), field="file", value=str(error)) from error


def _request(data: object) -> AssembledRequest:
    fields = dict(_object("request", data))
    if (schema := fields.pop("schema", None)) != SCHEMA:
        _refuse("schema", schema, f"{SCHEMA!r} is read")
    _check_fields("", AssembledRequest, fields)
    if not isinstance(fields["tokens"], list):
        _refuse("tokens", fields["tokens"], "a list of token ids is needed")
    for name, cls in (("boundaries", Boundaries), ("sampling", SamplingParams)):
        inner = _object(name, fields[name])
        _check_fields(f"{name}.", cls, inner)
        fields[name] = cls(**inner)
    return AssembledRequest(**{**fields, "tokens": tuple(fields["tokens"])})


def _object(field: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(field, value, "an object is needed")
    return value


def _check_fields(where: str, cls: type[attrs.AttrsInstance], fields: Mapping[str, object]) -> None:
    known = [attribute.name for attribute in attrs.fields(cls)]
    for name, value in fields.items():
        if name not in known:
            _refuse(f"{where}{name}", value, f"there is no such field; known are {', '.join(known)}")
    for name in known:
        if name not in fields:
            _refuse(f"{where}{name}", None, "the field is missing")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            _refuse(name, value, "the field is given twice")
        seen[name] = value
    return seen


def _no_constant(name: str) -> NoReturn:
    _refuse("number", name, "JSON has no such number")
