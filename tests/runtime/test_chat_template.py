"""Chat templates: what they render, what they refuse, and that they stay in their sandbox."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid, InvalidRequest
from coresident.runtime.models.chat import ChatTemplate
from coresident.runtime.models.tokenizer import load_tokenizer
from hypothesis import given
from hypothesis import strategies as st

HI = [{"role": "user", "content": "Hi"}]
CHATML = (
    "{% for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def test_messages_become_the_models_text():
    chat = [{"role": "system", "content": "Be brief."}, *HI]
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    assert ChatTemplate(CHATML).render(chat) == text + "<|im_start|>assistant\n"
    assert ChatTemplate(CHATML).render(chat, add_generation_prompt=False) == text


def test_R4_smollm2_renders_its_own_template(smollm2_path: Path):
    tokenizer = load_tokenizer(smollm2_path)
    text = ChatTemplate.of(tokenizer).render(HI)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.encode_prompt(text)[:1] == (1,)


@given(content=st.text(st.characters(exclude_categories=["Cs"])))
def test_R17_the_default_template_keeps_every_message(content: str):
    template = ChatTemplate.of(load_tokenizer(None))
    chat = [{"role": "user", "content": content}, {"role": "assistant", "content": "x"}]
    assert template.render(chat) == f"user: {content}\nassistant: x\nassistant: "


def test_named_tokens_and_options_are_visible():
    template = ChatTemplate("{{ bos_token }}{{ mode }}{{ missing }}", {"bos_token": "<s>"})
    assert template.render(HI, mode="quiet") == "<s>quiet"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}{% if loop.index > 0 %}{% break %}{% endif %}x{% endfor %}end", "end"),
        ("{{ {'a': '\u00e9<&>'} | tojson }}", '{"a": "\u00e9<&>"}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "Hi"),
        ("{{ strftime_now('%Y-%m-%d') }}", "2024-02-29"),
        ("{% if true %}\n  a\n{% endif %}\nb", "  a\nb"),
    ],
)
def test_templates_run_as_in_transformers(source: str, text: str):
    assert ChatTemplate(source).render(HI, now=datetime(2024, 2, 29, tzinfo=UTC)) == text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ strftime_now('%Y') }}", "pass now"),
        ("{{ messages[0].content + none }}", "NoneType"),
        ("{{ messages[5].content }}", "no element 5"),
        ("{{ 1 / 0 }}", "division"),
    ],
)
def test_a_refusing_template_is_the_callers_error_with_its_words(source: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        ChatTemplate(source, label="m.gguf").render(HI)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'content': 'x'}) }}",
        "{% for i in range(10000000) %}{% endfor %}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(source: str):
    chat = [dict(HI[0])]
    with pytest.raises((ArtifactInvalid, InvalidRequest)):
        ChatTemplate(source).render(chat)
    assert chat == HI


def test_a_sandbox_violation_is_the_files_error():
    with pytest.raises(ArtifactInvalid, match=r"m\.gguf: chat_template.*unsafe"):
        ChatTemplate("{{ messages.append(1) }}", label="m.gguf").render(list(HI))


@pytest.mark.parametrize("source", ["{% if %}", "{{ ", "{% unknown %}", "{% for x in y %}"])
def test_a_template_that_is_none_is_refused_by_name(source: str):
    with pytest.raises(ArtifactInvalid, match=r"m\.gguf: chat_template.*line 1"):
        ChatTemplate(source, label="m.gguf")


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ("hello", "messages"),
        (["hello"], r"messages\[0\]"),
        ([{"content": "x"}], r"messages\[0\]\.role"),
        ([*HI, {"role": "wizard", "content": "x"}], r"messages\[1\]\.role"),
        ([{"role": "user"}], r"messages\[0\]\.content"),
        ([{"role": "user", "content": 3}], r"messages\[0\]\.content"),
        ([{"role": "user", "content": None, "tool_calls": [1]}], r"messages\[0\]\.content"),
        ([{"role": "assistant", "content": None}], r"messages\[0\]\.content"),
    ],
)
def test_malformed_messages_are_named(messages, field: str):
    with pytest.raises(InvalidRequest, match=field):
        ChatTemplate(CHATML).render(messages)


def test_an_assistant_may_only_call_tools():
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    assert ChatTemplate("{{ messages[0].tool_calls | tojson }}").render([call]) == '[{"name": "f"}]'


def test_R17_tools_are_shown_or_refused_never_dropped():
    tools = [{"name": "f", "description": "\u00e9"}]
    assert ChatTemplate("{{ tools | tojson }}").render(HI, tools=tools) == '[{"name": "f", "description": "\u00e9"}]'
    with pytest.raises(InvalidRequest, match="no place for them"):
        ChatTemplate(CHATML).render(HI, tools=tools)
    assert ChatTemplate(CHATML).render(HI, tools=[])


@pytest.mark.parametrize("name", ["bos_token", "strftime_now", "raise_exception"])
def test_options_cannot_replace_what_templates_rely_on(name: str):
    with pytest.raises(InvalidRequest, match=name):
        ChatTemplate(CHATML, {"bos_token": "<s>"}).render(HI, **{name: "x"})


def test_the_digest_is_of_template_tokens_and_options():
    template = ChatTemplate(CHATML, {"bos_token": "<s>"})
    digests = {
        template.digest({}),
        template.digest({"think": True}),
        template.digest({"think": 1}),
        ChatTemplate(CHATML).digest({}),
        ChatTemplate(CHATML + " ", {"bos_token": "<s>"}).digest({}),
    }
    assert len(digests) == 5
    assert ChatTemplate(CHATML, {"bos_token": "<s>"}).digest({"b": 1, "a": 2}) == template.digest({"a": 2, "b": 1})
    with pytest.raises(InvalidRequest, match="JSON"):
        template.digest({"when": datetime(2024, 1, 1, tzinfo=UTC)})
