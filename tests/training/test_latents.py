"""Latents that are computed once, as docs/trainers.md shows it: each row is that of its clip, in training too."""

from __future__ import annotations

import collections
import itertools
import re
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from documents import ROOT, section
from shortgop.errors import DatasetWarning
from synthetic import constant_rate_pts, make_video, read_number

COUNTS = (70, 51, 33)  # frames of the videos: 4, 3 and 1 clips of 17


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    rows = ["path,caption"]
    for number, count in enumerate(COUNTS):
        name = tmp_path / f"{number}.mp4"
        pts = constant_rate_pts(Fraction(10), count)
        make_video(name, pts=pts, timebase=Fraction(1, 10), first_number=1000 * number)
        rows.append(f"{name},number {number}")
    (tmp_path / "list.csv").write_text("\n".join(rows))
    shortgop.prepare(tmp_path / "list.csv", tmp_path / "dataset", runner="inline")
    return tmp_path / "dataset"


def test_training_gets_the_latent_of_its_clip(dataset: Path, tmp_path: Path) -> None:
    """The latent is here the clip's first frame, in which its number is burnt."""
    page = section(ROOT / "docs" / "trainers.md", "Latents that are computed once")
    encoding, training = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"shortgop": shortgop, "np": np, "torch": torch, "DataLoader": DataLoader, "world_size": 1}
    names |= {"encode": lambda frames: frames[:, 0], "shape_of_a_latent": (3, 64, 96)}

    def run(text: str) -> None:
        text = text.replace('"DATASET"', repr(str(dataset))).replace('"latents.npy"', repr(str(tmp_path / "latents")))
        text = text.replace('(256, 448), crop="center"', "(64, 96)").replace("256", "4").replace("clips, every", "")
        exec(text.replace("ClipLoader()", "ClipLoader(clips, every, workers=0)").replace("=8)", "=0)"), names)

    def shown(latents: torch.Tensor) -> list[int]:
        return [read_number(((frame.float() + 1) * 127.5).round().to(torch.uint8)) for frame in latents]

    run(encoding)
    firsts = [1000 * video + 17 * clip for video, count in enumerate(COUNTS) for clip in range(count // 17)]
    assert shown(torch.tensor(np.array(names["latents"]))) == firsts

    run(training)
    orders = []
    for epoch in range(2):
        names["sampler"].set_epoch(epoch)
        batches = list(names["loader"])
        orders.append([number for batch in batches for number in shown(batch["latent"])])
        captions = [caption for batch in batches for caption in batch["caption"]]
        assert captions == [f"number {number // 1000}" for number in orders[-1]]
        assert sorted(orders[-1]) == firsts
    assert orders[0] != orders[1]

    # With the table, rows stay those of their clips where a video is added before all others.
    names["clips"].clip_table().to_parquet(tmp_path / "clips.parquet")
    table = shortgop.ClipTable.from_parquet(tmp_path / "clips.parquet")
    make_video(tmp_path / "00.mp4", pts=constant_rate_pts(Fraction(10), 20), timebase=Fraction(1, 10))
    shortgop.prepare(tmp_path / "00.mp4", dataset, runner="inline")
    videos = shortgop.open(dataset)
    assert videos.ids[0] == "00.mp4"
    loader = DataLoader(names["Latents"](shortgop.ClipDataset(videos, table), tmp_path / "latents"), 4)
    assert [number for batch in loader for number in shown(batch["latent"])] == firsts


def test_a_run_that_computes_latents_goes_on_with_any_number_of_ranks(dataset: Path, tmp_path: Path) -> None:
    """Two ranks are stopped after a batch, and one process does the rest: each row is written once."""
    clips = shortgop.ClipDataset(dataset, shortgop.AllClips(17, step=17, ends="drop"))

    def computed(rank: int, world_size: int, state: Any, stop: int | None) -> Any:
        every = shortgop.ElasticSampler(
            clips, 4, order=shortgop.Sequential(), drop_last=False, rank=rank, world_size=world_size
        )
        if state is not None:
            every.load_state_dict(state)
        rows = np.lib.format.open_memmap(tmp_path / "latents.npy", "r+")
        for number, batch in enumerate(shortgop.ClipLoader(clips, every, workers=0)):
            rows[batch["draw"].numpy()] += [read_number(clip[0]) + 1 for clip in batch["frames"]]
            state = batch.state
            if number + 1 == stop:
                break
        rows.flush()
        return state

    np.save(tmp_path / "latents.npy", np.zeros(len(clips), np.int64))
    states = [computed(rank, 2, None, 1) for rank in range(2)]
    assert {state["position"] for state in states} == {4}
    computed(0, 1, states[1], None)
    firsts = [1000 * video + 17 * clip for video, count in enumerate(COUNTS) for clip in range(count // 17)]
    assert (np.load(tmp_path / "latents.npy") - 1).tolist() == firsts


def test_a_draw_of_buckets_is_a_clip_of_all_of_them(dataset: Path) -> None:
    buckets = [
        shortgop.ClipDataset(dataset, shortgop.AllClips(*each, ends="drop")) for each in ((17, 1, 17), (9, 1, 5))
    ]
    mixed = shortgop.MixedClips(buckets)
    tables = [bucket.clip_table() for bucket in buckets]
    rows = [
        (k, *row) for k, table in enumerate(tables) for row in zip(table.videos, table.starts.tolist(), strict=True)
    ]
    sampler = shortgop.BucketSampler(mixed, [2, 4])
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for draws in sampler:
            items = mixed.__getitems__(draws)
            found = [(i["dataset"], buckets[i["dataset"]].source.ids[i["video"]], int(i["start"])) for i in items]
            assert [rows[draw % len(mixed)] for draw in draws] == found


def test_a_run_that_writes_a_file_for_each_video_goes_on_with_those_that_are_missing(
    dataset: Path, tmp_path: Path
) -> None:
    page = section(ROOT / "docs" / "trainers.md", "Latents that are computed once")
    shown = [re.search(pattern, page) for pattern in (r"`(zlib\.crc32\(.*?)`", r"`(collections\.Counter\(.*?)`")]
    videos = shortgop.open(dataset)
    written: dict[str, list[int]] = {}

    def run(rank: int, most: int) -> None:
        of_rank, count = (each[1] for each in shown if each is not None)
        names: dict[str, Any] = {"zlib": zlib, "collections": collections, "rank": rank, "world_size": 2}
        missing = [name for name in videos.ids if name not in written and eval(of_rank, names | {"name": name})]
        if not missing:
            return
        clips = shortgop.ClipDataset(videos, shortgop.AllClips(16, step=4), videos=missing, metadata=["id"])
        sampler = shortgop.ElasticSampler(clips, 5, order=shortgop.Sequential(), drop_last=False, rank=0, world_size=1)
        features: dict[str, list[int]] = collections.defaultdict(list)
        for batch in itertools.islice(shortgop.ClipLoader(clips, sampler, workers=0), most):
            for name, frames in zip(batch["id"], batch["frames"], strict=True):
                features[name].append(read_number(frames[-1]))
                if len(features[name]) == eval(count, names | {"clips": clips, "name": name}):
                    written[name] = features.pop(name)

    for most in (2, 4, 100):
        run(0, most)
        run(1, most)
    expected = [list(range(1000 * video + 15, 1000 * video + count, 4)) for video, count in enumerate(COUNTS)]
    assert [written[name] for name in videos.ids] == expected
    with pytest.warns(DatasetWarning, match="the dataset has no clips"):
        assert not len(shortgop.ClipDataset(videos, shortgop.AllClips(1000, ends="drop")))


def test_later_runs_have_the_videos_that_earlier_ones_had_not(dataset: Path, tmp_path: Path) -> None:
    page = section(ROOT / "docs" / "trainers.md", "Latents that are computed once")
    shown = [re.search(pattern, page) for pattern in (r"`done = (\{.*?\})`", r"`(np\.searchsorted\(.*?)`")]
    done_already, part_of = (each[1] for each in shown if each is not None)
    names: dict[str, Any] = {"shortgop": shortgop, "np": np, "folder": tmp_path / "latents"}
    names["folder"].mkdir()
    policy, ids = shortgop.AllClips(17, step=17, ends="drop"), shortgop.open(dataset).ids
    for number, known in enumerate((ids[1:2], ids[:2], ids)):
        new = [name for name in known if name not in eval(done_already, names)]
        assert len(new) == 1
        clips = shortgop.ClipDataset(dataset, policy, videos=new)
        np.save(names["folder"] / f"{number:03}.npy", [read_number(item["frames"][0]) for item in clips])
        clips.clip_table().to_parquet(names["folder"] / f"{number:03}.parquet")
    names["parts"] = [np.load(file) for file in sorted(names["folder"].glob("*.npy"))]
    table = shortgop.ClipTable.from_parquet(names["folder"])
    assert [eval(part_of, names | {"r": row}) for row in range(8)] == [0, 0, 0, 1, 1, 1, 1, 2]
    for item, latent in zip(shortgop.ClipDataset(dataset, table), np.concatenate(names["parts"]), strict=True):
        assert read_number(item["frames"][0]) == latent
