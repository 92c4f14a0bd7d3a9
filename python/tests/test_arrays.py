"""What is an operand, and what is refused with which sentence. No daemon is needed."""

import array

import numpy as np
import pytest

from tern import _dlpack, arrays


def test_numpy_arrays_are_used_where_they_are():
    x = np.zeros((3, 4), np.float64)
    seen = arrays.operand(x)
    assert (seen.owner is x, seen.address, seen.elements, seen.code, seen.writable) == (
        True, x.ctypes.data, 12, 1, True)


@pytest.mark.parametrize("name, code", [("float32", 0), ("f64", 1), ("float16", 2), ("bf16", 3),
                                        ("int64", 4), ("i32", 5), ("uint8", 6), (np.float32, 0)])
def test_types_have_the_numbers_of_the_c_header(name, code):
    assert arrays.dtype_code(name) == code


@pytest.mark.parametrize("x", [bytearray(8), array.array("f", [1, 2]), memoryview(bytearray(8))])
def test_buffers_are_used_where_they_are(x):
    seen = arrays.output(x)
    assert seen.address == np.asarray(memoryview(x)).ctypes.data


def test_bytes_are_an_input_and_no_output():
    assert arrays.operand(b"1234").elements == 4
    with pytest.raises(ValueError, match="read-only"):
        arrays.output(b"1234")


@pytest.mark.parametrize("x, kind, sentence", [
    (np.zeros((4, 4))[:, 1], ValueError, "not contiguous"),
    (np.zeros(4, ">f4"), TypeError, "does not carry elements of type >f4"),
    (np.zeros(4, object), TypeError, "does not carry elements of type object"),
    ([1, 2], TypeError, "list is neither a NumPy array nor"),
    (3.0, TypeError, "neither"),
    (memoryview(bytearray(8))[::2], ValueError, "not contiguous"),
])
def test_what_cannot_travel_is_refused(x, kind, sentence):
    with pytest.raises(kind, match=sentence):
        arrays.operand(x)


def test_dtype_says_what_bits_are_and_must_fit_them():
    bits = np.zeros(4, np.uint16)
    assert arrays.operand(bits, "bfloat16").code == 3
    with pytest.raises(TypeError, match="elements of 4 bytes"):
        arrays.operand(bits, "float32")
    assert arrays.operand(bits).code == 14
    with pytest.raises(TypeError, match="does not carry"):
        arrays.operand(np.zeros(4, np.longdouble))
    with pytest.raises(TypeError):
        arrays.dtype_code("float99")


class FromOutside:
    """A tensor of another library, as DLPack shows it."""

    def __init__(self, x, device=(1, 0), versioned=True):
        self.x, self.device, self.versioned = x, device, versioned

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if options and not self.versioned:
            raise TypeError("no such argument")
        try:
            return self.x.__dlpack__(**options)
        except TypeError:  # a NumPy from before version 1.0
            return self.x.__dlpack__()


class Bfloat16FromOutside(FromOutside):
    """16-bit integers of NumPy's, which it shows as bfloat16."""

    def __dlpack__(self, **options):
        capsule = super().__dlpack__(**options)
        versioned = _dlpack._pointer(capsule, b"dltensor_versioned")
        tensor = (_dlpack._Versioned.from_address(versioned).tensor if versioned is not None else
                  _dlpack._Tensor.from_address(_dlpack._pointer(capsule, b"dltensor")))
        tensor.dtype.code = 4
        return capsule


def test_dlpack_tensors_of_booleans_and_bfloat16_are_carried():
    assert arrays.operand(Bfloat16FromOutside(np.zeros(4, np.uint16))).code == 3
    try:
        np.zeros(4, bool).__dlpack__()
    except BufferError as error:
        pytest.skip(f"this NumPy shows no booleans: {error}")
    assert arrays.operand(FromOutside(np.zeros(4, bool))).code == 7


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_tensors_are_used_where_they_are(versioned):
    x = np.zeros((2, 3), np.float32)
    seen = arrays.output(FromOutside(x, versioned=versioned))
    assert (seen.address, seen.elements, seen.code) == (x.ctypes.data, 6, 0)


def test_dlpack_tensors_that_cannot_travel_are_refused():
    x = np.zeros((4, 4), np.float32)
    with pytest.raises(ValueError, match="not contiguous"):
        arrays.operand(FromOutside(x.T[1:]))
    with pytest.raises(TypeError, match="device"):
        arrays.operand(FromOutside(x, device=(2, 0)))
    with pytest.raises((TypeError, BufferError)):
        arrays.operand(FromOutside(np.zeros(4, np.longdouble)))


def test_bfloat16_of_ml_dtypes_is_carried():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert arrays.operand(np.zeros(4, ml_dtypes.bfloat16)).code == 3
    assert arrays.numpy_dtype("bfloat16") == ml_dtypes.bfloat16
