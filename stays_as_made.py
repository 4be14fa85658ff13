"""Objects that stay what they were made as: to set one of their options would change nothing, or only half of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from .errors import UsageError


class StaysAsMade:
    """Refuses to have an option of its class set once it was made, as torch's DataLoader does: UsageError.

    Each class calls `_stays` at the end of its `__init__`. Objects of a subclass that does not, as those of users, may
    have whatever is set: attributes of their own may have any name.
    """

    _REMEDIES: ClassVar[Mapping[str, str]] = {}
    """What to do in place of setting a name. It has the names that are refused and are no parameters of the class, and
    the parameters for which making another object is no remedy."""
    _OPTIONS_ARE_PARAMETERS: ClassVar[bool] = True
    """Whether users make objects of the class: if not, its options are the names in `_REMEDIES` alone."""

    def _stays(self, kind: type) -> None:
        """Say that an object of this very class is made."""
        if type(self) is kind:
            vars(self)["_is_made"] = True

    if not TYPE_CHECKING:  # who checks types would take every name for an attribute

        def __setattr__(self, name: str, value: Any) -> None:
            if "_is_made" in vars(self) and name in _options(type(self)):
                raise UsageError(_why(type(self), name))
            super().__setattr__(name, value)


@cache
def _options(kind: type) -> frozenset[str]:
    """The parameters of a class and of those that it is made of, and the other names that they refuse."""
    names: set[str] = set()
    for base in kind.__mro__:
        if issubclass(base, StaysAsMade):
            names |= set(vars(base).get("_REMEDIES", ()))
            if "__init__" in vars(base) and vars(base).get("_OPTIONS_ARE_PARAMETERS", True):
                parameters = inspect.signature(base.__init__).parameters.values()
                names |= {each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD}
    return frozenset(names - {"self"})


def _why(kind: type, name: str) -> str:
    remedies = [vars(base).get("_REMEDIES", {}) for base in kind.__mro__]
    remedy = next((found[name] for found in remedies if name in found), f"make another one, with {name}=...")
    return f"{name} of {kind.__name__} is not set from outside, since it stays what it was made as: {remedy}"
