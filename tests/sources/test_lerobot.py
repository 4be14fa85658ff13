"""LeRobot datasets, in the layouts that lerobot writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shortgop
from file_permissions import modes_count
from lerobot_files import CAMERAS, TASKS, feature, with_pictures, write_lerobot, write_lerobot_2
from shortgop.errors import DatasetWarning, SourceError, UsageError
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.finding.source_parts import PictureRows, identity_of_part
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.options import DEFAULT_POLICY, SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.reporting.source_pictures import source_frames
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from synthetic import make_video, read_number


def prepared(*sources: Path, out: Path, fps: Fraction | None = None, policy: SourcePolicy = DEFAULT_POLICY) -> Report:
    given = [str(source) for source in sources]
    return prepare(given, DiskStorage(out), Profile(fps=fps), where=Where("inline"), policy=policy)


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


def test_a_failed_stretch_that_a_list_names_stays_where_its_file_is_one_of_a_dataset(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [20, 20])
    file = root / f"videos/{CAMERAS[0]}/chunk-000/file-000.mp4"
    (tmp_path / "clips.csv").write_text(f"path,id,start,end\n{file},my clip,90,95\n")
    with pytest.warns(DatasetWarning, match="1 of 1 source could not be prepared"):
        shortgop.prepare([tmp_path / "clips.csv"], tmp_path / "out", runner="inline", cuts="start,end")
    prepared(root, out=tmp_path / "out")
    assert [each.id for each in shortgop.open(tmp_path / "out").failures] == ["my clip"]


def test_an_episode_of_which_the_file_lacks_frames_is_named(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [31, 40])
    path = root / f"videos/{CAMERAS[0]}/chunk-000/file-000.mp4"
    make_video(path, pts=range(30), timebase=Fraction(1, 30), gop=2)
    reasons = [failure.reason for failure in prepared(root, out=tmp_path / "out").failures]
    after = f"after the end of {path}, which lasts 1.000 s; copy the file again"
    assert reasons == [
        f"episode 0 of '{root}': the stretch 0-1.03333 ends {after}",
        f"episode 1 of '{root}': the stretch 1.03333-2.36667 starts {after}",
    ]


def test_a_file_of_a_lower_rate_lacks_frames(tmp_path: Path) -> None:
    """It became a video of 12 frames, for which LeRobotClips refused the whole dataset. With --fps it would have the
    frames of other rows."""
    root = write_lerobot_2(tmp_path / "robot", [10, 13], fps=10)
    path = root / f"videos/chunk-000/{CAMERAS[0]}/episode_000001.mp4"
    make_video(path, pts=range(13), timebase=Fraction(1, 9), gop=2, first_number=10)
    (failure,) = prepared(root, out=tmp_path / "out").failures
    assert failure.reason == (
        f"episode 1 of '{root}': {path} has 12 frames in the stretch 0-1.3 at 9 frames/s, and the dataset says 13; "
        "copy the file again"
    )


def written_again(tmp_path: Path, length: int, *, fps: int, pts: Sequence[int], timebase: Fraction) -> tuple[Path, str]:
    """A dataset of one episode, and the id of the video whose file has frames at these times instead."""
    root = write_lerobot_2(tmp_path / "robot", [length], fps=fps)
    path = root / f"videos/chunk-000/{CAMERAS[0]}/episode_000000.mp4"
    make_video(path, pts=pts, timebase=timebase, gop=2, b_frames=0)
    return root, f"{CAMERAS[0]}/episode_000000"


def shown(folder: Path, name: str) -> list[int]:
    return [read_number(frame) for frame in shortgop.open(folder)[name]]


def test_a_file_of_a_higher_rate_is_read_at_that_of_the_dataset_if_the_user_says_so(tmp_path: Path) -> None:
    root, name = written_again(tmp_path, 20, fps=10, pts=range(40), timebase=Fraction(1, 20))
    (failure,) = prepared(root, out=tmp_path / "out").failures
    assert failure.reason.endswith(
        "has 40 frames in the stretch 0-2 at 20 frames/s, and the dataset says 20; copy the file again, or give "
        "--fps 10 if only its rate is wrong"
    )
    assert not prepared(root, out=tmp_path / "other", fps=Fraction(10)).failures
    assert shown(tmp_path / "other", name) == list(range(0, 40, 2))


def test_a_rate_is_advised_only_if_it_helps(tmp_path: Path) -> None:
    """At the dataset's rate a file of nearly this rate has as many frames too much."""
    root, _ = written_again(tmp_path, 40, fps=25, pts=range(50), timebase=Fraction(1, 26))
    for number, fps in enumerate((None, Fraction(25))):
        (failure,) = prepared(root, out=tmp_path / str(number), fps=fps).failures
        assert failure.reason.endswith("at 26 frames/s, and the dataset says 40; copy the file again")


