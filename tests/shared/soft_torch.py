"""A torch.cuda in software, for a torch without CUDA: `pretend` puts it in place, for good, in a process of its own.

Tensors "on the GPU" lie in the CPU's memory and are of a class of their own, which says that their device is cuda:0.
Work is done when it is given, on whatever stream, and what would make the host wait for it is counted. What torch
refuses is refused: tensors of two devices in one call, numpy of a CUDA tensor, CUDA in a forked process. A call of
CUDA's runtime that fails leaves its error for the next kernel of the thread, as torch finds it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from shortgop.readers.decoders import pyav_cuda
from shortgop.readers.gpu import dlpack
from shortgop.readers.gpu.cuda_driver import load
from soft_driver import from_dlpack_on_host

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
ALREADY_REGISTERED, NOT_REGISTERED = 712, 713
_TOTAL_BYTES = 1 << 37
_FACTORIES = ("arange", "empty", "empty_like", "full", "ones", "tensor", "zeros")
# Calls that take tensors of the CPU beside those of the GPU.
_MIXED = ("copy_", "__getitem__", "__setitem__")
_USED_BY = list[int]()
_WAITS = list[str]()
_KEPT = list[tuple[int, int]]()
_WAITED_FOR = list[tuple[int, int]]()
_sync_debug = ["default"]
_thread = threading.local()
_registered: dict[int, int] = {}


def _use() -> None:
    """The process uses CUDA from now on. RuntimeError in one that was forked from one that does, with torch's words."""
    if not _USED_BY:
        _USED_BY.append(os.getpid())
    if _is_forked():
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")


def _is_forked() -> bool:
    return bool(_USED_BY) and _USED_BY[0] != os.getpid()


def waits() -> list[str]:
    """What has made the host wait for the GPU so far."""
    return _WAITS


def _wait(why: str) -> None:
    _WAITS.append(why)
    if _sync_debug[-1] == "error":
        raise RuntimeError("called a synchronizing CUDA operation")


def kept() -> list[tuple[int, int]]:
    """The memory of tensors that was to be kept for a stream's work so far: its address, and the stream's handle."""
    return _KEPT


def waited_for() -> list[tuple[int, int]]:
    """Streams that were to wait, and the stream of the event that each waits for: their handles."""
    return _WAITED_FOR


def _launch() -> None:
    """A kernel, behind which torch asks for the last error."""
    _use()
    error, _thread.error = getattr(_thread, "error", 0), 0
    if error:
        raise RuntimeError(f"CUDA error: an earlier call failed ({error})")


def _is_cuda(value: object) -> bool:
    return isinstance(value, str | torch.device) and torch.device(value).type == "cuda"


def _plain_tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield from [] if isinstance(value, SoftTensor) or not value.dim() else [value]
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _plain_tensors(each)


