"""LeRobot v3 datasets, in the layout that lerobot writes: episodes of each camera one after the other in few files."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import shortgop
from file_permissions import modes_count
from lerobot_files import CAMERAS, TASKS, feature, write_lerobot
from lerobot_items import LeRobotItems
from shortgop.errors import UsageError
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from synthetic import make_video, read_number


def prepared(*sources: Path, out: Path) -> Report:
    return prepare([str(source) for source in sources], DiskStorage(out), Profile(), where=Where("inline"))


@pytest.mark.first_case_short
@pytest.mark.parametrize("fps", [10, 30])
def test_each_episode_of_each_camera_is_a_video(fps: int, tmp_path: Path) -> None:
    lengths = [37, 51, 1, 40, 23]
    root = write_lerobot(tmp_path / "robot", lengths, fps=fps)
    report = prepared(root, out=tmp_path / "out")
    assert (report.videos_added, report.failures) == (10, ())
    dataset = shortgop.open(tmp_path / "out")
    assert [video.id for video in dataset] == [
        f"{camera}/episode_{index:06d}" for camera in CAMERAS for index in range(5)
    ]
    for number, camera in enumerate(CAMERAS):
        for index, length in enumerate(lengths):
            video = dataset[f"{camera}/episode_{index:06d}"]
            first = 10_000 * number + sum(lengths[:index])
            assert [read_number(frame) for frame in video] == list(range(first, first + length))
            assert video.metadata.fps == fps
            assert video.attributes == {
                "episode_index": index, "task": TASKS[index % 2], "tasks": [TASKS[index % 2]], "length": length,
                "camera": camera, "dataset_from_index": sum(lengths[:index]),
                "dataset_to_index": sum(lengths[: index + 1]),
            }  # fmt: skip


@pytest.mark.parametrize("workers", [0, 1])
def test_the_items_of_the_example_have_all_cameras_and_the_actions_that_follow(workers: int, tmp_path: Path) -> None:
    """Behind the end of an episode its last action stands in, and before its start its first frame."""
    lengths = [7, 5, 6]
    root = write_lerobot(tmp_path / "robot", lengths)
    prepared(root, out=tmp_path / "out")
    clips = shortgop.AllClips(shortgop.Offsets(frames=[-2, 0]), whole=False, ends="clamp")
    items = LeRobotItems(tmp_path / "out", root, clips, cameras=CAMERAS, episodes=[1, 2], horizon=3)
    sampler = shortgop.ElasticSampler(items, 11, order=shortgop.Sequential())
    with shortgop.ClipLoader(items, sampler, workers=workers) as loader:
        (batch,) = loader
    # The place of each item's last frame, and those of the first and the last frame of its episode.
    places = [(place, 7, 11) for place in range(7, 12)] + [(place, 12, 17) for place in range(12, 18)]
    shown = [[max(place - 2, first), place] for place, first, _ in places]
    assert [[read_number(frame) for frame in clip] for clip in batch["frames"]] == shown
    assert [[read_number(frame) - 10_000 for frame in clip] for clip in batch[CAMERAS[1]]] == shown
    assert batch["observation.state"].tolist() == [[[place] for place in clip] for clip in shown]
    follow = [[place + step for step in range(3)] for place, _, _ in places]
    ends = [last for _, _, last in places]
    assert batch["action_is_pad"].tolist() == [
        [each > end for each in row] for row, end in zip(follow, ends, strict=True)
    ]
    assert batch["action"].tolist() == [
        [[-min(each, end), 0.5] for each in row] for row, end in zip(follow, ends, strict=True)
    ]


def test_a_second_job_takes_only_the_episodes_that_are_new(tmp_path: Path) -> None:
    prepared(write_lerobot(tmp_path / "robot", [20, 30, 10]), out=tmp_path / "out")
    (tmp_path / "robot").rename(tmp_path / "before")
    report = prepared(write_lerobot(tmp_path / "robot", [20, 30, 10, 15]), out=tmp_path / "out")
    assert (report.already_there, report.videos_added, report.failures) == (6, 2, ())


def test_the_job_says_what_it_takes_the_folder_for(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [3, 4])
    said: list[str] = []
    find_sources([str(root)], importing=Importing(tell=said.append))
    assert said == [f"{root}: a LeRobot dataset of 2 episodes and 2 cameras"]


def test_depth_is_left_out_and_named(tmp_path: Path) -> None:
    features = {
        CAMERAS[0]: feature("video"),
        "observation.depth": feature("video", info={"video.is_depth_map": True}),
    }
    root = write_lerobot(tmp_path / "robot", [3, 4], features=features)
    said: list[str] = []
    found = find_sources([str(root)], importing=Importing(tell=said.append))
    assert [source.id for source in found] == [f"{CAMERAS[0]}/episode_{index:06d}" for index in range(2)]
    assert said[0].endswith("; left out: observation.depth, which is depth")


def test_a_file_that_is_missing_is_a_failure_of_its_episodes(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [3, 4, 5, 6])
    (root / f"videos/{CAMERAS[0]}/chunk-000/file-001.mp4").unlink()
    report = prepared(root, out=tmp_path / "out")
    assert report.videos_added == 7
    (failure,) = report.failures
    assert failure.id == f"{CAMERAS[0]}/episode_000003"
    assert "does not exist" in failure.reason


def test_an_episode_of_which_the_file_lacks_frames_is_named(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [30, 40])
    path = root / f"videos/{CAMERAS[0]}/chunk-000/file-000.mp4"
    make_video(path, pts=range(29), timebase=Fraction(1, 30), gop=2)
    reasons = [failure.reason for failure in prepared(root, out=tmp_path / "out").failures]
    assert len(reasons) == 2
    assert reasons[0].startswith(f"episode 0 of '{root}'")


def test_older_versions_and_folders_around_are_ordinary_folders(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "all/robot", [3, 4], codebase_version="v2.1")
    assert {source.part for source in find_sources([str(root)])} == {None}
    (root / "meta/info.json").write_text((root / "meta/info.json").read_text().replace("v2.1", "v3.0"))
    assert {source.part for source in find_sources([str(tmp_path / "all")])} == {None}
    assert None not in {source.part for source in find_sources([str(root)])}


def test_a_dataset_whose_description_may_not_be_read_is_not_taken_for_a_folder_of_videos(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [3])
    (root / "meta/info.json").chmod(0)
    with (
        modes_count(),
        pytest.raises(UsageError, match=r"cannot read '.*meta/info\.json': Permission denied; fix that"),
    ):
        find_sources([str(root)])


def test_a_dataset_without_videos_says_so(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [3], features={"observation.images.front": feature("image")})
    with pytest.raises(UsageError, match="has no camera whose pictures are videos"):
        find_sources([str(root)])
    root = write_lerobot(tmp_path / "other", [3])
    (episodes,) = (root / "meta/episodes").rglob("*.parquet")
    pq.write_table(pq.read_table(episodes).drop_columns(["length"]), episodes)
    with pytest.raises(UsageError, match="file-000.parquet' has no column 'length'"):
        find_sources([str(root)])
