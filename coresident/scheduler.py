"""The front door: a scheduler over resident models.

Text becomes tokens here, and seconds become nanoseconds; everything behind works with tokens, bytes and nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .actors.errors import InvalidRequest
from .actors.messages import PinConversation, ReleaseConversation, SubmitDecision, SubmitGeneration
from .actors.supervisor import Readiness
from .checkpoints import Checkpoint, restore_prefix, save_prefix
from .checks import check_after, length_of, nanoseconds_of, sampling_of, text_of, texts_of, work_class_of
from .deciding import Deciding
from .fixtures import AssembledRequest, assemble_request, run_back
from .generation import Generation
from .policies.views import WorkClass
from .preparation import Preparation
from .results import DecisionResult, Measurement
from .runtime.host.assembly import GENERATION, Account
from .runtime.host.live import LiveRuntime, Statistics
from .runtime.models.known import Messages, render_known
from .runtime.models.sampling import SamplingParams, make_sampler
from .runtime.models.text import Prompt, Rendered, TextKit
from .runtime.models.tokenizer import AnyTokenizer
from .sinks import make_sink

if TYPE_CHECKING:
    from .traces.recorder import Recorder

DEFAULT_MAX_TOKENS = 256


class Scheduler:
    """Generates and decides on one device. Made by ``open_scheduler``; its methods are for the Trio thread."""

    def __init__(self, runtime: LiveRuntime, kits: Mapping[str, TextKit], recorder: Recorder | None = None) -> None:
        self._runtime = runtime
        self._kits = kits
        self._recorder = recorder

    @property
    def recording_error(self) -> Exception | None:
        """What ended the recording early; its trace is whole when this is ``None`` after the block."""
        return None if self._recorder is None else self._recorder.error

    @property
    def account(self) -> Account:
        """What the configuration takes of the partition, buffer by buffer."""
        return self._runtime.assembly.account

    @property
    def label(self) -> str:
        """The generation model's name, as its file gives it."""
        return self._runtime.assembly.models[GENERATION].label

    @property
    def tokenizer(self) -> AnyTokenizer:
        """The generation model's tokenizer."""
        return self._kits[GENERATION].tokenizer

    def generate(
        self,
        prompt: Prompt | AssembledRequest,
        *,
        max_tokens: int | None = None,
        sampling: SamplingParams | None = None,
        stop: Sequence[str] = (),
        work_class: str | WorkClass = "foreground",
        deadline: float | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
        now: datetime | None = None,
        channels: str | None = None,
        open_thought: bool = False,
        ignore_stop_tokens: bool = False,
        retain: bool = True,
        conversation: str | None = None,
        after: str | None = None,
        force: bool = False,
    ) -> Generation:
        """A generation that is submitted when entered (``async with``) or awaited.

        Args:
            prompt: a text (completed raw, without the chat template), chat messages (put through it), or token ids;
                never shortened. Or a request from ``assemble`` or ``load_request``, with its own tools and length.
            max_tokens: most tokens to generate; ``None`` is 256, or less where less of the context remains.
            stop: strings that end the answer and are not part of it.
            work_class: ``foreground``, or ``utility`` for short background generations; words or ``WorkClass``.
            deadline: seconds from now after which the request is cancelled with what it has.
            channels: the model's marker family (``gemma4``, ``think``, ``harmony``): thought, answer and tool calls
                come apart; ``open_thought`` where the rendered prompt has already opened the thought.
            retain: keep the KV state for reuse when the request ends, as ``conversation``'s (``pin``, ``release``).
            after: the id of a request whose end led to this one, for recordings.
            force: run an assembled request's tokens on another model than it was assembled for.

        Raises:
            InvalidRequest: a field has no meaning; names it and its value. Entering raises ``Overloaded`` or
                ``Closed``. From the stream or the result come ``ContextExceeded`` for a prompt that does not fit, and
                ``MalformedChannels`` for an output that breaks its family's rules.
        """
        kit, kind = self._kits[GENERATION], work_class_of(work_class)
        if isinstance(prompt, AssembledRequest):
            given = {"tools": tools, "template_options": template_options, "max_tokens": max_tokens, "now": now}
            rendered = run_back(prompt, kit, {**given, "sampling": sampling}, force)
            max_tokens, sampling = prompt.max_tokens, prompt.sampling
        else:
            rendered = kit.render(prompt, tools, template_options, now)
        message = SubmitGeneration(
            request=self._runtime.new_id("g"),
            prompt=rendered.tokens,
            max_tokens=self._length(max_tokens, rendered),
            identity=rendered.identity,
            work_class=kind,
            deadline=self._at(deadline),
            retain=retain,
            conversation=text_of("conversation", "" if conversation is None else conversation),
            after=check_after(after),
        )
        sink = make_sink(kit.tokenizer, stop, self._ends(ignore_stop_tokens, channels), channels, open_thought)
        return Generation(self._runtime, message, make_sampler(sampling_of(sampling)), sink)

    def assemble(
        self,
        prompt: Prompt,
        *,
        standing: Messages | str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
        now: datetime | None = None,
        max_tokens: int | None = None,
        sampling: SamplingParams | None = None,
    ) -> AssembledRequest:
        """The request that ``generate`` would run, for export; ``standing``: the messages (or text) it begins with.

        Raises:
            InvalidRequest: as ``generate``; a prompt that does not begin with ``standing``; messages, tools or options
                that JSON would change.
        """
        kit = self._kits[GENERATION]
        rendered = kit.render(prompt, tools, template_options, now)
        return assemble_request(
            kit,
            prompt,
            rendered,
            standing=standing,
            tools=tools,
            options=template_options,
            chunk=self._runtime.assembly.config.generation.chunk,
            max_tokens=self._length(max_tokens, rendered),
            sampling=sampling_of(sampling),
        )

    async def decide(
        self,
        instruction: str,
        rows: Sequence[str],
        *,
        heads: Sequence[str] = ("probability",),
        deadline: float | None = None,
        after: str | None = None,
    ) -> DecisionResult:
        """Score each row under the instruction, before any other work.

        Args:
            heads: names of heads. The default configuration's: ``rank``, any number, higher is more of a yes;
                ``probability``, 0 to 1 for each row by itself; ``choice``, 0 to 1, and 1 over all rows together.
            deadline: seconds from now; a decision that cannot be ready by then abstains.

        Raises:
            InvalidRequest: unknown heads, no rows or too many, a row that does not fit. ``Overloaded``, ``Closed``,
                and ``BackendFault`` when its step failed.
        """
        assembly = self._runtime.assembly
        if assembly.decision_model is None:
            raise InvalidRequest("no decision model is configured: add [decision] to the configuration")
        kit = self._kits[assembly.decision_model]
        rendered = kit.render_decision(text_of("instruction", instruction), texts_of("rows", rows))
        message = SubmitDecision(
            request=self._runtime.new_id("d"),
            instruction=rendered.instruction,
            rows=rendered.rows,
            heads=texts_of("heads", heads),
            identity=rendered.identity,
            deadline=self._at(deadline),
            after=check_after(after),
        )
        return await Deciding(self._runtime, message).result()

    def prepare(
        self,
        standing: Messages | str,
        history: Messages | str = (),
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
        conversation: str | None = None,
        after: str | None = None,
    ) -> Preparation:
        """Prefill, while the device is idle, what is known of a prompt to come.

        Args:
            standing: messages (or text) that begin every prompt: instructions; ``tools`` belong to it.
            history: the messages that follow and are known by now. Whole chunks of both are prefilled: of less
                than one, nothing is, and it ends ``prepared`` with a goal of 0.
            conversation: a newer preparation of the same conversation supersedes this one.

        Raises:
            InvalidRequest: nothing is given, or texts and messages are mixed; ``Overloaded``; ``Closed``.
        """
        known = render_known(self._kits[GENERATION], standing, history, tools, template_options)
        named = text_of("conversation", "" if conversation is None else conversation)
        return Preparation(self._runtime, known, named, check_after(after))

    def pin(self, conversation: str, pinned: bool = True) -> None:
        """Keep what is retained for a conversation from being evicted; ``pinned=False`` lets go of it again."""
        self._runtime.tell(PinConversation(conversation, pinned))

    def release(self, conversation: str) -> None:
        """Give up what is retained for a conversation now."""
        self._runtime.tell(ReleaseConversation(conversation))

    async def save_prefix(
        self,
        prompt: Prompt,
        path: str | Path,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Write the longest retained prefix of a prompt to a file, which replaces what was there once it is whole.

        Raises:
            InvalidRequest: nothing of the prompt is retained, or the folder can't be written to. ``BackendFault`` when
                the disk is full or fails.
        """
        rendered = self._kits[GENERATION].render(prompt, tools, template_options)
        return await save_prefix(self._runtime, rendered, path)

    async def restore_prefix(self, path: str | Path) -> Checkpoint:
        """Retain what a file holds, as if it had been computed; files of another launch of the process are refused.

        Raises:
            ArtifactInvalid: the file is damaged or of another launch or model; names the field. ``BudgetExceeded``
                when it does not fit what may be retained.
        """
        return await restore_prefix(self._runtime, path)

    def measure(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> Measurement:
        """Exact token counts of a prompt as ``generate`` would render it; ``now`` is what a template calls the date."""
        tokens = len(self._kits[GENERATION].render(prompt, tools, template_options, now).tokens)
        admitted = self._runtime.assembly.context
        return Measurement(tokens, admitted, max(0, admitted - tokens))

    def readiness(self) -> Readiness:
        """Whether requests are served now, the admitted context, and the recovery actions that are open."""
        return self._runtime.readiness()

    def statistics(self) -> Statistics:
        """A frozen view of the device, its ledger, and both roles."""
        return self._runtime.statistics()

    async def retry(self) -> Readiness:
        """After a fault: start again with the weights that are there. Raises the fault when it persists."""
        return await self._runtime.recover("retry")

    async def repair(self) -> Readiness:
        """After a fault: load the weights again. Raises the fault when it persists."""
        return await self._runtime.recover("repair")

    def _length(self, max_tokens: int | None, prompt: Rendered) -> int:
        if max_tokens is None:
            return max(1, min(DEFAULT_MAX_TOKENS, self._runtime.assembly.context - len(prompt.tokens)))
        return length_of(max_tokens)

    def _ends(self, ignore: bool, channels: str | None) -> frozenset[int]:
        if ignore and channels is not None:
            raise InvalidRequest(
                f"ignore_stop_tokens is True with channels {channels}: output after the end of a turn has no channel",
                field="ignore_stop_tokens",
                value=ignore,
            )
        declared = self._runtime.assembly.models[GENERATION].stop_tokens
        return frozenset() if ignore else self.tokenizer.stop_tokens.union(declared)

    def _at(self, deadline: float | None) -> int | None:
        if deadline is None:
            return None
        return self._runtime.host.clock() + nanoseconds_of(deadline)
