"""Static request fixtures: what was assembled leaves unchanged, comes back equal, and runs as it did."""

from __future__ import annotations

import json
from datetime import datetime

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresident import (
    ArtifactInvalid,
    AssembledRequest,
    Boundaries,
    InvalidRequest,
    SamplingParams,
    __version__,
    load_request,
)
from support.live import run
from support.saying import speaking

SYSTEM = {"role": "system", "content": "Be brief. \u20ac"}
MESSAGES = [SYSTEM, {"role": "user", "content": "How warm is it?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"unit": {"enum": ["c", "f"]}, "at": {"type": ["string", "null"], "maxLength": 9}},
                "required": [],
                "additionalProperties": False,
            },
        },
    }
]
SAMPLING = SamplingParams(temperature=0.7, top_p=0.9, seed=3, logprobs=2)
PLAIN = AssembledRequest(
    library="0",
    model="m",
    model_digest="d",
    template_digest=None,
    identity="i",
    tokens=(1, 2, 3),
    boundaries=Boundaries(1, 3, 16),
    text="abc",
    messages=None,
    tools=None,
    template_options={},
    max_tokens=4,
    sampling=SamplingParams(),
)


async def streamed(generation):
    async with generation:
        pieces = [piece async for piece in generation]
        return pieces, await generation.result()


def with_desk(test):
    async def main():
        async with speaking() as desk:
            return await test(desk.scheduler)

    return run(main)


def test_R22_a_request_leaves_unchanged_and_comes_back_equal(tmp_path):
    async def main(scheduler):
        return scheduler.assemble(
            MESSAGES, tools=TOOLS, template_options={"deep": [1.5, None]}, max_tokens=6, sampling=SAMPLING
        )

    request = with_desk(main)
    request.export(tmp_path / "a.json")
    request.export(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert load_request(str(tmp_path / "a.json")) == request
    written = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    # Equal as text: the order of a schema's keys is part of what the model was shown.
    assert json.dumps(written["tools"]) == json.dumps(TOOLS)
    assert json.dumps(written["messages"]) == json.dumps(MESSAGES)
    assert (written["schema"], written["library"]) == ("coresident.request/1", __version__)
    assert written["template_options"] == {"deep": [1.5, None]}
    assert written["sampling"] == attrs.asdict(SAMPLING)


def test_R22_a_request_runs_back_in_as_it_was(tmp_path):
    async def main(scheduler):
        scheduler.assemble(MESSAGES, tools=TOOLS, max_tokens=6, sampling=SAMPLING).export(tmp_path / "a.json")
        options = {"tools": TOOLS, "max_tokens": 6, "sampling": SAMPLING}
        first, _ = await streamed(scheduler.generate(MESSAGES, **options))
        request = load_request(tmp_path / "a.json")
        again, result = await streamed(scheduler.generate(request))
        assert [piece.token for piece in again] == [piece.token for piece in first]
        assert result.prompt_tokens == len(request.tokens)
        assert result.reused > 0, "the same identity: what the first one left is reused"
        text = scheduler.tokenizer.decode(request.tokens)
        assert text.startswith('[{"type": "function"')
        assert text.endswith("user: How warm is it?\nassistant: ")

    with_desk(main)


def test_R22_boundaries_are_the_callers():
    async def main(scheduler):
        request = scheduler.assemble(MESSAGES, standing=[SYSTEM], tools=TOOLS)
        standing = scheduler.tokenizer.decode(request.tokens[: request.boundaries.standing])
        assert standing.endswith("system: Be brief. \u20ac\n")
        assert (request.boundaries.prompt, request.boundaries.chunk) == (len(request.tokens), 16)
        assert scheduler.assemble(MESSAGES).boundaries.standing == 0
        with pytest.raises(InvalidRequest, match=r"standing is .*: the prompt does not begin with it"):
            scheduler.assemble(MESSAGES, standing=[{"role": "system", "content": "Be long."}])

    with_desk(main)


def test_R22_texts_and_token_ids_assemble_too():
    async def main(scheduler):
        text = scheduler.assemble("Hello there", standing="Hello ")
        assert (text.text, text.messages, text.template_digest) == ("Hello there", None, None)
        assert text.boundaries.standing == 5, "what follows a text may join with its last token"
        ids = scheduler.assemble([1, 2, 3], max_tokens=2)
        assert (ids.text, ids.messages, ids.tokens) == (None, None, (1, 2, 3))
        assert scheduler.assemble(MESSAGES, now=datetime(2026, 1, 2)).template_digest

    with_desk(main)


def test_R22_what_the_caller_changes_later_is_not_in_it():
    async def main(scheduler):
        tools = json.loads(json.dumps(TOOLS))
        request = scheduler.assemble(MESSAGES, tools=tools)
        tools[0]["function"]["name"] = "other"
        assert request.tools == TOOLS

    with_desk(main)


def test_R22_another_model_is_refused_with_both_digests_unless_forced():
    async def main(scheduler):
        here = scheduler.assemble("Hello", max_tokens=3)
        there = attrs.evolve(here, model_digest="feed", identity="other")
        with pytest.raises(InvalidRequest, match=f"digest feed, but .* digest {here.model_digest} is resident"):
            scheduler.generate(there)
        forced = await scheduler.generate(there, force=True)
        assert forced.tokens == (await scheduler.generate(here)).tokens
        with pytest.raises(InvalidRequest, match=r"prompt\[0\] is 300"):
            scheduler.generate(attrs.evolve(there, tokens=(300,), boundaries=Boundaries(0, 1, 16)), force=True)

    with_desk(main)


@pytest.mark.parametrize(
    "options",
    [
        {"tools": TOOLS},
        {"max_tokens": 3},
        {"sampling": SAMPLING},
        {"template_options": {}},
        {"now": datetime(2026, 1, 2)},
    ],
)
def test_what_an_assembled_request_has_is_not_given_beside_it(options):
    async def main(scheduler):
        with pytest.raises(InvalidRequest, match=f"{next(iter(options))} is .*: an assembled request has its own"):
            scheduler.generate(scheduler.assemble("Hello"), **options)

    with_desk(main)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": [{"enum": (1, 2)}]}, "tools is .* this would change"),
        ({"tools": [{1: "a"}]}, "tools is .* this would change"),
        ({"tools": [{"at": datetime(2026, 1, 2)}]}, "fixture holds JSON values only|refuses the messages"),
        ({"tools": [{"most": float("inf")}]}, "fixture holds JSON values only"),
        ({"max_tokens": 0}, "max_tokens is 0"),
    ],
)
def test_R22_what_json_would_change_is_refused(options, message):
    async def main(scheduler):
        with pytest.raises(InvalidRequest, match=message):
            scheduler.assemble(MESSAGES, **options)

    with_desk(main)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3),
    max_leaves=12,
)


