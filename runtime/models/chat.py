"""Chat templates: messages to the text a model was trained on, in jinja2's sandbox.

Nothing here reads a clock: the caller passes the time. Whatever the template cannot show is refused, never left
out. jinja2 is imported when the first template is compiled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from ...actors.errors import ArtifactInvalid, InvalidRequest
from .tokenizer import AnyTokenizer

if TYPE_CHECKING:
    import jinja2

DEFAULT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
ROLES = ("system", "developer", "user", "assistant", "tool")
RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "strftime_now", "raise_exception"})


def check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse messages without meaning, naming the place.

    Each needs a known ``role`` and a text ``content``; an assistant's that has ``tool_calls`` may go without
    text.
    """
    if isinstance(messages, str) or not messages:
        _refuse("messages", messages, "at least one message is needed")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            _refuse(f"messages[{i}]", message, "a mapping with role and content is needed")
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            _refuse(f"messages[{i}].role", role, f"known roles are {', '.join(ROLES)}")
        silent = content is None and role == "assistant" and message.get("tool_calls")
        if not isinstance(content, str) and not silent:
            _refuse(f"messages[{i}].content", content, "it must be a text")


def _refuse(field: str, value: object, why: str) -> NoReturn:
    raise InvalidRequest(f"{field} is {value!r}: {why}", field=field, value=value)


@attrs.frozen(eq=False)
class ChatTemplate:
    """One model's template; ``special_tokens`` are the texts it may name (``bos_token``), ``label`` the model.

    Raises:
        ArtifactInvalid: the template isn't one.
    """

    source: str
    special_tokens: Mapping[str, str] = attrs.field(factory=dict)
    label: str = "model"
    _compiled: jinja2.Template = attrs.field(init=False)
    _variables: frozenset[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        from jinja2 import TemplateSyntaxError, meta

        from .chat_environment import make_environment

        environment = make_environment()
        try:
            variables = meta.find_undeclared_variables(environment.parse(self.source))
            compiled = environment.from_string(self.source)
        except TemplateSyntaxError as error:
            raise self._invalid(f"line {error.lineno}: {error.message}") from error
        except (RecursionError, OverflowError, ValueError) as error:
            raise self._invalid(str(error)) from error
        object.__setattr__(self, "_compiled", compiled)
        object.__setattr__(self, "_variables", frozenset(variables))

    @classmethod
    def of(cls, tokenizer: AnyTokenizer) -> ChatTemplate:
        """The template a model came with, or the plain default: a line ``role: content`` a message."""
        return cls(tokenizer.chat_template or DEFAULT_TEMPLATE, tokenizer.names, tokenizer.label)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        **options: Any,
    ) -> str:
        """The prompt's text.

        ``options`` are further names for the template; ``now`` is what ``strftime_now`` formats.

        Raises:
            InvalidRequest: the messages are not well formed, the template refuses them (with its own
                message), or it has no place for tools that were given.
            ArtifactInvalid: the template tries to leave the sandbox.
        """
        from jinja2.exceptions import SecurityError

        from .chat_environment import strftime_at

        check_messages(messages)
        self._check_options(tools, options)
        names: dict[str, Any] = {**self.special_tokens, **options}
        try:
            return self._compiled.render(
                messages=messages,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                strftime_now=strftime_at(now),
                **names,
            )
        except SecurityError as error:
            raise self._invalid(str(error)) from error
        # A template is a program: on messages it wasn't written for it raises what Python raises.
        except Exception as error:
            raise InvalidRequest(
                f"the chat template of {self.label} refuses the messages: {error}",
                field="messages",
                reason=str(error),
            ) from error

    def digest(self, options: Mapping[str, Any]) -> str:
        """Identity of template, named tokens and options, as a hexadecimal SHA-256; part of a prefix's identity.

        Raises:
            InvalidRequest: the options cannot be written as JSON.
        """
        try:
            parts = [self.source, dict(self.special_tokens), dict(options)]
            text = json.dumps(parts, sort_keys=True, ensure_ascii=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(
                f"template options must be JSON values: {error}", field="options", value=repr(options)
            ) from error
        return hashlib.sha256(text.encode()).hexdigest()

    def _check_options(self, tools: object, options: Mapping[str, Any]) -> None:
        for name in options.keys() & (RESERVED | self.special_tokens.keys()):
            _refuse(f"option {name}", options[name], "the name is already taken in templates")
        if tools and "tools" not in self._variables:
            why = f"the chat template of {self.label} has no place for them; put them into a message"
            raise InvalidRequest(f"tools were given, but {why}", field="tools", value=tools)

    def _invalid(self, reason: str) -> ArtifactInvalid:
        return ArtifactInvalid(
            f"{self.label}: chat_template cannot be used: {reason}",
            file=self.label,
            field="chat_template",
            value=reason,
        )
