"""Every VkResult has its name and its error."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from coresident.actors.errors import BackendFault, DeviceLost
from coresident.runtime.backends.vulkan.functions import Functions, type_constant
from coresident.runtime.backends.vulkan.results import Result, fault, name
from hypothesis import given
from hypothesis import strategies as st

from support.vulkan_life import functions


def answering(result: int | None) -> Functions:
    return Functions(None, {"vkDo": lambda *args: result}, None)


@given(st.sampled_from(list(Result)) | st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_negative_result_is_an_error_that_names_it_and_any_other_is_returned(result) -> None:
    call = answering(int(result)).call
    if result >= 0:
        assert call("vkDo") == result
        return
    with pytest.raises(BackendFault, match=r"vkDo for the weights returned (VK_ERROR_|VkResult -)\w+: ") as caught:
        call("vkDo", what="the weights")
    assert name(result) in str(caught.value)
    assert caught.value.details == {"function": "vkDo", "result": result}
    assert isinstance(caught.value, DeviceLost) == (result == Result.ERROR_DEVICE_LOST)


def test_a_function_that_returns_nothing_has_succeeded() -> None:
    assert answering(None).call("vkDo") == 0


def test_results_that_no_specification_knows_yet_are_named_by_their_number() -> None:
    assert name(-1000999999) == "VkResult -1000999999"
    assert "VkResult -77" in str(fault("vkDo", -77))


def test_every_result_of_the_binding_has_a_name() -> None:
    """Its table of exceptions lacks some of them, and its constants have one with the wrong sign."""
    enumeration = functions().ffi.typeof("enum VkResult").elements
    numbers = {number for number, told in enumeration.items() if "MAX_ENUM" not in told}
    assert numbers
    assert numbers <= set(Result)


def test_structs_get_their_type_and_keep_what_they_point_to() -> None:
    real = functions()
    info = real.struct("VkApplicationInfo", pApplicationName=real.ffi.new("char[]", b"kept"))
    assert info.sType == real.constant("VK_STRUCTURE_TYPE_APPLICATION_INFO")
    for _ in range(100):
        real.ffi.new("char[]", b"lost")
    assert real.ffi.string(info.pApplicationName) == b"kept"


def test_a_struct_whose_type_nobody_knows_is_refused() -> None:
    """A driver would pass over it and fill nothing in."""
    real = functions()
    lacking = SimpleNamespace(VK_STRUCTURE_TYPE_APPLICATION_INFO=0)
    with pytest.raises(AttributeError, match="VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO"):
        Functions(real.ffi, real.table, lacking).struct("VkBufferCreateInfo")
    assert real.struct("VkPushConstantRange", size=4).size == 4


@pytest.mark.parametrize(
    ("kind", "constant"),
    [
        ("VkBufferCreateInfo", "BUFFER_CREATE_INFO"),
        ("VkPhysicalDeviceProperties2", "PHYSICAL_DEVICE_PROPERTIES_2"),
        ("VkPhysicalDeviceMaintenance3Properties", "PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES"),
        ("VkPhysicalDeviceMemoryBudgetPropertiesEXT", "PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT"),
        ("VkPhysicalDeviceIDProperties", "PHYSICAL_DEVICE_ID_PROPERTIES"),
        ("VkPipelineCreationFeedbackCreateInfo", "PIPELINE_CREATION_FEEDBACK_CREATE_INFO"),
    ],
)
def test_a_structs_type_is_read_from_its_name(kind, constant) -> None:
    assert type_constant(kind) == f"VK_STRUCTURE_TYPE_{constant}"
    assert functions().constant(type_constant(kind)) > 0
