"""Backends opened from a configuration."""

from __future__ import annotations

import pytest
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.models.locate import ModelSource

from support.live import config


@pytest.mark.parametrize(("decision", "files"), [({}, 1), ({"model": "synthetic"}, 2)])
def test_a_model_file_is_opened_and_hashed_once(monkeypatch, decision, files):
    """Heads need the model's tokenizer and digest; neither is a reason to read the file again."""
    counted = []
    really = ModelSource.open
    monkeypatch.setattr(ModelSource, "open", lambda source: counted.append(source) or really(source))
    opened = open_backend(config(decision=decision))
    key = "decision" if files == 2 else "generation"
    assert opened.heads
    assert tuple(opened.heads) == opened.backend.describe(key).heads
    assert len(counted) == files