@pytest.mark.parametrize("fps", ["24", "26", "50"])
def test_episodes_may_be_prepared_at_another_rate(fps: str, tmp_path: Path) -> None:
    """At one that was near to the dataset's they were refused, since the frames of the video were counted."""
    root = write_lerobot(tmp_path / "robot", [50, 25], fps=25)
    assert not prepared(root, out=tmp_path / "out", fps=Fraction(fps)).failures
    assert [len(video) for video in shortgop.open(tmp_path / "out")] == [2 * int(fps), int(fps)] * 2


@pytest.mark.parametrize("fps", [None, Fraction(10)])
def test_an_episode_lacks_no_frame_within_unless_the_user_says_so(fps: Fraction | None, tmp_path: Path) -> None:
    """The frame before was shown in place of those of other rows, without a word."""
    there = [*range(10), *range(13, 20)]
    root, name = written_again(tmp_path, 20, fps=10, pts=there, timebase=Fraction(1, 10))
    (failure,) = prepared(root, out=tmp_path / "out", fps=fps).failures
    assert failure.reason.endswith(
        "has 17 frames in the stretch 0-2 at 10 frames/s, and the dataset says 20; copy the file again"
    )
    policies = (SourcePolicy(salvage=True), SourcePolicy(gaps="keep"), SourcePolicy(gaps="close"))
    for number, policy in enumerate(policies):
        assert not prepared(root, out=tmp_path / str(number), fps=fps, policy=policy).failures
        assert shown(tmp_path / str(number), name) == [*range(10), 9, 9, 9, *range(10, 17)]


def test_an_episode_whose_first_frame_lies_in_a_gap_is_told_as_such(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [20, 20], fps=1)
    path = root / f"videos/{CAMERAS[0]}/chunk-000/file-000.mp4"
    make_video(path, pts=[*range(8), *range(22, 40)], timebase=Fraction(1), gop=2, b_frames=0)
    failures = {
        failure.id: failure.reason
        for failure in prepared(root, out=tmp_path / "out", policy=SourcePolicy(gaps="keep")).failures
    }
    assert failures == {
        f"{CAMERAS[0]}/episode_000001": (
            f"episode 1 of '{root}' begins at 20 s, where {path} has no frame; copy the file again"
        )
    }


@pytest.mark.parametrize("off", [-0.3, 0.5, 0.2])
def test_an_episode_that_begins_between_two_frames_is_a_failure(off: float, tmp_path: Path) -> None:
    """It had the frames of other rows where it was off by more than half a frame. LeRobot refuses to read it."""
    root = write_lerobot(tmp_path / "robot", [30, 40])
    episodes = root / "meta/episodes/chunk-000/file-000.parquet"
    table, name = pq.read_table(episodes), f"videos/{CAMERAS[0]}/from_timestamp"
    starts = pa.array([0, 1 + off / 30])
    pq.write_table(table.set_column(table.column_names.index(name), name, starts), episodes)
    failures = prepared(root, out=tmp_path / "out").failures
    if abs(off) < 1 / 4:
        assert not failures
        assert [read_number(each) for each in shortgop.open(tmp_path / "out")[1]] == list(range(30, 70))
    else:
        (failure,) = failures
        assert f"episode 1 of '{root}' begins at {1 + off / 30:.6g} s, between two frames of" in failure.reason


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
    (root / "meta/episodes.jsonl").write_text(lines)
    info = json.loads((root / "meta/info.json").read_text())
    for wrong in ({"fps": 0}, {"fps": -30}, {"fps": None}, {"fps": "1/0"}, {"features": None}, {"features": {"a": 1}}):
        (root / "meta/info.json").write_text(json.dumps(info | wrong))
        with pytest.raises(UsageError, match="metadata of the LeRobot dataset '.*' makes no sense: "):
            find_sources([str(root)])
    (root / "meta/info.json").write_text(json.dumps(info))
    (root / "meta/episodes.jsonl").unlink()
    with pytest.raises(UsageError, match="cannot read '.*episodes.jsonl': No such file"):
        find_sources([str(root)])


