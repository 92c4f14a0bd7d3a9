"""The emulated CUDA driver of tests/cuda, for tests of tern.cuda: kernels run, slowly, and a device
address is the host's."""

import ctypes
import functools
import os
import pathlib

import numpy as np
import pytest

from tern.cuda import Device


def driver_path():
    """Where the build has it."""
    said = os.environ.get("TERN_EMULATED_CUDA")
    programs = pathlib.Path(os.environ.get("TERN_PROGRAMS", "."))
    return pathlib.Path(said) if said else programs.parent / "tests/cuda/libemulated_cuda.so"


@functools.cache
def driver():
    """It, or a skip where there is none; a failure where TERN_EMULATED_CUDA says that there is."""
    path = driver_path()
    if not path.exists():
        give_up = pytest.fail if os.environ.get("TERN_EMULATED_CUDA") else pytest.skip
        give_up(f"there is no {path}: build the target emulated_cuda")
    return ctypes.CDLL(str(path))


def device(client, **options):
    """Opens it for the calling thread."""
    driver().emulated_cuda_enter()
    return Device(client, driver=str(driver_path()), image=b"image", **options)


def add_memory(address, count):
    """Lets kernels reach memory of the test's."""
    driver().emulated_cuda_add_memory(ctypes.c_void_p(address), ctypes.c_size_t(count))


class Values:
    """Floats on the emulated GPU."""

    def __init__(self, values):
        self._driver = driver()
        self._driver.emulated_cuda_enter()
        self._address = ctypes.c_ulonglong()
        assert self._driver.cuMemAlloc_v2(ctypes.byref(self._address),
                                          ctypes.c_size_t(values.nbytes)) == 0
        self._bytes = values.nbytes
        self.put(values)

    @property
    def address(self):
        return self._address.value

    def put(self, values):
        ctypes.memmove(self.address, values.ctypes.data, self._bytes)

    def get(self):
        return np.frombuffer(ctypes.string_at(self.address, self._bytes), "float32").copy()

    def free(self):
        assert self._driver.cuMemFree_v2(self._address) == 0
