"""What a ClipLoader says that a user should change: by its counts, and where its dataset is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Subset

import shortgop
from shortgop.errors import WrongTypeError
from shortgop.training.loader.loader_stats import LoaderStats
from training_videos import make_videos

WAITING = LoaderStats(10, 40, wait_seconds=5.0, step_seconds=5.0, busy_seconds=10.0)


@pytest.mark.parametrize(
    ("stats", "said"),
    [
        (LoaderStats(), "no batch was delivered yet"),
        (replace(WAITING, wait_seconds=0.1, decode_seconds=9.0), "waits 2% of the time: the loader is fast enough"),
        (replace(WAITING, bytes_seconds=6.0, decode_seconds=2.0), "75% of reading on waiting for bytes"),
        (replace(WAITING, bytes_seconds=1.0, decode_seconds=3.0), "60% of theirs outside reading and decoding"),
        (replace(WAITING, decode_seconds=9.0, idle_seconds=11.0), "batches come unevenly"),
        (replace(WAITING, decode_seconds=9.0), "if CPUs are idle, or videos prepared with a smaller --size"),
        (replace(WAITING, decode_seconds=9.0, copied_batches=4), "4 of 10 batches were copied"),
    ],
)
def test_the_advice_names_what_training_waits_for(stats: LoaderStats, said: str) -> None:
    assert said in stats.advice


def test_the_advice_is_of_all_passes_together() -> None:
    fast = replace(WAITING, wait_seconds=0.0, step_seconds=995.0, decode_seconds=1.0)
    assert "fast enough" in (WAITING + fast).advice


def test_what_is_no_clip_dataset_is_told_what_takes_its_place(tmp_path: Path) -> None:
    folder = make_videos(tmp_path / "videos")
    clips = shortgop.ClipDataset(folder, shortgop.AllClips(2))
    refused: list[tuple[Any, str]] = [
        (shortgop.open(folder), r"a Dataset; .*: make one of it, such as shortgop.ClipDataset\(dataset"),
        (str(folder), "a str; .*: make one of it"),
        (folder, "a PosixPath; .*: make one of it"),
        (Subset(clips, [0, 1]), "a Subset; .*: give ClipDataset videos= to choose"),
        ([clips[0]], "a list; .*: add to items in `items` of a subclass"),
    ]
    for dataset, said in refused:
        with pytest.raises(WrongTypeError, match=said):
            shortgop.ClipLoader(dataset, [0], batch_size=1)
