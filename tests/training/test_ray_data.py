"""Clips in Ray Data, on a real local Ray: every clip once, in bounded blocks, whatever happens to workers."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray
import torch

import shortgop
import synthetic
import training_videos
from shortgop.errors import UsageError
from shortgop.training.pixels.opened import OpenedDataset
from synthetic import read_number
from training_videos import VIDEOS, make_videos

FRAME_BYTES = 3 * 64 * 96
# Ray warns of options that it sets itself.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")]
POLICY = shortgop.AllClips(3, stride=2, step=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="module", autouse=True)
def cluster(bare_local_ray: None) -> Iterator[None]:
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, logging_level=logging.ERROR
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    # Transforms of these tests run where the tests' modules cannot be imported.
    for module in (sys.modules[__name__], training_videos, synthetic):
        ray.cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    yield
    ray.shutdown()


def blocks(dataset: Any) -> list[Any]:
    return [ray.get(reference) for reference in dataset.to_arrow_refs()]


def pickled(value: object) -> bytes:
    made: bytes = ray.cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return made


def check_rows(rows: list[dict[str, Any]], folder: Path, policy: Any = POLICY, epoch: int = 0) -> None:
    """The rows are all clips of the epoch, in order, by the numbers in the pictures."""
    index = shortgop.ClipDataset(folder, policy).clip_index
    count = len(index)
    assert [row["draw"] for row in rows] == list(range(epoch * count, (epoch + 1) * count))
    for row in rows:
        (clip,) = index.clips([row["draw"]])
        training_videos.check_item({**row, "frames": torch.from_numpy(row["frames"].copy())}, clip)


def test_every_clip_comes_once_as_the_dataset_reads_it(folder: Path) -> None:
    rows = shortgop.ray_dataset(folder, POLICY, metadata=["label", "weight", "kind", "id"]).take_all()
    check_rows(rows, folder)
    for row, item in zip(
        rows, shortgop.ClipDataset(folder, POLICY, metadata=["label", "weight", "kind", "id"]), strict=True
    ):
        assert set(row) == set(item)
        for name, value in row.items():
            assert np.array_equal(value, item[name]), name
        assert row["frames"].dtype == np.uint8
        assert {"id": row["id"], **list(VIDEOS.values())[row["video"]][2]}.items() <= row.items()


@pytest.mark.parametrize("num_tasks", [1, 3])
def test_blocks_are_bounded_and_a_task_gives_several(folder: Path, num_tasks: int) -> None:
    block_bytes = 5 * (3 * FRAME_BYTES + 100)
    dataset = shortgop.ray_dataset(folder, POLICY, block_bytes=block_bytes, override_num_blocks=num_tasks)
    tables = blocks(dataset)
    # 21 clips: one range of them, or three.
    assert [table.num_rows for table in tables] == ([5, 5, 5, 5, 1] if num_tasks == 1 else [5, 2] * 3)
    for table in tables:
        assert table.nbytes <= block_bytes
        assert table.schema == tables[0].schema
    assert dataset.schema().names == ["frames", "pts_seconds", "video", "start", "frame_numbers", "draw"]


def test_a_clip_larger_than_a_block_has_a_block_of_its_own(folder: Path) -> None:
    options: dict[str, Any] = {"concurrency": 1, "ray_remote_args": {"num_cpus": 0.5, "memory": 1 << 20}}
    dataset = shortgop.ray_dataset(folder, POLICY, block_bytes=1, override_num_blocks=2, **options)
    assert [table.num_rows for table in blocks(dataset)] == [1] * 21


def test_clips_of_a_block_are_decoded_together(folder: Path) -> None:
    """The GOPs that they share are decoded once: a block is one plan, and lies in one piece of memory."""
    from shortgop.ray_data.clip_columns import columns_of
    from shortgop.ray_data.clip_reading import read_items
    from shortgop.ray_data.clip_tables import table_of

    dataset = shortgop.ClipDataset(folder, shortgop.AllClips(4))
    items = read_items(dataset, 0, range(20))
    assert dataset.source.stats().gops_decoded == 3
    table = table_of(items, columns_of(items[0], []))
    (chunk,) = table["frames"].chunks
    assert chunk.storage.buffers()[-1].address == items[0]["frames"].data_ptr()


def test_a_limit_reads_no_more_clips_than_it_wants(folder: Path) -> None:
    rows = shortgop.ray_dataset(folder, POLICY, override_num_blocks=1).limit(4).take_all()
    assert [row["draw"] for row in rows] == [0, 1, 2, 3]


def test_random_clips_are_those_of_the_epoch(folder: Path) -> None:
    policy = shortgop.RandomClips(2, clips_per_video=4)
    check_rows(shortgop.ray_dataset(folder, policy, epoch=3).take_all(), folder, policy, epoch=3)


def test_clips_of_some_videos(folder: Path) -> None:
    dogs = shortgop.open(folder).where(kind="dog")
    rows = shortgop.ray_dataset(dogs, shortgop.AllClips(2, step=7), metadata=["id"]).take_all()
    assert [(row["id"], row["video"], read_number(torch.tensor(row["frames"][0]))) for row in rows] == [
        *(("b.mp4", 0, 1000 + start) for start in (0, 7, 14, 21)),
        *(("c.mp4", 1, 2000 + start) for start in (0, 7)),
    ]


def test_padded_clips_have_masks(folder: Path) -> None:
    rows = shortgop.ray_dataset(folder, shortgop.CenterClips(6, stride=3, ends="black")).take_all()
    assert [row["mask"].tolist() for row in rows] == [[True] * 6, [True] * 6, [True] * 3 + [False] * 3]
    assert not rows[2]["frames"][3:].any()


def test_a_table_comes_in_the_order_of_videos(folder: Path) -> None:
    table = shortgop.ClipsAt(["c.mp4", "a.mp4", "c.mp4", "a.mp4"], frames=[3, 30, 1, 2])
    rows = shortgop.ray_dataset(folder, table).take_all()
    assert [(row["draw"], row["video"], row["start"]) for row in rows] == [(1, 0, 30), (3, 0, 2), (0, 2, 3), (2, 2, 1)]
    assert [read_number(row["frames"][0]) for row in rows] == [30, 2, 2003, 2001]


def test_several_outputs_are_columns(folder: Path) -> None:
    outputs = {
        "small": shortgop.Output(size=(32, 48), crop="random", flip=0.5, dtype=torch.float16),
        "middle": shortgop.Output(size=(16, 16), frames=[1], color="grey", shared="small"),
    }
    rows = shortgop.ray_dataset(folder, POLICY, outputs=outputs).take_all()
    items = list(shortgop.ClipDataset(folder, POLICY, outputs=outputs))
    assert rows[0]["small"].shape == (3, 3, 32, 48)
    assert rows[0]["small"].dtype == np.float16
    assert {row["flip"] for row in rows} == {True, False}
    for row, item in zip(rows, items, strict=True):
        assert set(row) == set(item)
        for name, value in row.items():
            assert np.array_equal(value, item[name]), name


def test_what_a_transform_returns_becomes_columns(folder: Path) -> None:
    def described(read: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {"mean": read["x"].float().mean(dim=(0, 2, 3)), "frames_read": len(read["x"]), "shade": "dark"}

    outputs = {"x": shortgop.Output()}
    rows = shortgop.ray_dataset(folder, POLICY, outputs=outputs, transform=described).take_all()
    assert len(rows) == 21
    assert all((row["mean"].shape, row["frames_read"], row["shade"]) == ((3,), 3, "dark") for row in rows)


def test_several_datasets_are_joined_as_the_error_says(folder: Path) -> None:
    one, other = shortgop.ClipDataset(folder, POLICY), shortgop.ClipDataset(folder, shortgop.CenterClips(3))
    mixed: Any = shortgop.MixedClips([one, other])
    with pytest.raises(UsageError, match=r"not MixedClips; .*ray_dataset\(one\)\.union\("):
        shortgop.ray_dataset(mixed)
    rows = shortgop.ray_dataset(one).union(shortgop.ray_dataset(other)).take_all()
    assert len(rows) == len(one) + len(other)
    assert {row["frames"].shape for row in rows} == {one[0]["frames"].shape}


def test_what_no_column_can_hold_is_refused_at_once(folder: Path, three_videos: Path) -> None:
    with pytest.raises(UsageError, match=r"open the dataset with size=\(height, width\)"):
        shortgop.ray_dataset(three_videos, shortgop.CenterClips(2))
    with pytest.raises(UsageError, match=r"torch\.bfloat16, which numpy and Arrow do not have"):
        shortgop.ray_dataset(folder, POLICY, dtype=torch.bfloat16)
    with pytest.raises(UsageError, match="has no column 'lable'"):
        shortgop.ray_dataset(folder, POLICY, metadata=["lable"])
    with pytest.raises(UsageError, match="'frames' is a list"):
        shortgop.ray_dataset(folder, POLICY, transform=lambda frames: [frames, None])
    with pytest.raises(UsageError, match="the dataset has no clips"):
        shortgop.ray_dataset(shortgop.open(folder).where([False] * len(shortgop.open(folder))), POLICY)
    options: list[dict[str, Any]] = [{"override_num_blocks": 0}, {"block_bytes": 0}, {"epoch": -1}]
    for option in options:
        with pytest.raises(UsageError, match=next(iter(option))):
            shortgop.ray_dataset(folder, POLICY, **option)


def test_a_transform_that_changes_its_mind_is_an_error_that_names_the_clip(folder: Path) -> None:
    def longer(frames: torch.Tensor) -> torch.Tensor:
        return frames[:2] if read_number(frames[0]) == 3 else frames

    dataset = shortgop.ray_dataset(folder, POLICY, transform=longer)
    with pytest.raises(UsageError, match=r"'frames' of the clip of draw 1, from video 0, has shape"):
        dataset.take_all()


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder, tmp_path / "copy")


def test_an_unreadable_video_is_named_to_the_driver(copy: Path) -> None:
    manifest = OpenedDataset(shortgop.open(copy)).manifest
    shard = copy / "shards" / manifest.shards.name.text(0)
    dataset = shortgop.ray_dataset(copy, POLICY)
    skipping = shortgop.ray_dataset(copy, POLICY, on_error="skip")
    with shard.open("r+b") as file:
        file.seek(int(manifest.gops.offset[1]) + int(manifest.gops.length[1]) // 2)
        file.write(b"damaged")
    with pytest.raises(shortgop.CorruptDataError, match=r"on the cluster's node .*video 'a\.mp4'"):
        dataset.take_all()
    rows = skipping.take_all()
    assert len(rows) == 21
    assert 2 not in {row["draw"] for row in rows}


def test_a_node_that_does_not_see_the_dataset_is_named(copy: Path) -> None:
    dataset = shortgop.ray_dataset(copy, POLICY)
    copy.rename(copy.with_name("elsewhere"))
    with pytest.raises(shortgop.DatasetError, match=r"on the cluster's node .*/copy.*all nodes of the cluster have"):
        dataset.take_all()


def test_the_blocks_of_a_killed_worker_come_again(folder: Path, tmp_path: Path) -> None:
    marker, driver = tmp_path / "killed", os.getpid()

    def deadly(frames: torch.Tensor) -> torch.Tensor:
        # In the middle of the last block of a task.
        if read_number(frames[0]) == 1012 and os.getpid() != driver and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return frames

    row_bytes = 3 * FRAME_BYTES + 100
    dataset = shortgop.ray_dataset(folder, POLICY, transform=deadly, override_num_blocks=1, block_bytes=4 * row_bytes)
    check_rows(dataset.take_all(), folder)
    assert marker.exists()


def test_tasks_are_small_whatever_the_dataset_holds(folder: Path) -> None:
    from shortgop.ray_data.clip_columns import columns_of
    from shortgop.ray_data.clip_datasource import ClipDatasource

    table = shortgop.ClipTable(["b.mp4"] * 100_000, np.arange(100_000) % 25, np.arange(100_000)[:, None] % 25)
    for policy in (POLICY, table):
        clips = shortgop.ClipDataset(folder, policy)
        source = ClipDatasource(clips, columns_of(clips[0], []), epoch=0, row_bytes=1000, clips_per_block=10)
        tasks = source.get_read_tasks(20)
        assert sum(task.metadata.num_rows or 0 for task in tasks) == len(clips)
        assert source.estimate_inmemory_data_size() == 1000 * len(clips)
        assert max(len(pickled(task)) for task in tasks) < 20_000
    rows = shortgop.ray_dataset(folder, table, override_num_blocks=500).limit(3).take_all()
    assert [row["start"] for row in rows] == [0, 1, 2]


def test_what_the_page_shows_runs(folder: Path, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "trainers.md"
    block = re.search(r"## Ray Data\n.*?```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert block is not None
    # A cluster of two CPUs, and videos of which one has nine frames.
    code = block[1].replace('"DATASET"', repr(str(folder))).replace("size=4", "size=1").replace("num_gpus", "num_cpus")
    code = code.replace("UniformClips(16,", "UniformClips(8,").replace('"/shared/', f'"{tmp_path}/')

    def load_model() -> Any:
        return lambda frames: frames.float().mean(dim=(1, 2))

    exec(code, {"__name__": "__main__", "shortgop": shortgop, "torch": torch, "ray": ray, "load_model": load_model})
    table = pq.read_table(tmp_path / "embeddings")
    assert sorted(table["draw"].to_pylist()) == list(range(12))
    assert set(table["id"].to_pylist()) == set(VIDEOS)
    assert np.array(table["embedding"].to_pylist()).shape == (12, 224, 224)


def test_a_worker_without_shortgop_says_so(folder: Path, tmp_path: Path) -> None:
    from shortgop.ray_data.clip_columns import Column
    from shortgop.ray_data.clip_reading import read_function

    dataset = pickled(shortgop.ClipDataset(folder, POLICY))
    task = tmp_path / "task"
    task.write_bytes(pickled(read_function(dataset, [Column("video", "int64")], 0, range(3), 2)))
    said = failing("shortgop", f"list(pickle.loads(open({str(task)!r}, 'rb').read())())")
    assert "cannot run shortgop" in said
    assert "install the same version of shortgop[ray] on every node" in said


def test_an_interrupted_import_leaves_the_process_usable(folder: Path, tmp_path: Path) -> None:
    """As Ray interrupts tasks that it needs no more, in a process that it goes on using."""
    from shortgop.ray_data.clip_columns import columns_of
    from shortgop.ray_data.clip_reading import read_function

    clips = shortgop.ClipDataset(folder, POLICY)
    task = tmp_path / "task"
    task.write_bytes(pickled(read_function(pickled(clips), columns_of(clips[0], []), 0, range(3), 2)))
    program = tmp_path / "program.py"
    program.write_text(
        "import _thread, pickle, sys, threading, time\n"
        f"read = pickle.loads(open({str(task)!r}, 'rb').read())\n"
        "def interrupt():\n"
        "    while 'torch.nn' not in sys.modules: time.sleep(0.001)\n"
        "    print('imports torch', flush=True)\n"
        "    _thread.interrupt_main()\n"
        "threading.Thread(target=interrupt).start()\n"
        "try: next(read())\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
        "print([table.num_rows for table in read()])\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout.splitlines() == ["imports torch", "interrupted", "[2, 1]"], done.stderr


def test_a_missing_package_is_named(folder: Path) -> None:
    said = failing("pandas", f"import shortgop; shortgop.ray_dataset({str(folder)!r}, shortgop.AllClips(1))")
    assert "ToolError: ray_dataset needs Ray Data" in said
    assert "pip install 'shortgop[ray]'" in said


def failing(missing: str, code: str) -> str:
    """What a Python says that runs this code, and cannot import one package."""
    program = f"import pickle, sys; sys.modules[{missing!r}] = None; {code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode
    return done.stderr
