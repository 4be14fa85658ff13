"""HTML as text. What is not `Html` already is escaped, so that no name in a dataset becomes markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

_VOID = frozenset({"img", "meta"})


class Html(str):
    """Text that is markup, and is not escaped again."""

    __slots__ = ()


def text(value: str) -> Html:
    """The text as HTML that shows it."""
    return value if isinstance(value, Html) else Html(html.escape(value))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """An element. An attribute that is None is left out; `class_` is `class`, and other underscores are hyphens."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = joined(children)
    return Html(f"<{name}{given}>" if name in _VOID else f"<{name}{given}>{inner}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """The parts one after the other."""
    return Html("".join(map(text, parts)))
