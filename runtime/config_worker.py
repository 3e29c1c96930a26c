"""The parts of a configuration about what runs the steps: a thread of this process, or a worker process of its own."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from attrs import validators

THREAD, PROCESS = "thread", "process"
EXECUTORS = (THREAD, PROCESS)
is_executor = validators.in_(EXECUTORS)


@attrs.frozen
class DriverConfig:
    """A vendor's graphics driver for the worker process alone.

    ``manifest`` is its JSON driver manifest for the Vulkan loader; empty is none. ``versions`` are the values that its
    fields must have for it to be used (``api_version``, ``file_format_version``); at least one.
    """

    manifest: str = ""
    versions: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.manifest and not self.versions:
            raise ValueError(
                f"manifest is {self.manifest!r} without versions: say which it must have, such as "
                'versions = {api_version = "1.3.274"}'
            )
