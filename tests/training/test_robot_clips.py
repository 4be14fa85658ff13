"""LeRobotClips: the items of LeRobotDataset, by its rules: deltas are frames, which are clamped to the episode.

The frames of the first camera show the number of their row, those of the second one 10,000 more.
"""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from lerobot_files import CAMERAS, TASKS, write_lerobot, write_lerobot_2
from shortgop.errors import DatasetWarning, UsageError
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

FRONT, WRIST = CAMERAS
FPS = 30
LENGTHS = [7, 1, 6, 9]
# 1 / 30 as a float is less than a thirtieth: in exact arithmetic the time of an episode's end would lie before it.
DELTAS = {
    FRONT: [-2 / FPS, 0, 1 / FPS],
    WRIST: [-0.1, 0],
    "observation.state": [0, 1 / FPS],
    "action": [step / FPS for step in range(-1, 4)],
}
Robots = dict[str, tuple[Path, Path]]


@pytest.fixture(scope="module")
def robots(tmp_path_factory: pytest.TempPathFactory) -> Robots:
    """The same episodes in both versions, and the datasets that were prepared from them."""
    folder = tmp_path_factory.mktemp("robots")
    made = {}
    for name, write in (("v3", write_lerobot), ("v2", write_lerobot_2)):
        robot = write(folder / name, LENGTHS, fps=FPS)
        report = prepare([str(robot)], DiskStorage(folder / f"{name}_out"), Profile(), where=Where("inline"))
        assert report.failures == ()
        made[name] = robot, folder / f"{name}_out"
    return made


def clips(robots: Robots, version: str = "v3", **options: Any) -> shortgop.LeRobotClips:
    robot, dataset = robots[version]
    return shortgop.LeRobotClips(dataset, robot, **options)


def expected(episode: int, frame: int, deltas: dict[str, list[float]]) -> dict[str, Any]:
    """What LeRobot has at a frame of an episode: the rows of each key, as numbers, and which are no frames of it."""
    first, length = sum(LENGTHS[:episode]), LENGTHS[episode]
    item: dict[str, Any] = {"task": TASKS[episode % 2], "index": first + frame, "frame_index": frame}
    item |= {"episode_index": episode, "task_index": episode % 2}
    for key in (FRONT, WRIST, "observation.state", "action"):
        wanted = [frame + round(delta * FPS) for delta in deltas.get(key, [0])]
        item[key] = [first + min(max(each, 0), length - 1) for each in wanted]
        if key in deltas:
            item[f"{key}_is_pad"] = [not 0 <= each < length for each in wanted]
    return item


def shown(item: dict[str, Any]) -> dict[str, Any]:
    """An item in the same form."""
    found: dict[str, Any] = {"task": item["task"]}
    found |= {key: item[key].item() for key in ("index", "frame_index", "episode_index", "task_index")}
    for number, camera in enumerate(CAMERAS):
        pictures = item[camera] if item[camera].dim() == 4 else item[camera][None]
        found[camera] = [read_number(picture) - 10_000 * number for picture in pictures]
    found["observation.state"] = item["observation.state"].reshape(-1).tolist()
    found["action"] = (-item["action"].reshape(-1, 2)[:, 0]).tolist()
    return found | {key: value.tolist() for key, value in item.items() if key.endswith("_is_pad")}


def items_of(batches: Any) -> list[dict[str, Any]]:
    return [
        {key: values[place] for key, values in batch.items()}
        for batch in batches
        for place in range(len(batch["task"]))
    ]


@pytest.mark.parametrize("version", ["v3", "v2"])
@pytest.mark.parametrize("deltas", [{}, DELTAS], ids=["none", "several"])
def test_items_are_those_of_lerobot(deltas: dict[str, list[float]], version: str, robots: Robots) -> None:
    dataset = clips(robots, version, delta_timestamps=deltas)
    assert len(dataset) == sum(LENGTHS)
    places = [(episode, frame) for episode, length in enumerate(LENGTHS) for frame in range(length)]
    assert [shown(item) for item in dataset] == [expected(*place, deltas) for place in places]


