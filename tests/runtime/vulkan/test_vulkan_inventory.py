"""What devices say of themselves, which are refused and why, and which one is chosen."""

from __future__ import annotations

import attrs
import pytest
from coresident.actors.errors import BackendFault, InvalidRequest
from coresident.runtime.backends.vulkan import library
from coresident.runtime.backends.vulkan.inventory import choose, inventory
from coresident.runtime.backends.vulkan.limits import Limits
from coresident.runtime.backends.vulkan.results import Result

from support.vulkan_fakes import Watched
from support.vulkan_life import device_info, functions, opened


def kind(name: str, index: int = 0, unsuitable: str | None = None):
    return attrs.evolve(device_info(), kind=name, index=index, name=f"{name} {index}", unsuitable=unsuitable)


def test_an_inventory_leaves_nothing_open_and_says_the_same_each_time() -> None:
    watched = Watched(functions())
    found = inventory(watched.functions)
    assert watched.left() == []
    assert found == inventory(functions())
    assert [info.index for info in found] == list(range(len(found)))
    assert device_info() in found


def test_limits_are_those_that_every_device_of_vulkan_1_2_has() -> None:
    """Least values of "Required Limits" in the specification."""
    limits = device_info().limits
    assert limits.max_storage_range >= 1 << 27
    assert limits.max_allocation >= 1 << 30
    assert limits.max_allocations >= 4096
    assert limits.max_storage_bindings >= 4
    assert limits.max_groups >= 65535
    assert limits.alignment >= 64
    assert limits.block % limits.alignment == 0


def test_a_device_of_vulkan_1_1_is_listed_with_the_reason_that_it_cannot_be_used() -> None:
    watched = Watched(functions())
    watched.replace(
        "vkGetPhysicalDeviceProperties", lambda physical, out: setattr(out, "apiVersion", 1 << 22 | 1 << 12)
    )
    old = inventory(watched.functions)[device_info().index]
    assert old.api_version == (1, 1, 0)
    assert old.unsuitable == "its driver offers Vulkan 1.1, and 1.2 is needed"
    assert watched.count("vkGetPhysicalDeviceProperties2") == 0
    with pytest.raises(InvalidRequest, match=r"offers Vulkan 1\.1"):
        choose([old])
    with pytest.raises(InvalidRequest, match=r"cannot be used: its driver offers Vulkan 1\.1"):
        opened(watched.functions, old)
    assert watched.left() == []


def test_a_device_without_a_queue_that_computes_is_listed_with_the_reason() -> None:
    def graphics_only(physical, count, families):
        for index in range(count[0] if families else 0):
            families[index].queueFlags = 1

    watched = Watched(functions())
    watched.replace("vkGetPhysicalDeviceQueueFamilyProperties", graphics_only)
    found = inventory(watched.functions)[device_info().index]
    assert found.queue_family is None
    assert found.unsuitable == "it has no queue that computes"
    with pytest.raises(InvalidRequest, match=f"device {found.index} .* it has no queue that computes; choose another"):
        choose([found], found.index)


@pytest.mark.parametrize(("flags", "chosen"), [([7, 4, 6, 14], 2), ([1, 3, 7], 1), ([2], 0)])
def test_queues_that_only_compute_are_taken_before_those_that_draw_too(flags, chosen) -> None:
    def several(physical, count, families):
        for index in range(len(flags) if families else 0):
            families[index].queueFlags = flags[index]
        count[0] = len(flags)

    watched = Watched(functions())
    watched.replace("vkGetPhysicalDeviceQueueFamilyProperties", several)
    assert {info.queue_family for info in inventory(watched.functions)} == {chosen}


def test_a_device_that_binds_fewer_buffers_than_a_kernel_needs_is_listed_with_the_reason() -> None:
    real, watched = functions(), Watched(functions())

    def few(physical, out):
        real.table["vkGetPhysicalDeviceProperties"](physical, out)
        out.limits.maxPerStageDescriptorStorageBuffers = 5

    watched.replace("vkGetPhysicalDeviceProperties", few)
    found = inventory(watched.functions)[device_info().index]
    assert found.unsuitable == "its kernels can bind 5 storage buffers, and 6 are needed"
    with pytest.raises(InvalidRequest, match="can bind 5 storage buffers, and 6 are needed; choose another"):
        choose([found], found.index)


def test_a_device_is_known_by_the_uuid_that_its_driver_tells() -> None:
    real, watched = functions(), Watched(functions())

    def tell(physical, out):
        link, wanted = out.pNext, real.constant("VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES")
        while link != real.ffi.NULL:
            struct = real.ffi.cast("VkPhysicalDeviceIDProperties*", link)
            if struct.sType == wanted:
                struct.deviceUUID = bytes(range(16))
            link = struct.pNext

    watched.replace("vkGetPhysicalDeviceProperties2", tell)
    assert inventory(watched.functions)[device_info().index].uuid == bytes(range(16)).hex()


