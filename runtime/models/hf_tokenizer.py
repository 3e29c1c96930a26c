"""A tokenizer from a Hugging Face ``tokenizer.json`` and the configuration files next to it.

Formats: the ``tokenizers`` library's serialization; transformers' tokenizer_config.json,
generation_config.json, config.json and chat_template.jinja.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .architecture import invalid
from .pieces import byte_level, marked_spaces
from .tokenizer import Tokenizer, declared_and_known_ends

if TYPE_CHECKING:
    import tokenizers

NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def read_hf_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in ``path`` (a tokenizer.json); never shortens or pads, whatever the file says.

    Raises:
        ArtifactInvalid: naming file, field and value.
    """
    inner = _load(path)
    inner.no_truncation()
    inner.no_padding()
    config = _read_optional(path.parent / "tokenizer_config.json")
    added = inner.get_added_tokens_decoder()
    special = {i: token.content for i, token in added.items() if token.special}
    names = _names(path.parent / "tokenizer_config.json", config)
    bos = inner.token_to_id(names["bos_token"]) if "bos_token" in names else None
    return Tokenizer(
        label=path.parent.name,
        inner=inner,
        piece_bytes=_piece_bytes(path, inner),
        vocabulary=max(inner.get_vocab().values(), default=-1) + 1,
        added={i: token.content for i, token in added.items()},
        special_tokens=frozenset(special),
        stop_tokens=declared_and_known_ends(_declared_ends(path.parent, inner, names), special),
        bos=bos,
        add_bos=_adds_bos(path, config, inner, bos),
        names=names,
        chat_template=_chat_template(path.parent, config),
    )


def _load(path: Path) -> tokenizers.Tokenizer:
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    # The library raises plain Exception for a file it cannot read.
    except Exception as error:
        raise invalid(str(path), "file", path.name, f"no tokenizer can be read from it: {error}") from error


def _read_optional(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing where the file is missing."""
    if not path.is_file():
        return {}
    from .hf_folder import read_json

    return read_json(path)


def _piece_bytes(path: Path, inner: tokenizers.Tokenizer) -> Callable[[str], bytes]:
    """How pieces spell bytes, told by the decoder the file declares."""
    decoder = json.loads(inner.to_str())["decoder"] or {}
    steps = {step["type"] for step in decoder.get("decoders", [decoder]) if "type" in step}
    if "ByteLevel" in steps:
        return byte_level
    if steps & {"Metaspace", "ByteFallback"}:
        return marked_spaces
    raise invalid(str(path), "decoder", sorted(steps), "ByteLevel, Metaspace and ByteFallback are read")


def _names(file: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Texts of the named tokens; the file gives each as text or as an object with ``content``."""
    names = {}
    for name in NAMED:
        value = config.get(name)
        text = value.get("content") if isinstance(value, Mapping) else value
        if text is None:
            continue
        if not isinstance(text, str):
            raise invalid(str(file), name, value, "it must be a text")
        names[name] = text
    return names


def _declared_ends(folder: Path, inner: tokenizers.Tokenizer, names: Mapping[str, str]) -> set[int]:
    ends = set()
    if "eos_token" in names and (token := inner.token_to_id(names["eos_token"])) is not None:
        ends.add(token)
    for name in ("generation_config.json", "config.json"):
        value = _read_optional(folder / name).get("eos_token_id")
        for token in value if isinstance(value, list) else [value]:
            if token is None:
                continue
            if type(token) is not int or token < 0:
                raise invalid(str(folder / name), "eos_token_id", value, "it must be a token id or a list of them")
            ends.add(token)
    return ends


def _adds_bos(path: Path, config: Mapping[str, Any], inner: tokenizers.Tokenizer, bos: int | None) -> bool:
    declared = config.get("add_bos_token")
    if declared is not None and type(declared) is not bool:
        raise invalid(str(path.parent / "tokenizer_config.json"), "add_bos_token", declared, "it must be true or false")
    if bos is None:
        return False
    return bool(inner.encode("").ids[:1] == [bos] if declared is None else declared)


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The template file where there is one, else the configuration's: a text, or ``default`` of a list."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise invalid(str(file), "file", file.name, f"it cannot be read: {error}") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, Mapping)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise invalid(str(folder / "tokenizer_config.json"), "chat_template", template, "it must be a text")
    return template