def test_what_the_page_shows_runs(robots: Robots) -> None:
    page = (Path(__file__).parents[2] / "docs/trainers.md").read_text()
    block = re.search(r"```python\n([^`]*shortgop.LeRobotClips.*?)```", page, re.DOTALL)
    assert block is not None
    robot, dataset = map(str, robots["v3"])
    text = block[1].replace('"DATASET"', repr(dataset)).replace('"my_robot"', repr(robot))
    text = text.replace("range(40, 50)", "[3]").replace("range(40)", "[0, 2]").replace('_frames": 7', '_frames": 2')
    text = text.replace("(224, 224)", "(64, 96)").replace("(train, 64))", "(train, 4), workers=0)")
    names: dict[str, Any] = {"shortgop": shortgop, "torch": torch}
    exec(text, names)
    assert (len(names["train"]), len(names["val"]), names["mean"].shape) == (9, 7, (2,))
    assert names["batch"][FRONT].shape == (4, 2, 3, 64, 96)
    assert names["batch"]["action"].shape == (4, 16, 2)
    for item in items_of([names["batch"]]):
        episode, frame = int(item["episode_index"]), int(item["frame_index"])
        assert shown(item) == expected(episode, frame, names["deltas"])


def test_what_has_one_time_has_the_shape_that_lerobot_gives_it(robots: Robots) -> None:
    item = clips(robots, delta_timestamps={FRONT: [0], "action": [0.1]})[3]
    assert item[FRONT].shape == item[WRIST].shape == (3, 64, 96)
    assert (item[f"{FRONT}_is_pad"].shape, item["action"].shape) == ((1,), (1, 2))
    assert (item["observation.state"].shape, item["timestamp"].shape) == ((1,), ())
    assert item["timestamp"].item() == pytest.approx(3 / FPS)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("deltas", [{}, DELTAS], ids=["none", "several"])
def test_both_loaders_deliver_them(deltas: dict[str, list[float]], workers: int, robots: Robots) -> None:
    dataset = clips(robots, delta_timestamps=deltas, episodes=[3, 0], drop_last_frames=2)
    places = [(episode, frame) for episode in (0, 3) for frame in range(LENGTHS[episode] - 2)]
    wanted = [expected(*place, deltas) for place in places]
    in_order = shortgop.ElasticSampler(dataset, 4, order=shortgop.Sequential(), drop_last=False)
    with shortgop.ClipLoader(dataset, in_order, workers=workers) as loader:
        assert [shown(item) for item in items_of(loader)] == wanted
    context = "forkserver" if workers else None
    batches = DataLoader(dataset, batch_size=4, num_workers=workers, multiprocessing_context=context)
    assert [shown(item) for item in items_of(batches)] == wanted


def test_frames_at_both_ends_of_an_episode_may_have_no_item(robots: Robots) -> None:
    """An episode that is too short for it has none at all."""
    dataset = clips(robots, delta_timestamps=DELTAS, drop_first_frames=2, drop_last_frames=3)
    places = [(episode, frame) for episode, length in enumerate(LENGTHS) for frame in range(2, length - 3)]
    assert [shown(item) for item in dataset] == [expected(*place, DELTAS) for place in places]
    assert dataset.too_short == (f"{FRONT}/episode_000001",)


def test_episodes_are_split_and_the_rows_are_those_of_the_chosen_ones(robots: Robots) -> None:
    dataset = clips(robots, episodes=[2, 0], cameras=[WRIST])
    assert (dataset.episodes, dataset.cameras) == ((0, 2), (WRIST,))
    assert dataset.rows["index"].tolist() == [*range(7), *range(8, 14)]
    assert FRONT not in dataset[0]
    assert repr(dataset).endswith(f": 13 items of 2 episodes, {WRIST}>")
    assert dataset.rows["action"].mean(0) == pytest.approx([-84 / 13, 0.5])


def test_a_copy_by_pickle_has_the_same_items(robots: Robots) -> None:
    dataset = clips(robots, delta_timestamps=DELTAS)
    assert shown(pickle.loads(pickle.dumps(dataset))[8]) == shown(dataset[8])


def test_a_transform_gets_the_frames_of_one_camera(robots: Robots) -> None:
    shapes = []

    def transform(frames: torch.Tensor) -> torch.Tensor:
        shapes.append(frames.shape)
        return frames[..., :32, :]

    item = clips(robots, delta_timestamps={FRONT: [0, 0.1]}, transform=transform)[0]
    assert shapes == [(2, 3, 64, 96), (1, 3, 64, 96)]
    assert (item[FRONT].shape, item[WRIST].shape) == ((2, 3, 32, 96), (3, 32, 96))