def test_the_best_kind_is_chosen_and_of_equals_the_first() -> None:
    found = [
        kind("cpu"),
        kind("virtual", 1),
        kind("integrated", 2),
        kind("discrete", 3, "broken"),
        kind("integrated", 4),
    ]
    assert choose(found).index == 2
    assert choose([*found, kind("discrete", 5)]).index == 5
    assert choose(found, 1).kind == "virtual"
    assert choose(found[:1]).kind == "cpu"


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidRequest, match=r"index is 7: the Vulkan devices here are 0 \(cpu 0\), 2 \(discrete 2\)"):
        choose([kind("cpu"), kind("discrete", 2)], 7)


@pytest.mark.parametrize("name", ["vkCreateInstance", "vkEnumeratePhysicalDevices"])
def test_a_loader_without_a_driver_has_no_devices_and_choosing_says_what_to_install(name) -> None:
    watched = Watched(functions())
    driverless = {"vkCreateInstance": Result.ERROR_INCOMPATIBLE_DRIVER}
    watched.fail(name, driverless.get(name, Result.ERROR_INITIALIZATION_FAILED))
    assert inventory(watched.functions) == ()
    assert watched.left() == []
    with pytest.raises(InvalidRequest, match=r"no driver answers: .*mesa-vulkan-drivers"):
        choose(())
    watched.fail(name, driverless.get(name, Result.ERROR_INITIALIZATION_FAILED))
    with pytest.raises(InvalidRequest):
        opened(watched.functions)
    assert watched.left() == []


def test_drivers_that_cannot_be_listed_are_looked_for_where_the_environment_names_them(monkeypatch) -> None:
    """The loader reports a damaged manifest as a lack of memory."""
    monkeypatch.setenv("VK_ICD_FILENAMES", "damaged.json")
    watched = Watched(functions())
    watched.fail("vkEnumerateInstanceExtensionProperties", Result.ERROR_OUT_OF_HOST_MEMORY)
    with pytest.raises(InvalidRequest, match=r"damaged driver manifest.*VK_ICD_FILENAMES=damaged\.json must name"):
        inventory(watched.functions)
    with pytest.raises(InvalidRequest, match=r"no driver answers.*VK_ICD_FILENAMES=damaged\.json"):
        choose(())


def test_an_inventory_that_fails_is_a_typed_error_and_leaves_nothing_open() -> None:
    whole = Watched(functions())
    inventory(whole.functions)
    for name, nth in whole.fallible():
        watched = Watched(functions())
        watched.fail(name, Result.ERROR_OUT_OF_HOST_MEMORY, nth)
        with pytest.raises((BackendFault, InvalidRequest), match=f"{name} returned VK_ERROR_OUT_OF_HOST_MEMORY"):
            inventory(watched.functions)
        assert watched.left() == []


def test_a_device_that_is_another_one_now_is_not_opened() -> None:
    watched = Watched(functions())
    with pytest.raises(InvalidRequest, match="is no longer Voodoo: the devices of this machine have changed"):
        opened(watched.functions, attrs.evolve(device_info(), name="Voodoo"))
    with pytest.raises(InvalidRequest, match="device 99 is no longer"):
        opened(watched.functions, attrs.evolve(device_info(), index=99))
    assert watched.left() == []


def test_without_a_loader_the_error_says_what_to_install(monkeypatch) -> None:
    def no_loader(name):
        raise OSError("libvulkan.so.1: cannot open shared object file")

    monkeypatch.setattr(library, "import_module", no_loader)
    functions()
    with pytest.raises(InvalidRequest, match=r"Vulkan loader .* apt install libvulkan1"):
        library.open_functions()


def test_without_the_binding_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(library, "find_spec", lambda name: None)
    assert library.missing() == ("vulkan",)
    with pytest.raises(InvalidRequest, match=r"needs vulkan, not installed here: pip install 'coresident\[vulkan\]'"):
        library.open_functions()


def test_a_loader_of_vulkan_1_0_is_refused(monkeypatch) -> None:
    class Binding:
        ffi = lib = None

    functions()
    monkeypatch.setattr(library, "import_module", lambda name: Binding)
    with pytest.raises(InvalidRequest, match=r"older than Vulkan 1\.1"):
        library.open_functions()


def test_the_largest_piece_is_the_least_of_the_limits_rounded_down() -> None:
    limits = Limits(1000, 1 << 20, None, 1 << 20, 1, 64, 1, 1)
    assert limits.block == 960
    assert limits.aligned(961) == 1024
    assert attrs.evolve(limits, max_texel_elements=10).block == 128
    assert attrs.evolve(limits, max_texel_elements=10, texels=False).block == 960
    assert attrs.evolve(limits, max_buffer_size=640).block == 640
