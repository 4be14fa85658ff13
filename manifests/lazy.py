"""A property that is worked out once, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

_T = TypeVar("_T")


class lazy(Generic[_T]):  # noqa: N801  # used like `property`
    """Like functools.cached_property, which in Python 3.11 holds a lock meanwhile: a process that forks while
    another thread holds it leaves its child waiting for ever. Two threads may here do the same work at the same time.
    """

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
        # From now on the instance's own attribute is found first.
        value = instance.__dict__[self._name] = self._work_out(instance)
        return value
