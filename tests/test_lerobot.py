"""LeRobot datasets, in the layouts that lerobot writes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import shortgop
from file_permissions import modes_count
from lerobot_files import CAMERAS, TASKS, feature, write_lerobot, write_lerobot_2
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
@pytest.mark.parametrize("write", [write_lerobot, write_lerobot_2])
def test_each_episode_of_each_camera_is_a_video(write: Callable[..., Path], fps: int, tmp_path: Path) -> None:
    lengths = [37, 51, 1, 40, 23]
    root = write(tmp_path / "robot", lengths, fps=fps)
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


def test_the_episodes_of_version_2_lie_in_folders_of_so_many(tmp_path: Path) -> None:
    root = write_lerobot_2(tmp_path / "robot", [3, 4, 5], per_chunk=2)
    found = find_sources([str(root)])
    assert [Path(source.path).parent.parent.name for source in found] == ["chunk-000", "chunk-000", "chunk-001"] * 2
    assert {Path(source.path).is_file() for source in found} == {True}


def test_what_is_wrong_with_the_episodes_of_version_2_is_named(tmp_path: Path) -> None:
    root = write_lerobot_2(tmp_path / "robot", [30, 40])
    lines = (root / "meta/episodes.jsonl").read_text()
    (root / "meta/episodes.jsonl").write_text(lines.replace('"length": 40', '"length": 41'))
    reasons = [failure.reason for failure in prepared(root, out=tmp_path / "out").failures]
    assert len(reasons) == 2
    assert reasons[0].startswith(f"episode 1 of '{root}'")
    (root / "meta/episodes.jsonl").write_text(lines.replace("length", "duration"))
    with pytest.raises(UsageError, match="metadata of the LeRobot dataset '.*' makes no sense: KeyError: 'length'"):
        find_sources([str(root)])
    (root / "meta/episodes.jsonl").unlink()
    with pytest.raises(UsageError, match="cannot read '.*episodes.jsonl': No such file"):
        find_sources([str(root)])


def test_older_versions_and_folders_around_are_ordinary_folders(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "all/robot", [3, 4], codebase_version="v1.6")
    assert {source.part for source in find_sources([str(root)])} == {None}
    (root / "meta/info.json").write_text((root / "meta/info.json").read_text().replace("v1.6", "v3.0"))
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
