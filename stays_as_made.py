"""Objects that stay what they were made as: to set one of their options would change nothing, or only half of it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar

from .errors import UsageError

_PACKAGE = __name__.partition(".")[0]


class StaysAsMade:
    """Refuses to have an option of its class set, as torch's DataLoader does: UsageError.

    Methods of the object may set what they like. A subclass of users may have an attribute of its own under the name of
    an option; once it has, anybody may set that.
    """

    _REMEDIES: ClassVar[Mapping[str, str]] = {}
    """For names that are not parameters of the class, or for which another one is no remedy: what to do."""

    if not TYPE_CHECKING:  # who checks types would take every name for an attribute

        def __setattr__(self, name: str, value: Any) -> None:
            kind: type = type(self)
            if name in _options(kind) and not self._is_of_subclass(name):
                caller = sys._getframe(1)  # noqa: SLF001  # the documented way to the caller
                if not _is_method(caller, kind):
                    raise UsageError(_why(kind, name))
            super().__setattr__(name, value)

    def _is_of_subclass(self, name: str) -> bool:
        of_users = [kind for kind in type(self).__mro__ if not is_ours(kind)]
        return any(name in vars(kind) for kind in of_users) or (not is_ours(type(self)) and name in vars(self))


def is_ours(kind: type) -> bool:
    """Whether a class is of this package."""
    return kind.__module__.partition(".")[0] == _PACKAGE


@cache
def _options(kind: type) -> frozenset[str]:
    """The parameters of the classes of this package that `kind` is made of, and the other names that they refuse."""
    names: set[str] = set()
    for base in kind.__mro__:
        if issubclass(base, StaysAsMade) and is_ours(base):
            names |= set(vars(base).get("_REMEDIES", ()))
            if "__init__" in vars(base):
                parameters = inspect.signature(base.__init__).parameters.values()
                names |= {each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD}
    return frozenset(names - {"self"})


def _is_method(frame: FrameType, kind: type) -> bool:
    """Whether a frame is that of a method of this class."""
    name, code = frame.f_code.co_name, frame.f_code
    return any(getattr(vars(base).get(name), "__code__", None) is code for base in kind.__mro__)


def _why(kind: type, name: str) -> str:
    ours = next(base for base in kind.__mro__ if is_ours(base))
    remedies = [vars(base).get("_REMEDIES", {}) for base in kind.__mro__]
    remedy = next((found[name] for found in remedies if name in found), f"make another one, with {name}=...")
    return f"{name} of {ours.__name__} is not set from outside, since it stays what it was made as: {remedy}"