def test_older_versions_and_folders_around_are_ordinary_folders(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "all/robot", [3, 4], codebase_version="v1.6")
    assert {source.part for source in find_sources([str(root)])} == {None}
    (root / "meta/info.json").write_text((root / "meta/info.json").read_text().replace("v1.6", "v3.0"))
    assert {source.part for source in find_sources([str(tmp_path / "all")])} == {None}
    assert None not in {source.part for source in find_sources([str(root)])}


@pytest.mark.parametrize("content", ['{"codebase_version": "v3.0", "fp', "[]", "{}"])
@pytest.mark.parametrize("write", [write_lerobot, write_lerobot_2])
def test_a_description_without_a_version_beside_episodes_is_refused(
    write: Callable[..., Path], content: str, tmp_path: Path
) -> None:
    """Its videos were taken for plain ones, without a word."""
    root = write(tmp_path / "robot", [3])
    (root / "meta/info.json").write_text(content)
    with pytest.raises(UsageError, match=r"info\.json' does not say which version .*; copy the file again"):
        find_sources([str(root)])


def test_a_dataset_whose_description_may_not_be_read_is_not_taken_for_a_folder_of_videos(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [3])
    (root / "meta/info.json").chmod(0)
    with (
        modes_count(),
        pytest.raises(UsageError, match=r"cannot read '.*meta/info\.json': Permission denied; fix that"),
    ):
        find_sources([str(root)])


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("write", "suffix"), [(write_lerobot, "png"), (write_lerobot_2, "png"), (write_lerobot_2, "jpg")]
)
def test_pictures_in_the_rows_are_the_frames_of_videos(write: Callable[..., Path], suffix: str, tmp_path: Path) -> None:
    """As of lerobot/pusht_image: frames, ids and columns are those of the same dataset with videos."""
    lengths = [7, 12, 1]
    root = with_pictures(write(tmp_path / "robot", lengths, fps=10), suffix=suffix)
    report = prepared(root, out=tmp_path / "out")
    assert (report.videos_added, report.failures) == (6, ())
    dataset = shortgop.open(tmp_path / "out")
    for number, camera in enumerate(CAMERAS):
        for index, length in enumerate(lengths):
            video = dataset[f"{camera}/episode_{index:06d}"]
            first = 10_000 * number + sum(lengths[:index])
            assert [read_number(frame) for frame in video] == list(range(first, first + length))
            assert video.metadata.fps == 10
            assert (video.attributes["camera"], video.attributes["dataset_from_index"]) == (
                camera,
                sum(lengths[:index]),
            )
            assert (video.changes.dropped, video.changes.repeated) == (0, 0)
    clips = shortgop.LeRobotClips(dataset, root, delta_timestamps={CAMERAS[0]: [0, 0.1], "action": [0.1]})
    for row, item in enumerate(clips):
        assert int(item["index"]) == row
        assert (read_number(item[CAMERAS[0]][0]), read_number(item[CAMERAS[1]])) == (row, 10_000 + row)
    with pytest.raises(SourceError, match="the source is pictures in a Parquet file; only videos are shown here"):
        source_frames(dataset[0].source_path, [0])
    # Nothing is encoded again, and what was written out for it is gone.
    assert prepared(root, out=tmp_path / "out").already_there == 6
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name in {"pictures", "source.ffconcat"}]


def test_some_cameras_may_have_videos_and_others_pictures(tmp_path: Path) -> None:
    root = with_pictures(write_lerobot(tmp_path / "robot", [3, 4]), cameras=[CAMERAS[1]])
    said: list[str] = []
    found = find_sources([str(root)], importing=Importing(tell=said.append))
    assert said == [f"{root}: a LeRobot dataset of 2 episodes and 2 cameras"]
    assert [Path(source.path).suffix for source in found] == [".mp4"] * 2 + [".parquet"] * 2


