"""Tensors in memory that is there already, by DLPack: what says where the memory is also says on which device.

The other interface of torch, the CUDA array, does not name the device. torch then asks CUDA about the address, and
whether CUDA's runtime knows the addresses of NVDEC's surfaces is not documented.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

# dlpack.h, DLDeviceType and DLDataTypeCode.
_DEVICES = {"cpu": 1, "cuda": 2}
_UNSIGNED = 1
_BITS = {torch.uint8: 8, torch.uint16: 16}
# A capsule refers to its name.
_NAME = b"dltensor"


class Tensor(ctypes.Structure):
    """DLTensor of dlpack.h, 1.0, in which the structures for a device and a data type are written out."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("num_dimensions", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class ManagedTensor(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_libc = ctypes.CDLL(None)
_allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("malloc", _libc))
# The deleter gets the structure, and all of it lies in one piece of memory: so it is C's own `free`, which needs no
# Python, whenever torch calls it.
_FREE = ctypes.cast(_libc.free, ctypes.c_void_p).value
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def tensor_at(
    device: torch.device, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """A tensor in memory of a device that is there already, which it does not keep. Strides are in bytes."""
    size, count = dtype.itemsize, len(shape)
    place = _allocate(ctypes.sizeof(ManagedTensor) + 16 * count)
    if not place:
        raise MemoryError
    numbers = place + ctypes.sizeof(ManagedTensor)
    (ctypes.c_int64 * (2 * count)).from_address(numbers)[:] = [*shape, *(step // size for step in strides)]
    managed = ManagedTensor.from_address(place)
    managed.tensor = Tensor(
        data=address,
        device_type=_DEVICES[device.type],
        device_id=device.index or 0,
        num_dimensions=count,
        type_code=_UNSIGNED,
        type_bits=_BITS[dtype],
        type_lanes=1,
        shape=numbers,
        strides=numbers + 8 * count,
    )
    managed.context, managed.deleter = None, _FREE
    capsule: Any = _new_capsule(place, _NAME, None)
    found: torch.Tensor = from_dlpack(capsule)
    return found