def test_columns_are_read_as_they_are_and_those_that_make_no_array_are_left_out(robots: Robots, tmp_path: Path) -> None:
    count = sum(LENGTHS)
    more = {
        "next.done": pa.array([row % 2 == 0 for row in range(count)]),
        "matrix": pa.array([[[row, 0.0, 1.0], [2.0, 3.0, 4.0]] for row in range(count)]),
        "said": pa.array(["yes"] * count),
        "uneven": pa.array([[0.0] * (row % 3) for row in range(count)]),
        "missing": pa.array([None, *range(1, count)]),
    }
    robot = with_columns(shutil.copytree(robots["v3"][0], tmp_path / "robot"), more)
    dataset = shortgop.LeRobotClips(robots["v3"][1], robot, delta_timestamps={"matrix": [0, 1 / FPS]})
    item = dataset[2]
    assert (item["next.done"].item(), item["next.done"].dtype) == (True, torch.bool)
    assert item["matrix"].tolist() == [[[row, 0, 1], [2, 3, 4]] for row in (2, 3)]
    assert not {"said", "uneven", "missing"} & set(item)


def with_columns(robot: Path, columns: Mapping[str, pa.Array]) -> Path:
    """The robot, whose rows have these columns too."""
    file = robot / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    for name, column in columns.items():
        table = table.append_column(name, column)
    pq.write_table(table, file, row_group_size=4)
    return robot


def test_numbers_of_items_have_the_dtypes_that_lerobot_gives_them(robots: Robots, tmp_path: Path) -> None:
    """A policy in float32 takes no float64, which some datasets have; rows, of which statistics are made, keep it."""
    count = sum(LENGTHS)
    columns = {
        "double": pa.array([[row / 7, 1.0] for row in range(count)], pa.list_(pa.float64(), 2)),
        "half": pa.array(np.arange(count, dtype=np.float16)),
        "byte": pa.array(range(count), pa.uint8()),
        "short": pa.array([[-row] for row in range(count)], pa.list_(pa.int16(), 1)),
        "flag": pa.array([row % 2 == 0 for row in range(count)]),
        "large": pa.array([2**64 - 1] * count, pa.uint64()),
        "unsigned": pa.array(range(count), pa.uint64()),
        "endless": pa.array([1e300] * count),
    }
    robot = with_columns(shutil.copytree(robots["v3"][0], tmp_path / "robot"), columns)
    dataset = shortgop.LeRobotClips(robots["v3"][1], robot, delta_timestamps={"short": [0, 1 / FPS]})
    item = dataset[3]
    assert {name: item[name].dtype for name in columns} == {
        "double": torch.float32, "half": torch.float32, "byte": torch.int64, "short": torch.int64,
        "flag": torch.bool, "large": torch.uint64, "unsigned": torch.int64, "endless": torch.float32,
    }  # fmt: skip
    assert item["double"].tolist() == pytest.approx([3 / 7, 1])
    assert [item[name].tolist() for name in ("half", "byte", "short", "large")] == [3, 3, [[-3], [-4]], 2**64 - 1]
    assert (item["unsigned"].item(), item["endless"].item()) == (3, float("inf"))
    assert dataset.rows["double"].dtype == np.float64


class Matrix(pa.ExtensionType):  # type: ignore[misc]
    """As the package datasets has it, in which LeRobot writes matrices."""

    def __init__(self) -> None:
        super().__init__(pa.list_(pa.list_(pa.float32())), "datasets.features.features.Array2DExtensionType")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Matrix:
        return cls()


def test_a_matrix_is_there_also_where_its_type_is_known(robots: Robots, tmp_path: Path) -> None:
    """It was left out as soon as the package datasets was imported, as lerobot does."""
    matrices = [[[row, 0.0, 1.0], [2.0, 3.0, 4.0]] for row in range(sum(LENGTHS))]
    pa.register_extension_type(Matrix())
    try:
        column = pa.ExtensionArray.from_storage(Matrix(), pa.array(matrices, Matrix().storage_type))
        robot = with_columns(shutil.copytree(robots["v3"][0], tmp_path / "robot"), {"matrix": column})
        dataset = shortgop.LeRobotClips(robots["v3"][1], robot, delta_timestamps={"matrix": [0, 1 / FPS]})
    finally:
        pa.unregister_extension_type(Matrix().extension_name)
    assert dataset[2]["matrix"].tolist() == matrices[2:4]


