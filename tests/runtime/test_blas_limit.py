"""The limit on BLAS threads belongs to the process: backends that overlap neither lose it nor leave it behind."""

from __future__ import annotations

import gc
import threading

import pytest
from coresident.runtime.backends.reference import threads
from coresident.runtime.backends.reference.threads import BlasLimit
from threadpoolctl import threadpool_info, threadpool_limits

from support.reference import MODEL, opened


def blas() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(threads, "_SHARED", threads._Shared())
    with threadpool_limits(limits=2, user_api="blas"):
        if blas() != {2}:
            pytest.skip("NumPy's BLAS here has no limit that can be set")
        yield


@pytest.mark.parametrize("first", [0, 1])
def test_overlapping_backends_keep_the_limit_until_the_last_has_unloaded(first):
    backends = [opened(), opened()]
    assert blas() == {1}
    backends.pop(first).unload(MODEL)
    assert blas() == {1}
    backends.pop().unload(MODEL)
    assert blas() == {2}


def test_the_smallest_limit_asked_for_is_in_force():
    wide, narrow = BlasLimit(2), BlasLimit(1)
    wide.hold()
    assert blas() == {2}
    narrow.hold()
    narrow.hold()
    assert blas() == {1}
    narrow.release()
    assert blas() == {2}
    wide.release()
    wide.release()
    assert blas() == {2}


def test_a_limit_is_in_force_whichever_threads_set_others_before():
    """Every scheduler has a device thread of its own, and the program may have set limits before on its main one."""
    seen = []

    def use():
        limit = BlasLimit(1)
        limit.hold()
        seen.append(blas())
        limit.release()
        seen.append(blas())

    for _ in range(2):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        use()
    assert seen == [{1}, {2}] * 4


def test_a_backend_that_is_collected_leaves_no_limit_behind():
    limit = BlasLimit(1)
    limit.hold()
    assert blas() == {1}
    del limit
    gc.collect()
    assert blas() == {2}
