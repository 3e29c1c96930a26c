"""Backends opened from a configuration."""

from __future__ import annotations

import pytest
from coresident.actors.errors import BackendFault, InvalidRequest
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.catalog import availability, open_backend
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.mlx import library
from coresident.runtime.backends.vulkan.describing import BUDGET
from coresident.runtime.backends.vulkan.device import Device
from coresident.runtime.backends.vulkan.profile import Profile
from coresident.runtime.backends.vulkan.survey import Survey
from coresident.runtime.models.locate import ModelSource

from support.backends import needs
from support.live import config
from support.reference import drain


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


def test_without_its_packages_mlx_says_what_to_install_and_nothing_else_changes(monkeypatch):
    here = {each.name: each for each in availability(Survey())}
    monkeypatch.setattr(library, "missing", lambda: ("mlx", "mlx_lm"))
    without = {each.name: each for each in availability(Survey())}
    assert (without["mlx"].available, without["mlx"].note) == (
        False,
        "mlx and mlx-lm not installed: pip install 'coresident[mlx]'",
    )
    assert {name: each for name, each in without.items() if name != "mlx"} == {
        name: each for name, each in here.items() if name != "mlx"
    }
    with pytest.raises(InvalidRequest, match=r"needs mlx and mlx-lm, not installed here: pip install 'cores.*mlx"):
        open_backend(config(device={"backend": "mlx"}))
    assert open_backend(config()).backend.name == "reference"


def test_mlx_opens_when_it_is_configured():
    needs("mlx")
    assert {each.name: each.available for each in availability(Survey())}["mlx"]
    opened = open_backend(config(device={"backend": "mlx"}))
    assert opened.backend.name == "mlx"
    assert opened.backend.describe("generation").heads == tuple(opened.heads) != ()


def test_a_backend_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InvalidRequest, match="'cuda': this version has reference, mlx, vulkan, modelled"):
        open_backend(config(device={"backend": "cuda"}))


def test_the_margin_of_mlx_is_configured():
    needs("mlx")
    shape = StepShape(StepKind.PREFILL, 1, 16, 64)
    charges = []
    for margin in (0, 50):
        backend = open_backend(config(device={"backend": "mlx", "margin": margin})).backend
        charges.append(backend.charge("generation", shape))
    assert abs(charges[1] - 1.5 * charges[0]) < 0.01 * charges[0]


def test_vulkan_opens_its_device_here_or_leaves_it_to_a_worker():
    needs("vulkan")
    vulkan = {"backend": "vulkan", "index": 0, "share": 50}
    here = open_backend(config(device=vulkan))
    assert here.backend.describe("generation").heads == tuple(here.heads) != ()
    planned = open_backend(config(device=vulkan | {"executor": "process"})).backend
    assert isinstance(here.backend.planned, Device)
    assert isinstance(planned.planned, Profile)
    assert here.backend.planned.info == planned.planned.info
    info = planned.planned.info
    if BUDGET not in info.extensions:
        assert planned.planned.budget() == max(info.heaps) // 2
    request = PlanRequest(512, 2, 64)
    assert planned.plan("generation", request) == here.backend.plan("generation", request)
    for kind in (StepKind.PREFILL, StepKind.DECODE, StepKind.WARMUP):
        shape = StepShape(kind, 2, 64, 512)
        assert planned.charge("generation", shape) == here.backend.charge("generation", shape)
    with pytest.raises(BackendFault, match="only plans for a worker's device"):
        drain(planned.load("generation", request, True))
    with pytest.raises(InvalidRequest, match=r"device\.index is 99"):
        open_backend(config(device=vulkan | {"index": 99}))