def test_the_rate_of_pictures_is_that_of_the_dataset(tmp_path: Path) -> None:
    """And where another one is given, for folders beside it, the job says so."""
    root = with_pictures(write_lerobot(tmp_path / "robot", [3], fps=10))
    said: list[str] = []
    for given in (10, 30):
        found = find_sources([str(root)], importing=Importing(image_fps=Fraction(given), tell=said.append))
        assert {each.part.fps for each in found if isinstance(each.part, PictureRows)} == {10}
    assert said[0].endswith("1 episode and 2 cameras")
    assert said[1].endswith("2 cameras; its pictures have its own rate, 10, and not that of --image-fps")


def test_episodes_in_one_table_count_as_their_parts_of_it(tmp_path: Path) -> None:
    """Otherwise each would be a unit of its own, of the size of all."""
    root = with_pictures(write_lerobot(tmp_path / "robot", [10, 30]))
    size = (root / "data/chunk-000/file-000.parquet").stat().st_size
    sizes = [identity_of_part(each.path, each.part, identity_of)[1] for each in find_sources([str(root)])]
    assert sizes == [round(size / 4), round(size * 3 / 4)] * 2


def changed_rows(root: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    (file,) = (root / "data").glob("*/*.parquet")
    pq.write_table(change(pq.read_table(file)), file)


def with_picture(table: pa.Table, row: int, picture: dict[str, Any]) -> pa.Table:
    column = table.column_names.index(CAMERAS[0])
    values = table.column(column).to_pylist()
    values[row] = picture
    return table.set_column(column, CAMERAS[0], pa.array(values, table.schema.field(column).type))


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda table: table.slice(0, 8),
            "episode 1 of '.*robot' has 6 frames, and 3 rows in .*file-000.parquet; copy",
        ),
        (
            lambda table: with_picture(table, 7, {"bytes": None, "path": "images/7.png"}),
            "episode 1 of '.*robot', frame 2 has no bytes in 'observation.images.front'",
        ),
        (
            lambda table: with_picture(table, 7, {"bytes": b"no picture", "path": "7.png"}),
            "episode 1 of '.*robot', frame 2 cannot be read as a picture",
        ),
        (
            lambda table: table.drop_columns([CAMERAS[0]]),
            "cannot read the pictures in 'observation.images.front' of .*file-000.parquet",
        ),
    ],
)
def test_rows_without_the_pictures_of_an_episode_are_a_failure_that_names_them(
    change: Callable[[pa.Table], pa.Table], said: str, tmp_path: Path
) -> None:
    root = with_pictures(write_lerobot(tmp_path / "robot", [5, 6]))
    changed_rows(root, change)
    failures = {failure.id: failure.reason for failure in prepared(root, out=tmp_path / "out").failures}
    assert re.search(said, failures[f"{CAMERAS[0]}/episode_000001"])
    assert ".tmp" not in failures[f"{CAMERAS[0]}/episode_000001"]


def test_rows_that_are_missing_are_a_failure(tmp_path: Path) -> None:
    root = with_pictures(write_lerobot_2(tmp_path / "robot", [5, 6]))
    (root / "data/chunk-000/episode_000001.parquet").unlink()
    failures = prepared(root, out=tmp_path / "out").failures
    assert [failure.id.split("/")[1] for failure in failures] == ["episode_000001"] * 2
    assert "episode_000001.parquet" in failures[0].reason


def test_a_dataset_without_cameras_says_so(tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [3], features={"action": feature("float32")})
    with pytest.raises(UsageError, match="has no camera: no feature of dtype video or image"):
        find_sources([str(root)])
    root = write_lerobot(tmp_path / "other", [3])
    (episodes,) = (root / "meta/episodes").rglob("*.parquet")
    pq.write_table(pq.read_table(episodes).drop_columns(["length"]), episodes)
    with pytest.raises(UsageError, match="file-000.parquet' has no column 'length'"):
        find_sources([str(root)])
