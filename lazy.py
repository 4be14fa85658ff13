"""Values of an object that are worked out when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

_T = TypeVar("_T")


class lazy(Generic[_T]):  # noqa: N801  # used like `property`
    """Like functools.cached_property, but without the lock that it holds in Python 3.11: if a process forks while
    another thread holds that lock, the child waits for ever. Here two threads may compute the same value at the same
    time."""

    def __init__(self, work_out: Callable[[Any], _T]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[_T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...
    def __get__(self, instance: object | None, owner: type) -> lazy[_T] | _T:
        if instance is None:
            return self
        # From now on Python finds the instance's own attribute first.
        value = instance.__dict__[self._name] = self._work_out(instance)
        return value
