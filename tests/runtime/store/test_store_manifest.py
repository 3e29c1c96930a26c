"""Signed manifests: one spelling, golden bytes, and no change of any byte that passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from coresident.actors.errors import ArtifactInvalid, InvalidRequest
from coresident.runtime.store.canonical import canonical
from coresident.runtime.store.manifest import (
    MAX_BYTES,
    MAX_FILES,
    FileEntry,
    Manifest,
    SignedManifest,
    parse_signed,
    sign,
)

from support.signed import manifest_of, signer

FIXTURE = Path(__file__).parents[2] / "fixtures" / "store_manifest.json"
DIGEST = "ab" * 32


def signed() -> SignedManifest:
    return sign(manifest_of(), signer())


def changed(**values: Any) -> bytes:
    """A manifest's file with these values in its inner object, correctly signed."""
    content = json.loads(signed().text())
    content["manifest"] |= values
    return canonical(content) + b"\n"


def test_R81_manifest_and_signature_have_golden_bytes() -> None:
    manifest = Manifest(
        "org/chat-7b",
        (FileEntry("modèle.gguf", DIGEST, 7), FileEntry("tokenizer.json", "cd" * 32, 1 << 40)),
        "mlx",
        "somebody",
        "two\nlines",
    )
    assert manifest.message() == (
        b'coresident-manifest 1\n{"created_by":"somebody","device":"mlx","files":[{"digest":"' + b"ab" * 32 + b'",'
        b'"name":"mod\\u00e8le.gguf","size":7},{"digest":"' + b"cd" * 32 + b'","name":"tokenizer.json",'
        b'"size":1099511627776}],"model":"org/chat-7b","notes":"two\\nlines"}'
    )
    made = sign(manifest, signer())
    assert made.text() == FIXTURE.read_bytes()
    assert made.digest == "37b61a7018fb06f1be16049de6560ad01717d76abfaab81fc14fc08ab0d2b36c"
    read = parse_signed(FIXTURE.read_bytes(), "fixture")
    read.check([signer().public], "fixture")
    assert (read, read.manifest.size) == (made, (1 << 40) + 7)


def test_R36_every_change_of_every_byte_is_refused() -> None:
    text, key = signed().text(), signer().public
    for position in range(len(text)):
        for bit in range(8):
            damaged = bytearray(text)
            damaged[position] ^= 1 << bit
            with pytest.raises(ArtifactInvalid):
                parse_signed(bytes(damaged), "m").check([key], "m")
    for cut in range(len(text)):
        with pytest.raises(ArtifactInvalid):
            parse_signed(text[:cut], "m")


def test_R36_only_a_trusted_key_counts_and_only_for_what_it_signed() -> None:
    mine, other = signer(), signer(1)
    good = signed()
    good.check([other.public, mine.public], "m")
    forged = attrs.evolve(good, signature=other.sign(good.manifest.message()).hex())
    replayed = attrs.evolve(good, manifest=attrs.evolve(good.manifest, model="another"))
    for bad, trusted, named in (
        (good, [], "not trusted"),
        (good, [other.public], "not trusted"),
        (forged, [mine.public, other.public], "not this key's signature"),
        (replayed, [mine.public], "not this key's signature"),
    ):
        with pytest.raises(ArtifactInvalid, match=named) as raised:
            bad.check(trusted, "manifests/x.json")
        assert raised.value.details["file"] == "manifests/x.json"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a\\b",
        "c:x",
        ".hidden",
        "a\0b",
        "a\nb",
        "a\u202eb",
        "\ud800",
        "x" * 201,
        "MANIFEST.json",
    ],
)
def test_FIELD_81_a_file_name_is_one_plain_name(name: str) -> None:
    with pytest.raises(ArtifactInvalid, match="name is"):
        parse_signed(changed(files=[{"name": name, "digest": DIGEST, "size": 1}]), "m")


