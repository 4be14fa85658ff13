"""What packing a part and reading one take, beside the same with zipfile: python benchmarks/part_speed.py

The part is that of a unit of one made-up video of some GOPs, which is what each clip of a small job has. Milliseconds
of processor time, in turn, the least of several rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import scale_data

from shortgop.manifests.dataset_files.parts import pack, unpack
from shortgop.manifests.dataset_files.root_file import FORMAT_VERSION
from shortgop.manifests.tables import Timeline
from shortgop.manifests.zarr_files import zip_bytes

_CALLS = 20
_ATTRIBUTES = {"format_version": FORMAT_VERSION, "unit": "u"}


@contextlib.contextmanager
def by_zipfile() -> Iterator[None]:
    """Leave every file to zipfile, as those are that are too large."""
    with patch.object(zip_bytes, "packed", lambda _: None), patch.object(zip_bytes, "unpacked", lambda _: None):
        yield


def seconds_of(call: Callable[[], Any]) -> float:
    started = time.process_time()
    for _ in range(_CALLS):
        call()
    return (time.process_time() - started) / _CALLS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    rows = scale_data.made_up(np.arange(1), name="v0")
    part = replace(rows, timeline=Timeline(pts=512 * np.arange(int(rows.first_frames[-1]), dtype="<i8")))
    data = pack(part, _ATTRIBUTES)
    members = len(zip_bytes.unpacked(data) or {})
    work: dict[str, Callable[[], Any]] = {"packing": lambda: pack(part, _ATTRIBUTES), "reading": lambda: unpack(data)}
    for what, call in work.items():
        ours, zipfiles = [], []
        for _ in range(options.rounds):
            ours.append(seconds_of(call))
            with by_zipfile():
                zipfiles.append(seconds_of(call))
        print(
            f"{what} a part of {members} members: {1000 * min(ours):.1f} ms, with zipfile {1000 * min(zipfiles):.1f} ms"
        )


if __name__ == "__main__":
    main()