def test_an_episode_that_lacks_a_camera_is_left_out_and_named(robots: Robots) -> None:
    dataset = shortgop.open(robots["v3"][1])
    without = dataset[np.array(dataset.ids) != f"{WRIST}/episode_000002"]
    with pytest.warns(DatasetWarning, match="lacks a camera of 1 episode, left out here: 2;"):
        assert shortgop.LeRobotClips(without, robots["v3"][0]).episodes == (0, 1, 3)
    with pytest.raises(UsageError, match="the dataset lacks episode 2 of one of"):
        shortgop.LeRobotClips(without, robots["v3"][0], episodes=[2])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delta_timestamps": {FRONT: [0.02]}}, r"0\.02 s for '.*front', which lies between two frames at 30 frames"),
        (
            {"delta_timestamps": {"actions": [0]}},
            "delta_timestamps has 'actions', which is neither a camera nor a column; there are .*action",
        ),
        ({"delta_timestamps": {"action": []}}, "delta_timestamps has no times for 'action'"),
        ({"delta_timestamps": {"action": [float("nan")]}}, "a time of delta_timestamps is nan; it has to be finite"),
        ({"delta_timestamps": [0, 1]}, r"delta_timestamps is \[0, 1\]; it is a dict of lists of seconds"),
        ({"episodes": range(9)}, "the dataset has no episode 4: it has 4 episodes, 0 to 3;"),
        ({"episodes": []}, "there are no episodes"),
        ({"cameras": ["top"]}, "cameras has 'top'; the dataset has observation.images.front, observation.images.wrist"),
        ({"drop_last_frames": -1}, "both are 0 or more"),
    ],
)
def test_what_makes_no_sense_is_named(options: dict[str, Any], said: str, robots: Robots) -> None:
    with pytest.raises(UsageError, match=said):
        clips(robots, **options)


def test_another_robot_is_refused(robots: Robots, tmp_path: Path) -> None:
    dataset = robots["v3"][1]
    with pytest.raises(UsageError, match="info.json cannot be read as a file of a LeRobot dataset: FileNotFoundError"):
        shortgop.LeRobotClips(dataset, tmp_path)
    other = write_lerobot(tmp_path / "robot", [7, 1, 6, 8])
    with pytest.raises(UsageError, match="episode 3 has 8 rows in .*/robot/data and 9 frames .*; give") as caught:
        shortgop.LeRobotClips(dataset, other)
    assert "leave the episode out by episodes=, or take out its videos with `shortgop drop`" in str(caught.value)
    assert len(shortgop.LeRobotClips(dataset, other, episodes=range(3))) == 14


def test_columns_of_a_list_do_not_say_how_long_episodes_are(robots: Robots, tmp_path: Path) -> None:
    """Such as the number of frames of the sources, which it took for that of the dataset."""
    robot, dataset = robots["v3"]
    shutil.copytree(dataset, tmp_path / "out")
    with pytest.warns(DatasetWarning, match="column 'num_frames' of the list takes the place of the dataset's own"):
        shortgop.annotate(tmp_path / "out", {name: {"num_frames": 1000} for name in shortgop.open(dataset).ids})
    read = shortgop.LeRobotClips(tmp_path / "out", robot, metadata=cast(Any, iter(["num_frames"])))
    assert len(read) == sum(LENGTHS)
    assert shown(read[9]) == expected(2, 1, {})
    assert read[9]["num_frames"] == 1000


def test_a_task_that_no_file_names_is_told_before_items_are_read(robots: Robots, tmp_path: Path) -> None:
    """It was a KeyError in the middle of an epoch."""
    robot, dataset = robots["v3"]
    shutil.copytree(robot, tmp_path / "robot")
    tasks = tmp_path / "robot" / "meta" / "tasks.parquet"
    pq.write_table(pq.read_table(tasks).slice(0, 1), tasks)
    with pytest.raises(UsageError, match=r"the rows in .*robot have the task 1, which its files of tasks do not name"):
        shortgop.LeRobotClips(dataset, tmp_path / "robot")
    assert len(shortgop.LeRobotClips(dataset, tmp_path / "robot", episodes=[0, 2])) == 13


