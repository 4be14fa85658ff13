"""A corpus's life: made, relabelled, grown, a video dropped, a shard lost and made again, collected. A reader opens the
dataset all the while and never sees anything but one whole snapshot."""

from __future__ import annotations

import contextlib
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shortgop
from datasets import make_dataset
from shortgop.errors import MissingDataError
from shortgop.manifests.collect import collect
from shortgop.manifests.drop import drop
from shortgop.manifests.layout import open_current, shard_path
from shortgop.manifests.verify import verify
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
NAMES = ("a.mp4", "b.mp4", "c.mp4", "d.mp4")

# The labels of each video after each step of this life.
STATES: list[dict[str, Any]] = [
    {"a.mp4": 1, "b.mp4": 1, "c.mp4": 1},
    {"a.mp4": 2, "b.mp4": 2, "c.mp4": 2},
    {"a.mp4": 3, "b.mp4": 2, "c.mp4": 2},
    {"a.mp4": 3, "b.mp4": 2, "c.mp4": 2, "d.mp4": None},
    {"a.mp4": 3, "c.mp4": 2, "d.mp4": None},
]


def seen_in(dataset: shortgop.Dataset) -> dict[str, Any]:
    return {video.id: video.attributes.get("label") for video in dataset}


def look(path: Path, states: list[dict[str, Any]], stop: threading.Event) -> None:
    """Open the dataset again and again, and read a frame of each video."""
    while not stop.is_set():
        dataset = shortgop.open(path)
        states.append(seen_in(dataset))
        for video in dataset:
            # A shard may be missing that gc has removed since the dataset was opened, or that this test removes.
            with contextlib.suppress(MissingDataError):
                assert read_number(video[19]) == 100 * NAMES.index(video.id) + 19


# While a shard is lost, opening the dataset says so.
@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning")
def test_a_corpus_that_lives(tmp_path: Path) -> None:
    dataset, videos = tmp_path / "dataset", tmp_path / "videos"
    videos.mkdir()
    for number, name in enumerate(NAMES[:3]):
        make_video(videos / name, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=100 * number)

    def labelled(label: int) -> Path:
        (videos / "list.csv").write_text("path,label\n" + "".join(f"{name},{label}\n" for name in NAMES[:3]))
        return videos / "list.csv"

    make_dataset([labelled(1)], dataset)
    states: list[dict[str, Any]] = []
    failed: list[BaseException] = []
    stop = threading.Event()

    def reader() -> None:
        try:
            look(dataset, states, stop)
        except BaseException as error:  # noqa: BLE001  # reported by the test
            failed.append(error)

    def wait_for(state: dict[str, Any]) -> None:
        end = time.monotonic() + 60
        while not failed and state not in states[-1:]:
            assert time.monotonic() < end, f"the reader never saw {state}"
            time.sleep(0.01)

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        wait_for(STATES[0])
        assert make_dataset([labelled(2)], dataset).relabelled == 3
        wait_for(STATES[1])
        shortgop.annotate(dataset, {"a.mp4": {"label": 3}})
        wait_for(STATES[2])
        make_video(videos / "d.mp4", pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=300)
        assert make_dataset([videos], dataset).videos_added == 1
        wait_for(STATES[3])
        drop(dataset, ["b.mp4"])
        wait_for(STATES[4])
        collect(dataset)
        shards = open_current(dataset)[1].shards.name.texts()
        shard_path(dataset, shards[0]).unlink()
        report = make_dataset([videos], dataset)
        assert len(report.repaired) > 0
        assert report.dropped == ("b.mp4",)
        collect(dataset)
    finally:
        stop.set()
        thread.join()
    assert failed == []
    assert all(state in STATES for state in states)
    assert seen_in(shortgop.open(dataset)) == STATES[-1]
    root, manifest = open_current(dataset)
    assert list(verify(dataset, manifest, snapshot=root.snapshot)) == []
    assert len(list((dataset / "manifest").iterdir())) == 1
