"""Reads a dataset where the system lacks what Linux alone has: `lacking_system.py WHAT DATASET FOLDER`.

`calls` takes those away that macOS has not, and lets descriptors be passed on as there; `nothing` takes away none. It
prints what frames and batches show. Workers import this too, so they lack the same.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import select
import signal
import sys
import time
from multiprocessing import reduction
from pathlib import Path
from types import ModuleType

OF_LINUX_ALONE: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
    (
        os,
        ("O_TMPFILE", "MFD_CLOEXEC", "copy_file_range", "eventfd", "memfd_create", "pidfd_open", "posix_fadvise",
         "posix_fallocate", "sched_getaffinity", "sched_setaffinity"),
    ),
    (mmap, ("MADV_HUGEPAGE", "MAP_POPULATE")),
    (select, ("epoll",)),
    (signal, ("pidfd_send_signal",)),
    (time, ("CLOCK_BOOTTIME",)),
)  # fmt: skip
_VARIABLE = "SHORTGOP_TEST_LACKS_CALLS"

# The fork server has no arguments of this program.
if sys.argv[1:2] == ["calls"]:
    os.environ[_VARIABLE] = "1"
if _VARIABLE in os.environ:
    for module, names in OF_LINUX_ALONE:
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    reduction.ACKNOWLEDGE = True  # type: ignore[misc]
    multiprocessing.set_forkserver_preload([Path(__file__).stem])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])


def read(dataset: Path, folder: Path) -> dict[str, object]:
    """What is read in each way, and from what is exported and prepared; `folder` is for these."""
    import av
    import torch
    from torch.utils.data import DataLoader

    import shortgop
    from loader_helpers import BATCH, all_shown, clips, loader_of
    from shortgop.manifests.dataset_files.snapshots import open_current
    from shortgop.manifests.operations.export import export
    from shortgop.storage.locate import storage_at
    from synthetic import read_number

    # Large enough that the memory comes from the pool of batches.
    videos = shortgop.open(dataset, size=(360, 480), threads=2)
    batch = videos.get_clips([(0, range(4)), (1, range(30, 34))])
    storage = storage_at(dataset)
    export(storage, open_current(storage)[1], 1, folder / "exported.mp4")
    with av.open(folder / "exported.mp4") as exported:
        frames = [frame.to_ndarray(format="rgb24") for frame in exported.decode(video=0)]
    shortgop.prepare([folder / "exported.mp4"], folder / "prepared", runner="inline")
    shown = {"loader": all_shown(loader_of(clips(dataset))), "in process": all_shown(loader_of(clips(dataset), 0))}
    for method in ("spawn", "forkserver"):
        data = clips(dataset)
        sampler = shortgop.ElasticSampler(data, BATCH)
        loader = DataLoader(data, BATCH, sampler=sampler, num_workers=1, multiprocessing_context=method)
        shown[method] = all_shown(loader)
    return {
        "frame": read_number(videos[1].get_frame_at(7).data),
        "clips": [[read_number(frame) for frame in clip] for clip in batch.data],
        "columns": videos.columns["num_frames"].tolist(),
        "exported": [read_number(torch.from_numpy(frame)) for frame in frames],
        "prepared": [read_number(frame) for frame in shortgop.open(folder / "prepared")[0][:]],
        **shown,
    }


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[2]), Path(sys.argv[3]))))
