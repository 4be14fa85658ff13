"""Columns over many videos, and the choice of videos by them: python benchmarks/columns.py [--videos N]

Each figure is the least of a few runs, since other processes only add to it. Each run is a new process that opens the
dataset first, so that no run finds what another has read; the files are in the page cache.
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
from shortgop.manifests.label_columns import derived_columns
from shortgop.manifests.layout import open_column_kinds, read_root, snapshot_path
from shortgop.manifests.ragged import Ragged, from_texts
from shortgop.readers.dataset import reader_of

RUNS = 3


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


def child(path: Path) -> None:
    """In a new process: milliseconds of each step, in this order."""
    took: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        took[name] = 1000 * (time.perf_counter() - started)
        return result

    dataset = timed("shortgop.open", lambda: shortgop.open(path))
    timed("the names of all columns", lambda: list(dataset.columns))
    timed("all of the above, and columns['label']", lambda: dataset.columns["label"])
    took["all of the above, and columns['label']"] = sum(took.values())
    for name in ("num_frames", "fps", "score", "checked", "split", "name", "people", "id", "tags"):
        timed(f"columns[{name!r}], {dataset.columns[name].dtype}", partial(fresh, dataset, name))
    timed("columns['label'] again", lambda: dataset.columns["label"])
    timed("where(label=3, split='train')", lambda: fresh_where(dataset, label=3, split="train"))
    timed(
        "where(a function of num_frames and label)",
        lambda: dataset.where(lambda each: (each["num_frames"] > 80) & (each["label"] != 2)),
    )
    mask = np.arange(len(dataset)) % 2 == 0
    half = timed("dataset[mask], half of the videos", lambda: dataset[mask])
    timed("columns['label'] of that half", lambda: half.columns["label"])
    timed("a ClipDataset of that half", lambda: shortgop.ClipDataset(half, shortgop.RandomClips(8)))
    timed("to_table", dataset.to_table)
    timed("to_pandas", dataset.to_pandas)
    texts = reader_of(dataset).manifest.videos.attributes
    timed("derived from the JSON texts, as at publishing", lambda: derived_columns(texts))
    sys.stdout.write(json.dumps(took))


def fresh(dataset: shortgop.Dataset, name: str) -> Any:
    """A column, read anew."""
    return dataset.where().columns[name]


def fresh_where(dataset: shortgop.Dataset, **equals: Any) -> shortgop.Dataset:
    """What `where` takes with the columns that it has to read."""
    return dataset.where().where(**equals)


def main(count: int) -> None:
    path = make_repeated(count, attributes)
    runs = []
    for _ in range(RUNS):
        done = subprocess.run(
            [sys.executable, __file__, "--child", str(path)], check=True, capture_output=True, text=True
        )
        runs.append(json.loads(done.stdout))
    print(f"{count:,} videos, least of {RUNS} runs")
    for name in runs[0]:
        print(f"{min(run[name] for run in runs):9.1f} ms  {name}")
    snapshot = str(read_root(path).snapshot)
    with zipfile.ZipFile(snapshot_path(path, snapshot)) as archive:
        columns = sum(info.file_size for info in archive.infolist() if info.filename.startswith("columns/"))
        whole = sum(info.file_size for info in archive.infolist())
    kinds = open_column_kinds(path, snapshot)
    print(f"{len(kinds or ())} label columns take {columns / 1e6:.1f} of the snapshot's {whole / 1e6:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--videos", type=int, default=1_000_000)
    parser.add_argument("--child", type=Path, metavar="DATASET", help="measure one process")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
    else:
        main(arguments.videos)
