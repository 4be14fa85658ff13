"""Whether PyAV is of a release that prep reads sources with."""

from __future__ import annotations

import av

from ...errors import ToolError

# What a file's headers and packets are taken to mean was tried with this release's FFmpeg, 8.1. Others read some files
# otherwise, and lack some of what is asked here. `pyproject.toml` says the same in the extra `prep`.
_RELEASE = 18


def check_pyav(installed: str = av.__version__) -> None:
    """ToolError for another release. Readers take PyAV 15 to 19, so an environment for training may have one."""
    if int(installed.split(".", maxsplit=1)[0]) != _RELEASE:
        raise ToolError(
            f"PyAV is {installed} here, and prep needs PyAV {_RELEASE}: pip install 'av>={_RELEASE},<{_RELEASE + 1}', "
            "in an environment of its own if training needs the other one; any of 15 to 19 reads the dataset"
        )
