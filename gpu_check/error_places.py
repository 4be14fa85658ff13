"""Where an error was raised: the lines of the checkout that led to it, which the last lines of a log may lack."""

from __future__ import annotations

import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_MOST = 5


def places_of(error: BaseException) -> list[str]:
    """Such as "readers/gpu/dlpack.py:78 tensor_at", the innermost line last, of the error that the others came from."""
    while cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        error = cause
    frames = [(Path(each.filename).resolve(), each) for each in traceback.extract_tb(error.__traceback__)]
    own = [(path, each) for path, each in frames if _is_ours(path)]
    # Where none of the lines is ours, such as in a thread of a library, theirs have to do.
    return [
        f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{each.lineno} {each.name}"
        for path, each in (own or frames)[-_MOST:]
    ]


def _is_ours(path: Path) -> bool:
    """Whether a file is of the checkout: of no package, and not that which every check begins in."""
    # Wheels are unpacked into gpu_site.
    return path.is_relative_to(ROOT) and not {".venv", "gpu_site", "check_child.py"} & set(path.parts)
