"""A vendor's driver for the worker alone, and only the one that was asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid, InvalidRequest
from coresident.runtime.config import DeviceConfig, structure
from coresident.runtime.config_worker import DriverConfig
from coresident.runtime.worker.drivers import ADDITION, OVERRIDES, WorkerEnvironment
from structlog.testing import capture_logs

from support.live import LONG, run
from support.workers import needs_proc, workers

VERSIONS = {"api_version": "1.3.274", "file_format_version": "1.0.0"}


def manifest(folder, library="lib/vendor.so", **icd):
    path = folder / "vendor_icd.json"
    content = {
        "file_format_version": "1.0.0",
        "ICD": {"library_path": library, "api_version": "1.3.274", "is_portability_driver": True, **icd},
    }
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize("variable", [*OVERRIDES, ADDITION, None])
def test_R63_the_loaders_drivers_are_kept_and_the_vendors_is_added_behind_them(variable, tmp_path):
    before = dict(os.environ)
    base = {"PATH": "/bin", **({variable: f"/a.json{os.pathsep}/b.json"} if variable else {})}
    environment = WorkerEnvironment(base, DriverConfig(manifest(tmp_path), VERSIONS))
    given = environment.variables.pop(variable or ADDITION).split(os.pathsep)
    assert given[:-1] == (["/a.json", "/b.json"] if variable else [])
    base.pop(variable, None)
    assert environment.variables == base
    copied = json.loads(Path(given[-1]).read_text())
    assert copied["ICD"]["library_path"] == str(tmp_path / "lib" / "vendor.so")
    assert copied["ICD"]["is_portability_driver"] is True
    environment.close()
    environment.close()
    assert not Path(given[-1]).parent.exists()
    assert dict(os.environ) == before


def test_a_library_without_a_folder_is_left_to_the_system(tmp_path):
    environment = WorkerEnvironment({}, DriverConfig(manifest(tmp_path, "vendor.so"), VERSIONS))
    copied = json.loads(Path(environment.variables[ADDITION]).read_text())
    assert copied["ICD"]["library_path"] == "vendor.so"
    environment.close()


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"api_version": "1.3.275"}, "api_version is '1.3.274', wanted '1.3.275'"),
        ({**VERSIONS, "library_version": "7"}, "library_version is None, wanted '7'"),
        ({"ICD": "1"}, "ICD is"),
    ],
)
def test_R63_a_driver_of_other_versions_is_left_out_and_that_is_said(versions, said, tmp_path):
    base = {"VK_DRIVER_FILES": "/a.json"}
    with capture_logs() as logs:
        environment = WorkerEnvironment(base, DriverConfig(manifest(tmp_path), versions))
    assert environment.variables == base
    ((entry,),) = [[log for log in logs if log["event"] == "driver.left_out"]]
    assert said in entry["different"][0]
    environment.close()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"ICD": {}}', b'{"ICD": {"library_path": 3}}', b"1" * 70_000, None])
def test_a_manifest_that_is_none_is_refused_by_name(content, tmp_path):
    path = tmp_path / "broken.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArtifactInvalid, match=r"broken\.json"):
        WorkerEnvironment({}, DriverConfig(str(path), VERSIONS))


def test_the_configuration_says_what_is_missing_or_in_vain():
    table = {"manifest": "x.json", "versions": {"api_version": "1.3.274"}}
    device = structure({"device": {"executor": "process", "driver": table}}).device
    assert (device.driver, device.step_seconds, device.load_seconds) == (
        DriverConfig("x.json", table["versions"]),
        120,
        1800,
    )
    assert (DeviceConfig().executor, DeviceConfig().driver.manifest) == ("thread", "")
    for changed, complaint in [
        ({"driver": table}, "executor is 'thread': only the environment of a 'process' gets one"),
        ({"executor": "process", "driver": {"manifest": "x.json"}}, "without versions"),
        ({"executor": "greenlet"}, "executor"),
        ({"step_seconds": 0}, "step_seconds is 0: it must be at least 1"),
    ]:
        with pytest.raises(InvalidRequest, match=complaint):
            structure({"device": changed})


@needs_proc
def test_R64_the_temporary_manifest_is_there_while_the_worker_lives_and_goes_after_it(tmp_path):
    driver = {"manifest": manifest(tmp_path), "versions": VERSIONS}

    def seen(pid):
        variables = dict(
            line.split("=", 1) for line in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in line
        )
        return Path(variables.get("VK_DRIVER_FILES", variables.get(ADDITION, "")).split(os.pathsep)[-1])

    async def main():
        async with workers(tmp_path, device={"executor": "process", "driver": driver}) as it:
            first = seen(it.pid)
            assert first.is_file()
            it.arm("prefill", "lose")
            with pytest.raises(Exception, match="lost on command"):
                await it.scheduler.generate(LONG, max_tokens=2)
            assert first.is_file()
            await it.scheduler.repair()
            second = seen(it.pid)
            assert (first.exists(), second.is_file()) == (False, True)
        assert not second.parent.exists()
        assert ADDITION not in os.environ

    run(main)
