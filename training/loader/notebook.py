"""What a notebook or an interpreter defined, and worker processes that start anew do not know."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

from ...errors import UsageError


def check_known_to_workers(dataset: Any) -> None:
    """UsageError for a dataset that consists of classes or functions of a notebook, with their names.

    Workers would end before they are ready, and write why to where a notebook does not show it.
    """
    names = _names_of_main(dataset) if _is_interactive() else []
    if names:
        raise UsageError(
            f"worker processes do not know {', '.join(names)}, which this notebook or interpreter has defined: write "
            "it into a module (in a notebook with %%writefile) and import it from there, or take workers=0"
        )


def _is_interactive() -> bool:
    """Whether no file holds the program, so that no other process can import it."""
    main = sys.modules.get("__main__")
    return getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None


def _names_of_main(sent: Any) -> list[str]:
    """The classes and functions of the program itself that are named where this is pickled."""
    names: dict[str, None] = {}

    class Naming(pickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            if getattr(obj, "__module__", None) == "__main__" and hasattr(obj, "__qualname__"):
                names[obj.__qualname__] = None
            return NotImplemented

    try:
        Naming(io.BytesIO()).dump(sent)
    except Exception:  # noqa: BLE001  # where it is really sent this is an error of its own
        return []
    return list(names)
