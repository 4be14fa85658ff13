"""Clips at places that a table names, and tables of clips, written down and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import shortgop
from shortgop.errors import UsageError, WrongTypeError
from training_videos import make_videos, numbers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


def test_clips_at_places_of_a_table(folder: Path) -> None:
    clips = shortgop.ClipsAt(["b.mp4", 0, "b.mp4"], seconds=[0.5, 1, 0.2], num_frames=3, fps=10)
    dataset = shortgop.ClipDataset(folder, clips)
    assert [numbers(item["frames"]) for item in dataset] == [[1015, 1018, 1021], [10, 11, 12], [1006, 1009, 1012]]
    with pytest.raises(UsageError, match="clip 1 of the table is of video 0, which videos= leaves out; leave such"):
        shortgop.ClipDataset(folder, clips, videos=["b.mp4"])


def test_an_error_names_the_video_of_a_row_and_not_of_a_label_of_pandas(folder: Path) -> None:
    """Rows of a table that was sorted or filtered keep their labels: another video was named, or it was a KeyError."""
    table = pytest.importorskip("pandas").DataFrame({"video": ["a.mp4", "b.mp4", "c.mp4"], "frame": [1, 2, 3]})
    for rows in ([2, 0, 1], [2, 1]):
        chosen = table.iloc[rows]
        clips = shortgop.ClipsAt(chosen.video, frames=chosen.frame, num_frames=2)
        with pytest.raises(UsageError, match=f"clip {rows.index(1)} of the table is of video 'b.mp4', which videos="):
            shortgop.ClipDataset(folder, clips, videos=["c.mp4", "a.mp4"])


def test_windows_around_places(folder: Path) -> None:
    window = shortgop.Offsets(seconds=[-0.2, 0, 0.1])
    clips = shortgop.ClipsAt(["a.mp4", "a.mp4"], frames=[1, 39], num_frames=window, ends="clamp")
    dataset = shortgop.ClipDataset(folder, clips)
    assert [numbers(item["frames"]) for item in dataset] == [[0, 1, 2], [37, 39, 39]]
    assert [item["mask"].tolist() for item in dataset] == [[False, True, True], [True, True, False]]


@pytest.mark.parametrize(
    "policy",
    [
        shortgop.RandomClips(4, stride=2, clips_per_video=3, jitter=1),
        shortgop.UniformClips(8, stride=2, clips_per_video=2, ends="black"),
        shortgop.ClipsAt([1, 0], frames=[24, 3], num_frames=3, ends="wrap_clip"),
        shortgop.MultiRate([(2, 10), (2, 5)]),
    ],
    ids=str,
)
def test_a_table_of_clips_repeats_them_exactly(folder: Path, tmp_path: Path, policy: Any) -> None:
    dataset = shortgop.ClipDataset(folder, policy)
    draws = [*range(len(dataset)), *range(5 * len(dataset), 6 * len(dataset))]
    dataset.clip_table(draws).to_parquet(tmp_path / "clips.parquet")
    again = shortgop.ClipDataset(folder, shortgop.ClipTable.from_parquet(tmp_path / "clips.parquet"))
    assert len(again) == len(draws)
    for draw, item in zip(draws, again, strict=True):
        expected = dataset[draw]
        assert torch.equal(item["frames"], expected["frames"])
        assert (item["video"], item["start"]) == (expected["video"], expected["start"])
        assert item.keys() == expected.keys()
        if "mask" in item:
            assert torch.equal(item["mask"], expected["mask"])


def test_what_is_done_to_an_item_is_done_to_that_item_alone(folder: Path) -> None:
    """Items had the mask of the table itself: what one wrote there, all later items of the clip had."""
    table = shortgop.ClipDataset(folder, shortgop.RandomClips(12, ends="black")).clip_table()
    dataset = shortgop.ClipDataset(folder, table)
    first = dataset[2]
    before = [each.clone() for each in (first["frames"], first["mask"], first["frame_numbers"])]
    for name in ("mask", "frame_numbers"):
        first[name].zero_()
    again = dataset[2]
    assert all(map(torch.equal, before, (again["frames"], again["mask"], again["frame_numbers"])))


def test_a_table_is_not_written_over_and_one_that_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "clips.parquet"
    table = shortgop.ClipDataset(folder, shortgop.CenterClips(2)).clip_table()
    table.to_parquet(file)
    with pytest.raises(UsageError, match=r"exists; write somewhere else, or replace it .*overwrite=True"):
        table.to_parquet(file)
    with pytest.raises(UsageError, match=r"ends in '.csv'; give a name that ends in one of .parquet"):
        table.to_parquet(tmp_path / "clips.csv")
    with pytest.raises(UsageError, match="lies within the dataset"):
        table.to_parquet(folder / "clips.parquet")
    table.to_parquet(file, overwrite=True)
    assert [each.name for each in tmp_path.iterdir()] == ["clips.parquet"]
    wrong = shortgop.ClipTable(["c.mp4"], np.array([8]), np.array([[8, 9]]))
    with pytest.raises(UsageError, match="clip 0 of the table has frame 9 of video 'c.mp4', which has 9 frames"):
        shortgop.ClipDataset(folder, wrong)
    by_number = shortgop.ClipTable([cast(Any, 2)], np.array([7]), np.array([[7, 8]]))
    with pytest.raises(UsageError, match=r"has 2 for a video, and a file has ids, .* write the table that ClipDataset"):
        by_number.to_parquet(tmp_path / "numbers.parquet")
    shortgop.ClipDataset(folder, by_number).clip_table().to_parquet(tmp_path / "numbers.parquet")
    assert shortgop.ClipTable.from_parquet(tmp_path / "numbers.parquet").videos == ["c.mp4"]
    for starts in (0, [[0]]):
        with pytest.raises(UsageError, match=r"the table has 1 video, starts of shape .* each clip has one of each"):
            shortgop.ClipTable(["a.mp4"], cast(Any, starts), np.array([[0]]))


def test_a_table_may_be_given_as_lists(folder: Path) -> None:
    lists: Any = (["a.mp4", "b.mp4"], [0, 3], [[0, 2], [3, 3]], [[True, True], [True, False]])
    clips = shortgop.ClipDataset(folder, shortgop.ClipTable(*lists))
    assert [numbers(item["frames"]) for item in clips] == [[0, 2], [1003, 1003]]
    assert [item["mask"].tolist() for item in clips] == lists[3]
    for wrong, name in (([0.5], "starts"), (["0"], "starts"), ([[0, 1], [2]], "frames"), ([[0.0, 1.0]], "frames")):
        given: Any = {"videos": ["a.mp4"], "starts": [0], "frames": [[0, 1]], name: wrong}
        with pytest.raises(WrongTypeError, match=f"{name} of a ClipTable is .*; it has to be an array or a list"):
            shortgop.ClipTable(**given)


def test_columns_of_a_file_that_are_no_frame_numbers_are_refused(folder: Path, tmp_path: Path) -> None:
    """Such as pandas makes of them: fractions were cut off, and a missing start became the least int64."""
    file = tmp_path / "clips.parquet"
    right: dict[str, Any] = {"video": ["a.mp4", "b.mp4"], "start": [0.0, 3.0], "frames": [[0.0, 2.0], [3.0, 4.0]]}

    def read(**columns: Any) -> shortgop.ClipTable:
        pq.write_table(pa.table({**right, **columns}), file)
        return shortgop.ClipTable.from_parquet(file)

    table = read(mask=[[1, 1], [1, 0]])
    assert (table.starts.tolist(), table.frames.tolist()) == ([0, 3], [[0, 2], [3, 4]])
    assert table.mask is not None
    assert table.mask.tolist() == [[True, True], [True, False]]
    starts: list[Any] = [[0.5, 3.0], [None, 3], ["0", "3"]]
    for wrong in starts:
        with pytest.raises(UsageError, match=r"column 'start' of .* has \[.*\], and not frame numbers alone"):
            read(start=wrong)
    frames: list[Any] = [
        [[0.0, 2.5], [3.0, 4.0]],
        [[0, None], [3, 4]],
        [["0", "2"], ["3", "4"]],
        [None, [3, 4]],
        [0, 3],
    ]
    for wrong in frames:
        with pytest.raises(UsageError, match=r"column 'frames' of .* has .*, and not frame numbers alone"):
            read(frames=wrong)
    with pytest.raises(UsageError, match=r"column 'mask' of .* has .*, and not booleans alone: correct these rows"):
        read(mask=[None, [True, False]])


def test_the_videos_of_a_file_are_ids_or_numbers(folder: Path, tmp_path: Path) -> None:
    """As a table that other programs wrote may have them: numbers were refused."""
    file = tmp_path / "clips.parquet"

    def read(videos: Any) -> shortgop.ClipTable:
        pq.write_table(pa.table({"video": videos, "start": [0, 3], "frames": [[0, 2], [3, 4]]}), file)
        return shortgop.ClipTable.from_parquet(file)

    for videos in (["a.mp4", "b.mp4"], [0, 1]):
        clips = shortgop.ClipDataset(folder, read(videos))
        assert [numbers(item["frames"]) for item in clips] == [[0, 2], [1003, 1004]]
    for wrong, shown in (["a.mp4", None], "None"), ([0, None], "None"), ([0.5, 1.0], "0.5"), ([b"a", b"b"], "b'a'"):
        row = 0 if wrong[0] not in ("a.mp4", 0) else 1
        with pytest.raises(UsageError, match=rf"'video' of .* has {shown} in row {row}, and not ids .*: correct these"):
            read(wrong)


def test_a_table_with_a_start_that_its_video_does_not_have_is_refused(folder: Path) -> None:
    """Items had that start, although their frames were others."""
    for start in (-1, 25, 4000):
        table = shortgop.ClipTable(["a.mp4", "b.mp4"], [39, start], [[0], [1]])  # type: ignore[arg-type]
        message = f"clip 1 of the table starts at frame {start} of video 'b.mp4', which has 25 frames: correct the row"
        with pytest.raises(UsageError, match=message):
            shortgop.ClipDataset(folder, table)