def test_an_ordinary_dataset_and_two_robots_are_refused(robots: Robots, tmp_path: Path) -> None:
    robot, _ = robots["v3"]
    both = [str(shutil.copytree(robot, tmp_path / "all" / name)) for name in ("a", "b")]
    out = DiskStorage(tmp_path / "out")
    prepare(both, out, Profile(), where=Where("inline"), id_root=str(tmp_path / "all"))
    dataset = shortgop.open(tmp_path / "out")
    with pytest.raises(UsageError, match=r"has 'a/.*' and 'b/.*', one camera and one episode; choose .* dataset.where"):
        shortgop.LeRobotClips(dataset, both[0])
    of_b = dataset[np.strings.startswith(np.array(dataset.ids), "b/")]
    assert shown(shortgop.LeRobotClips(of_b, both[1])[9]) == expected(2, 1, {})
    shortgop.annotate(tmp_path / "out", remove=["camera"])
    with pytest.raises(UsageError, match="it was not made of a LeRobot dataset"):
        shortgop.LeRobotClips(tmp_path / "out", robot)


@pytest.mark.parametrize("steps", range(1, 40))
def test_a_time_that_a_float_misses_by_little_is_that_of_the_frame(steps: int, robots: Robots) -> None:
    """The frame behind the last one is missing, though 1 / 30 and other such floats lie a little before its time."""
    videos = shortgop.open(robots["v3"][1])

    def clips_by(**offsets: Any) -> list[tuple[list[int], list[bool]]]:
        policy = shortgop.AllClips(shortgop.Offsets(**offsets), whole=False, ends="clamp")
        dataset = shortgop.ClipDataset(videos, policy, videos=[f"{FRONT}/episode_000003"])
        found = dataset.clip_index.clips(range(len(dataset)))
        return [(clip.frames.tolist(), clip.mask.tolist()) for clip in found if clip.mask is not None]

    assert clips_by(seconds=[0, steps / FPS]) == clips_by(frames=[0, steps])


class Renamed(shortgop.LeRobotClips):
    def items(self, draws: Any, rows: Any = None) -> list[Any]:
        items = super().items(draws, rows)
        for item in items:
            item["pixels"] = item.pop(FRONT)
        return items


def test_a_camera_may_have_another_name_in_a_subclass(robots: Robots) -> None:
    dataset = Renamed(robots["v3"][1], robots["v3"][0])
    with shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 8), workers=0) as loader:
        for batch in loader:
            assert [read_number(picture) for picture in batch["pixels"]] == batch["index"].tolist()


def test_several_datasets_are_mixed(robots: Robots) -> None:
    both = [clips(robots, version, delta_timestamps=DELTAS, episodes=[2]) for version in ("v3", "v2")]
    mixed = shortgop.MixedClips(both)
    sampler = shortgop.ElasticSampler(mixed, 12, order=shortgop.Sequential())
    with shortgop.ClipLoader(mixed, sampler, workers=0) as loader:
        (batch,) = loader
    assert [shown(item) for item in items_of([batch])] == [expected(2, frame, DELTAS) for frame in range(6)] * 2


def test_clips_that_skip_frames_say_so(robots: Robots) -> None:
    videos = shortgop.open(robots["v3"][1])
    skipping = shortgop.AllClips(1, whole=False, ends="clamp", skip=(1, 2))
    dataset = shortgop.ClipDataset(videos, skipping, videos=[f"{FRONT}/episode_000000"])
    assert [item["start"] for item in dataset] == [1, 2, 3, 4]
    whole = shortgop.AllClips(1, whole=False, ends="clamp")
    everything = shortgop.ClipDataset(videos, whole, videos=[f"{FRONT}/episode_000000"])
    assert dataset.clip_index.fingerprint != everything.clip_index.fingerprint
    with pytest.raises(UsageError, match="skip says at which frames no clip starts, and goes with whole=False"):
        shortgop.AllClips(4, skip=(0, 1))
    with pytest.raises(UsageError, match=r"skip is 3; it is \(frames at the start, frames at the end\)"):
        shortgop.AllClips(1, whole=False, ends="clamp", skip=3)  # type: ignore[arg-type]