@pytest.mark.parametrize(
    "digest", ["", "AB" * 32, "ab" * 31, "ab" * 33, "../" + "a" * 61, "ab" * 31 + "a\0", "gg" * 32]
)
def test_R31_a_digest_has_its_shape_before_anything_is_done_with_it(digest: str) -> None:
    with pytest.raises(ArtifactInvalid, match="64 lower-case"):
        parse_signed(changed(files=[{"name": "a", "digest": digest, "size": 1}]), "m")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"files": [{"name": "a", "digest": DIGEST, "size": 0}]}, "size is 0"),
        ({"files": [{"name": "a", "digest": DIGEST, "size": -1}]}, "size is -1"),
        ({"files": [{"name": "a", "digest": DIGEST, "size": 1 << 60}]}, "size is 1152921504606846976"),
        ({"files": [{"name": "a", "digest": DIGEST, "size": True}]}, "not an integer"),
        ({"files": [{"name": "a", "digest": DIGEST}]}, "size"),
        ({"files": [{"name": "a", "digest": DIGEST, "size": 1, "mode": 7}]}, "mode"),
        ({"files": [{"name": n, "digest": DIGEST, "size": 1} for n in ("a", "A")]}, "one name"),
        ({"files": [{"name": n, "digest": DIGEST, "size": 1} for n in ("\u00e9", "e\u0301")]}, "one name"),
        ({"files": []}, "files are 0"),
        ({"files": "abc"}, "files is 'str'"),
        ({"files": [7]}, "files"),
        ({"files": [0] * (MAX_FILES + 1)}, "1025"),
        ({"model": ""}, "model is ''"),
        ({"model": "../x"}, "model is"),
        ({"model": "x" * 101}, "model is"),
        ({"device": "a b"}, "device is"),
        ({"notes": "\u202e"}, "notes is"),
        ({"notes": "x" * 4001}, "notes is"),
        ({"created_by": None}, "created_by"),
        ({"more": 1}, "keys"),
    ],
)
def test_what_a_manifest_must_not_say_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ArtifactInvalid, match=named) as raised:
        parse_signed(changed(**values), "some/manifest.json")
    assert raised.value.message.startswith("some/manifest.json: ")
    assert len(raised.value.message) < 1000


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b"[" * 200_000 + b"\n",
        b'{"a":' * 100_000 + b"\n",
        b"9" * 10_000 + b"\n",
        b"\xff\xfe\n",
        b'{"format":NaN}\n',
        b'{"format":1e999}\n',
        b" " * (MAX_BYTES + 2),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_no_manifest_at_all_is_refused(text: bytes) -> None:
    with pytest.raises(ArtifactInvalid, match=r"^odd: "):
        parse_signed(text, "odd")


def test_another_spelling_of_the_same_manifest_is_refused() -> None:
    text = signed().text()
    content = json.loads(text)
    for other in (
        json.dumps(content).encode() + b"\n",
        json.dumps(content, indent=1, sort_keys=True).encode() + b"\n",
        text + b"\n",
        b" " + text,
        text[:-1],
        text.replace(b'"format"', b'"\\u0066ormat"'),
        text.replace(b'"version":1', b'"version":1,"version":1'),
        text.replace(b'"version":1', b'"version":1.0'),
        text.replace(b'"version":1', b'"version":true'),
        text.replace(b'"version":1', b'"version":2'),
        text.replace(b'"signature":"', b'"signature":"A'),
        text.replace(b'"key":"', b'"key":"A'),
        text.replace(b'{"format"', b'{"extra":0,"format"'),
    ):
        assert other != text
        with pytest.raises(ArtifactInvalid):
            parse_signed(other, "m").check([signer().public], "m")


def test_more_than_can_be_read_again_is_not_signed() -> None:
    entries = tuple(FileEntry(f"{number:0200d}", DIGEST, 1) for number in range(MAX_FILES))
    with pytest.raises(InvalidRequest, match="fewer files"):
        sign(Manifest("large", entries), signer())
