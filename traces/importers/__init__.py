"""Readers of public traces in other formats, which write them as workloads in ours."""

from __future__ import annotations

from .run import FORMATS, ImportSummary, Settings, import_trace

__all__ = ["FORMATS", "ImportSummary", "Settings", "import_trace"]
