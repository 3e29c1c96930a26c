"""The known part of a prompt to come must be what the later prompt begins with, to the token, or is not prepared."""

from __future__ import annotations

import pytest
from coresident.actors.errors import InvalidRequest
from coresident.runtime.models.chat import DEFAULT_TEMPLATE, ChatTemplate
from coresident.runtime.models.known import render_known
from coresident.runtime.models.text import TextKit
from coresident.runtime.models.tokenizer import ByteTokenizer
from hypothesis import given
from hypothesis import strategies as st

SYSTEM = [{"role": "system", "content": "Be brief."}]
HISTORY = [
    {"role": "user", "content": "What is a buoy?"},
    {"role": "assistant", "content": "<think>easy</think>A float."},
]
TURNED = [*HISTORY, {"role": "user", "content": "And a pier?"}]

# Past thoughts go once a new message follows, as templates of thinking models have it.
FORGETFUL = (
    "{% for m in messages %}{% set last = loop.last %}"
    "<{{ m['role'] }}>{% if m['role'] == 'assistant' and not last and '</think>' in m['content'] %}"
    "{{ m['content'].split('</think>')[1] }}{% else %}{{ m['content'] }}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
# Refuses to end on an assistant's message, and on a system message alone.
STRICT = (
    "{% if messages[-1]['role'] not in ('user', 'tool') %}{{ raise_exception('end with the user') }}{% endif %}"
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}<assistant>"
)


def kit(template: str = DEFAULT_TEMPLATE) -> TextKit:
    return TextKit(ByteTokenizer(), ChatTemplate(template), "digest")


def begins(full: tuple[int, ...], head: tuple[int, ...]) -> bool:
    return full[: len(head)] == head


@pytest.mark.parametrize("history", [HISTORY, TURNED, []], ids=["answered", "asked", "none"])
def test_R50_all_of_what_is_given_is_known_where_the_template_lets_it_be(history):
    known = render_known(kit(), SYSTEM, history)
    later = [*SYSTEM, *history, {"role": "assistant" if history is TURNED else "user", "content": "Go on."}]
    assert known.limited == ""
    assert begins(kit().render(later).tokens, known.tokens)
    assert known.tokens[: known.standing] == render_known(kit(), SYSTEM).tokens


def test_a_template_that_rewrites_past_turns_limits_it_to_the_standing_part_and_says_so():
    known = render_known(kit(FORGETFUL), SYSTEM, HISTORY)
    assert "rewrites" in known.limited
    assert "only the standing part" in known.limited
    assert known.standing == len(known.tokens) > 0
    assert begins(kit(FORGETFUL).render([*SYSTEM, *TURNED]).tokens, known.tokens)


def test_two_thinking_turns_that_have_been_rewritten_are_known_as_they_will_stand():
    """Once the next question is there, the earlier answer has its final form, and is known."""
    known = render_known(kit(FORGETFUL), SYSTEM, TURNED)
    later = [*SYSTEM, *TURNED, {"role": "assistant", "content": "<think>hm</think>A jetty."}]
    assert known.limited == ""
    assert begins(kit(FORGETFUL).render([*later, {"role": "user", "content": "Thanks"}]).tokens, known.tokens)


def test_a_template_that_refuses_history_alone_still_tells_what_it_begins_with():
    known = render_known(kit(STRICT), SYSTEM, HISTORY)
    assert begins(kit(STRICT).render([*SYSTEM, *TURNED]).tokens, known.tokens)
    assert bytes(known.tokens).decode().endswith("A float.\n<user>")


def test_nothing_is_known_of_a_template_that_puts_the_newest_message_first():
    reverse = "{% for m in messages | reverse %}{{ m['content'] }}\n{% endfor %}"
    known = render_known(kit(reverse), SYSTEM, HISTORY)
    assert known.tokens == ()
    assert known.limited


def test_a_text_leaves_its_last_token_to_what_follows():
    known = render_known(kit(), "Be brief. ", "Once upon a time")
    assert bytes(known.tokens) == b"Be brief. Once upon a tim"
    assert known.standing == len("Be brief. ")


@pytest.mark.parametrize(("standing", "history"), [([], []), ("text", HISTORY), (SYSTEM, "text")])
def test_what_has_no_meaning_is_refused(standing, history):
    with pytest.raises(InvalidRequest):
        render_known(kit(), standing, history)


contents = st.text(alphabet="ab <>/\n", max_size=12)
turns = st.lists(st.tuples(contents, contents), min_size=1, max_size=3)


@given(turns=turns, following=contents, template=st.sampled_from([DEFAULT_TEMPLATE, FORGETFUL, STRICT]))
def test_a_later_prompt_always_begins_with_what_was_known(turns, following, template):
    history = [m for u, a in turns for m in ({"role": "user", "content": u}, {"role": "assistant", "content": a})]
    known = render_known(kit(template), SYSTEM, history)
    later = kit(template).render([*SYSTEM, *history, {"role": "user", "content": following}])
    assert begins(later.tokens, known.tokens)
    assert later.identity == known.identity
