"""Columns over many videos, and the choice of videos by them: python benchmarks/column_speed.py [--videos N]

Each figure is the least of a few runs, since other processes only add to it: the time on the clock, and that of the
processor. Each run is a new process, so that no run finds what another has read; the files are in the page cache. What
takes seconds is measured in the first run alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cold_open import make_repeated

import shortgop
from shortgop.manifests.dataset_files.layout import snapshot_key
from shortgop.manifests.dataset_files.root_file import read_root
from shortgop.manifests.dataset_files.snapshot_columns import open_column_kinds
from shortgop.manifests.parsed_columns import derived_columns
from shortgop.manifests.ragged import Ragged, from_texts
from shortgop.readers.dataset import reader_of
from shortgop.storage.disk import DiskStorage

RUNS = 5


def attributes(count: int) -> Ragged:
    """Labels of every kind: integers, texts, floats, booleans, a list in JSON, and an integer that half lack."""
    rng = np.random.default_rng(0)
    labels, splits = rng.integers(400, size=count).tolist(), rng.random(count).tolist()
    return from_texts(
        json.dumps(
            {
                "label": label,
                "name": f"class {label}",
                "split": "val" if split < 0.1 else "train",
                "score": split,
                "checked": split < 0.5,
                "tags": ["a", "b"] if label % 2 else ["c"],
                **({"people": label % 7} if label % 2 else {}),
            }
        )
        for label, split in zip(labels, splits, strict=True)
    )


def child(path: Path, *, slow: bool) -> None:
    """In a new process: milliseconds of each step, in this order, by the clock and of the processor."""
    took: dict[str, tuple[float, float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        started, before = time.perf_counter(), time.process_time()
        result = work()
        took[name] = 1000 * (time.perf_counter() - started), 1000 * (time.process_time() - before)
        return result

    dataset = timed("shortgop.open", lambda: shortgop.open(path))
    timed("the names of all columns", lambda: list(dataset.columns))
    timed("columns['label'], int64", lambda: dataset.columns["label"])
    for name in ("num_frames", "fps", "score", "checked", "split", "name", "people", "id"):
        timed(f"columns[{name!r}], {dataset.columns[name].dtype}", partial(fresh, dataset, name))
    timed("columns['label'] again", lambda: dataset.columns["label"])
    another = shortgop.open(path)
    timed("where(label=3, split='train'), which reads both", lambda: another.where(label=3, split="train"))
    timed("where(label=4, split='train'), which has both", lambda: another.where(label=4, split="train"))
    timed(
        "where(a function of num_frames and label)",
        lambda: dataset.where(lambda each: (each["num_frames"] > 80) & (each["label"] != 2)),
    )
    mask = np.arange(len(dataset)) % 2 == 0
    half = timed("dataset[mask], half of the videos", lambda: dataset[mask])
    timed("columns['label'] of that half", lambda: half.columns["label"])
    timed("columns['split'] of that half", lambda: half.columns["split"])
    timed("a ClipDataset of that half", lambda: shortgop.ClipDataset(half, shortgop.RandomClips(8)))
    if slow:
        timed("columns['tags'], object", lambda: dataset.columns["tags"])
        timed("to_table", dataset.to_table)
        timed("to_pandas", dataset.to_pandas)
        texts = reader_of(dataset).manifest.videos.attributes
        timed("derived from the JSON texts, as when a snapshot is written", lambda: derived_columns(texts))
    sys.stdout.write(json.dumps(took))


def fresh(dataset: shortgop.Dataset, name: str) -> Any:
    """Read a column anew: `labels` and `built_in` are new objects each time, without the arrays that others keep."""
    columns = dataset.columns
    return (columns.labels if name in columns.labels else columns.built_in)[name]


def main(count: int) -> None:
    path = make_repeated(count, attributes)
    runs = []
    for number in range(RUNS):
        argv = [sys.executable, __file__, "--child", str(path), *([] if number else ["--slow"])]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
    print(f"{count:,} videos, least of {RUNS} runs: ms by the clock, ms of the processor")
    for name in runs[0]:
        clock, processor = (min(run[name][place] for run in runs if name in run) for place in (0, 1))
        print(f"{clock:9.1f} {processor:9.1f}  {name}")
    snapshot = str(read_root(DiskStorage(path)).snapshot)
    with zipfile.ZipFile(Path(path) / snapshot_key(snapshot)) as archive:
        columns = sum(info.file_size for info in archive.infolist() if info.filename.startswith("columns/"))
        whole = sum(info.file_size for info in archive.infolist())
    kinds = open_column_kinds(DiskStorage(path), snapshot)
    print(f"{len(kinds or ())} label columns take {columns / 1e6:.1f} of the snapshot's {whole / 1e6:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--videos", type=int, default=1_000_000)
    parser.add_argument("--child", type=Path, metavar="DATASET", help="measure one process")
    parser.add_argument("--slow", action="store_true", help="in it, what takes seconds as well")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, slow=arguments.slow)
    else:
        main(arguments.videos)