def _as_cuda(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.as_subclass(SoftTensor)
    return type(value)(map(_as_cuda, value)) if type(value) in (list, tuple) else value


class SoftTensor(torch.Tensor):
    """A tensor on the GPU."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.__name__, dict(kwargs or {})
        if name == "__get__":
            field = func.__self__.__name__
            if field in ("device", "is_cuda", "is_cpu"):
                return {"device": CUDA, "is_cuda": True, "is_cpu": False}[field]
        elif name in ("cpu", "cuda", "to"):
            return _moved(args[0], "cpu" if name == "cpu" else CUDA if name == "cuda" else None, args[1:], kwargs)
        elif name in ("numpy", "__array__"):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        elif name not in _MIXED and next(_plain_tensors([*args, *kwargs.values()]), None) is not None:
            raise RuntimeError(f"{name}: Expected all tensors to be on the same device")
        else:
            _launch()
        with torch._C.DisableTorchFunctionSubclass():
            return _as_cuda(func(*args, **kwargs))

    def record_stream(self, stream: Any) -> None:
        if self.layout != torch.strided:
            raise NotImplementedError("Could not run 'aten::record_stream' with a sparse tensor")
        _KEPT.append((self.data_ptr(), stream.cuda_stream))

    def is_pinned(self, device: object = None) -> bool:
        return False


def _moved(tensor: torch.Tensor, device: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """What `to`, `cuda` and `cpu` give, a copy where the device is another one."""
    given = [each for each in (*args, kwargs.get("device")) if isinstance(each, str | torch.device)]
    rest = [each for each in args if not isinstance(each, str | torch.device)]
    kept = {name: value for name, value in kwargs.items() if name not in ("device", "non_blocking")}
    was_cuda = isinstance(tensor, SoftTensor)
    to_cuda = _is_cuda((given or [device or (CUDA if was_cuda else CPU)])[0])
    follows = was_cuda or (tensor.layout == torch.strided and _is_pinned(tensor) and _is_dense(tensor))
    if was_cuda != to_cuda and not (kwargs.get("non_blocking") and follows):
        _wait(f"a copy of {tuple(tensor.shape)} to the {'GPU' if to_cuda else 'CPU'}")
    if was_cuda or to_cuda:
        _use()
    with torch._C.DisableTorchFunctionSubclass():
        plain = tensor.as_subclass(torch.Tensor)
        found = _to(plain, *rest, **kept) if rest or kept else plain
        found = found.clone() if to_cuda != was_cuda else found
        return found.as_subclass(SoftTensor) if to_cuda else found


class Stream:
    """See torch.cuda.Stream. The default one has the handle 0."""

    def __init__(self, device: object = None, cuda_stream: int | None = None) -> None:
        _use()
        self.cuda_stream = id(self) if cuda_stream is None else cuda_stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.cuda_stream == other.cuda_stream

    def __hash__(self) -> int:
        return self.cuda_stream

    def wait_event(self, event: Any) -> None:
        _WAITED_FOR.append((self.cuda_stream, event.stream.cuda_stream))

    def wait_stream(self, stream: Any) -> None:
        assert isinstance(stream, Stream)

    def synchronize(self) -> None:
        _use()


class Event:
    """See torch.cuda.Event."""

    def __init__(self, blocking: bool = False) -> None:
        _use()

    def record(self, stream: Stream | None = None) -> None:
        self.stream = stream or _current_stream()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        _use()


class Cudart:
    """See torch.cuda.cudart()."""

    @staticmethod
    def cudaHostRegister(address: int, num_bytes: int, flags: int) -> int:  # noqa: N802  # CUDA's name
        if address in _registered:
            _thread.error = ALREADY_REGISTERED
            return ALREADY_REGISTERED
        _registered[address] = num_bytes
        return 0

    @staticmethod
    def cudaHostUnregister(address: int) -> int:  # noqa: N802
        return 0 if _registered.pop(address, None) else NOT_REGISTERED


@contextlib.contextmanager
def _stream(stream: Stream | None) -> Iterator[None]:
    before = getattr(_thread, "stream", None)
    _thread.stream = stream or before
    try:
        yield
    finally:
        _thread.stream = before


def _current_stream(device: object = None) -> Stream:
    return getattr(_thread, "stream", None) or Stream(cuda_stream=0)


def _cudart() -> type[Cudart]:
    _use()
    return Cudart


def _current_device() -> int:
    _use()
    return 0


def _mem_get_info(device: object = None) -> tuple[int, int]:
    library = load("libcuda.so.1")
    library.soft_bytes.restype = ctypes.c_longlong
    return _TOTAL_BYTES - int(library.soft_bytes()), _TOTAL_BYTES


def _made_by(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def make(*args: Any, **kwargs: Any) -> torch.Tensor:
        pins, device = kwargs.pop("pin_memory", False), kwargs.pop("device", None)
        if _is_cuda(device):
            _launch()
            if original.__name__ == "tensor":
                _wait(f"a tensor made of {args[0]!r}")
            return original(*args, **kwargs).as_subclass(SoftTensor)
        made = original(*args, **kwargs, device=device)
        return made.pin_memory() if pins else made

    return make


def _pinned(tensor: torch.Tensor, device: object = None) -> torch.Tensor:
    _use()
    if isinstance(tensor, SoftTensor) or tensor.layout != torch.strided:
        raise RuntimeError("cannot pin: only dense CPU tensors can be pinned")
    # Of the same strides: torch refuses to write into memory that has several elements.
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)
    made.was_pinned = True  # type: ignore[attr-defined]
    return made


def _is_pinned(tensor: torch.Tensor, device: object = None) -> bool:
    address = tensor.data_ptr()
    locked = any(start <= address < start + size for start, size in list(_registered.items()))
    return locked or hasattr(tensor, "was_pinned")


def _is_dense(tensor: torch.Tensor) -> bool:
    """Without gaps: torch copies another one within the host's memory first."""
    return tensor.stride() == torch.empty_like(tensor).stride()


_to = torch.Tensor.to


def pretend() -> None:
    """Put it in place of torch.cuda."""
    for name in _FACTORIES:
        setattr(torch, name, _made_by(getattr(torch, name)))
    methods = {
        "to": lambda tensor, *args, **kwargs: _moved(tensor, None, args, kwargs),
        "cuda": lambda tensor: _moved(tensor, CUDA, (), {}),
        "pin_memory": _pinned,
        "is_pinned": _is_pinned,
    }
    functions = {
        "Event": Event,
        "Stream": Stream,
        "_is_in_bad_fork": _is_forked,
        "_sleep": lambda cycles: _launch(),
        "cudart": _cudart,
        "current_device": _current_device,
        "current_stream": _current_stream,
        "default_stream": lambda device=None: Stream(cuda_stream=0),
        "device": lambda device: contextlib.nullcontext(),
        "device_count": lambda: 1,
        "empty_cache": lambda: None,
        "is_available": lambda: not _is_forked(),
        "mem_get_info": _mem_get_info,
        "set_sync_debug_mode": _sync_debug.append,
        "stream": _stream,
        "synchronize": lambda device=None: _use(),
    }
    for place, replaced in ((torch.Tensor, methods), (torch.cuda, functions)):
        for name, value in replaced.items():
            setattr(place, name, value)
    for module in (pyav_cuda, dlpack):
        vars(module)["from_dlpack"] = lambda capsule: from_dlpack_on_host(capsule).as_subclass(SoftTensor)