@given(tools=st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=2), tokens=st.lists(st.integers(0, 2**40)))
def test_R22_any_schema_survives(tools, tokens, tmp_path_factory):
    tokens = (7, *tokens)
    request = attrs.evolve(PLAIN, tools=tools, tokens=tokens, boundaries=Boundaries(0, len(tokens), 1))
    path = tmp_path_factory.getbasetemp() / "any.json"
    request.export(path)
    assert load_request(path) == request
    assert json.dumps(load_request(path).tools) == json.dumps(tools)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("schema", "coresident.request/9", "schema"),
        ("tokens", [1, -2, 3], r"tokens[1]"),
        ("tokens", [1, True, 3], r"tokens[1]"),
        ("tokens", "abc", "tokens"),
        ("tokens", [1, 2], "boundaries.prompt"),
        ("boundaries", {"standing": 4, "prompt": 3, "chunk": 16}, "boundaries.standing"),
        ("boundaries", {"standing": 0, "prompt": 3}, "boundaries.chunk"),
        ("boundaries", 3, "boundaries"),
        ("model_digest", "", "model_digest"),
        ("identity", None, "identity"),
        ("template_digest", 1, "template_digest"),
        ("text", 1, "text"),
        ("messages", {"role": "user"}, "messages"),
        ("tools", ["weather"], "tools"),
        ("template_options", [], "template_options"),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", 1.0, "max_tokens"),
        ("sampling", {**attrs.asdict(SamplingParams()), "top_p": 2}, "top_p"),
        ("sampling", {**attrs.asdict(SamplingParams()), "warmth": 2}, "sampling.warmth"),
        ("colour", "red", "colour"),
    ],
)
def test_a_bad_file_is_refused_by_file_and_field(field, value, named, tmp_path):
    path = tmp_path / "a.json"
    PLAIN.export(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(ArtifactInvalid) as caught:
        load_request(path)
    assert (caught.value.details["file"], caught.value.details["field"]) == (str(path), named)
    assert "value" in caught.value.details
    assert str(caught.value).startswith(f"{path}: {named} is ")


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", b'{"a": 1, "a": 2}', b'{"a": NaN}', b"[" * 100_000])
def test_a_file_that_is_no_fixture_is_refused(content, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ArtifactInvalid, match=r"a\.json"):
        load_request(path)


def test_a_missing_field_file_or_folder_is_named(tmp_path):
    path = tmp_path / "a.json"
    PLAIN.export(path)
    fields = json.loads(path.read_text())
    for name in fields:
        path.write_text(json.dumps({key: value for key, value in fields.items() if key != name}))
        with pytest.raises(ArtifactInvalid, match=f"{name} is None"):
            load_request(path)
    with pytest.raises(ArtifactInvalid, match=r"none\.json cannot be read"):
        load_request(tmp_path / "none.json")
    with pytest.raises(InvalidRequest, match="cannot be written"):
        PLAIN.export(tmp_path / "none" / "a.json")
