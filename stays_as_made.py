"""Objects that stay what they were made as: to set one of their options would change nothing, or only half of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, ClassVar

from .errors import UsageError

_PACKAGE = __name__.partition(".")[0]
# Those of classes that classes of this package are made of.
_BENEATH_USERS = {_PACKAGE, "torch"}


class StaysAsMade:
    """Refuses to have an option of its class set, as torch's DataLoader does: UsageError.

    Methods of the object may set what they like, and so may what they call. A subclass of users may have an attribute
    of its own under the name of an option, if objects of this package have none there; once it has, anybody may set it.
    """

    _REMEDIES: ClassVar[Mapping[str, str]] = {}
    """For names that are not parameters of the class, or for which another one is no remedy: what to do."""
    _OPTIONS_ARE_PARAMETERS: ClassVar[bool] = True
    """Whether users make objects of the class: if not, its options are the names in `_REMEDIES` alone."""
    _names_of_users: frozenset[str] = frozenset()

    if not TYPE_CHECKING:  # who checks types would take every name for an attribute

        def __setattr__(self, name: str, value: Any) -> None:
            kind: type = type(self)
            if name in _options(kind) and not self._is_of_users(name):
                setter = _method_that_runs(self)
                if setter is None:
                    raise UsageError(_why(kind, name))
                if _root(setter.f_globals) not in _BENEATH_USERS and name not in vars(self):
                    super().__setattr__("_names_of_users", self._names_of_users | {name})
            super().__setattr__(name, value)

    def _is_of_users(self, name: str) -> bool:
        return name in self._names_of_users or any(
            name in vars(kind) for kind in type(self).__mro__ if not is_ours(kind)
        )


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
            if "__init__" in vars(base) and vars(base).get("_OPTIONS_ARE_PARAMETERS", True):
                parameters = inspect.signature(base.__init__).parameters.values()
                names |= {each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD}
    return frozenset(names - {"self"})


def _method_that_runs(made: object) -> FrameType | None:
    """The innermost frame of a method of this object on this thread, `__setattr__` aside.

    A decorator's function, a comprehension or a helper may stand between a method and what it sets. So all frames are
    looked at, and a method is told by its first argument.
    """
    frame = inspect.currentframe()
    while frame is not None:
        code = frame.f_code
        is_method = code.co_name != "__setattr__" and _is_written_as_method(code)
        if is_method and frame.f_locals.get(code.co_varnames[0]) is made:
            return frame
        frame = frame.f_back
    return None


def _is_written_as_method(code: CodeType) -> bool:
    """Whether a function is written in a class, or calls its first argument `self`. Others, such as `train(dataset)`,
    are no methods of what they are given."""
    if not code.co_argcount:
        return False
    return code.co_varnames[0] == "self" or re.search(r"\w\.\w+$", code.co_qualname) is not None


def _root(module: Mapping[str, object]) -> str:
    return str(module.get("__name__", "")).partition(".")[0]


def _why(kind: type, name: str) -> str:
    ours = next(base for base in kind.__mro__ if is_ours(base))
    remedies = [vars(base).get("_REMEDIES", {}) for base in kind.__mro__]
    remedy = next((found[name] for found in remedies if name in found), f"make another one, with {name}=...")
    return f"{name} of {ours.__name__} is not set from outside, since it stays what it was made as: {remedy}"
