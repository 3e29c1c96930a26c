"""What a channel's header says: its kind, and the tool it is addressed to."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from .channel_families import Family, Kind

TO = r"(?: to=(?P<to>[A-Za-z_][\w.-]*))?"
ROLE = re.compile(rf"(?P<role>\w+){TO} *")
LABEL = re.compile(rf"(?P<label>\w+){TO}(?P<format> [\w-]+)? *")
FORMAT = re.compile(r" *[\w-]+ *")
# Nobody calls a participant of the conversation.
NO_TOOLS = frozenset({"assistant", "user", "system", "developer", "tool"})


@attrs.frozen
class Heading:
    """A header that was understood. ``recipient``: the tool's name, for a tool call that names it in its header."""

    kind: Kind
    recipient: str | None = None


def read_heading(family: Family, sections: Mapping[str, bytearray]) -> Heading | str:
    """Read a header's sections (``role``, ``label``, ``format``); what is wrong with it as a key of ``PROBLEMS``."""
    try:
        texts = {name: raw.decode("utf-8") for name, raw in sections.items()}
    except UnicodeDecodeError:
        return "malformed_header"
    label = LABEL.fullmatch(texts["label"])
    if label is None:
        return "malformed_header"
    if label["label"] not in family.labels:
        return "wrong_label"
    kind = family.labels[label["label"]]
    if family.role is None:
        return Heading(kind) if texts["label"] == label["label"] else "malformed_header"
    role = ROLE.fullmatch(texts["role"])
    if role is None or role["role"] != family.role:
        return "malformed_header"
    if "format" in texts and (label["format"] is not None or not FORMAT.fullmatch(texts["format"])):
        return "malformed_header"
    recipients = [name for name in (role["to"], label["to"]) if name is not None]
    if not recipients:
        return Heading(kind)
    if len(recipients) > 1 or recipients[0] in NO_TOOLS or label["label"] not in family.tool_labels:
        return "malformed_header"
    return Heading("tool_call", recipients[0])
