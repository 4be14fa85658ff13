"""Folders and lists of pictures as videos."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import shortgop
from file_permissions import modes_count
from shortgop.errors import UsageError
from shortgop.jobs.finding.importers.images import ShownPicture, concat_script
from shortgop.jobs.finding.importing import Importing, importing_of
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from synthetic import burn, constant_rate_pts, make_video, read_number


def write_images(
    folder: Path, numbers: Iterable[int], name: str = "frame_{:05d}.png", size: tuple[int, int] = (96, 64)
) -> Path:
    """Pictures that show their numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        Image.fromarray(burn(number, *size)).save(folder / name.format(number))
    return folder


def prepared(source: Path, out: Path, fps: str = "30", **policy: Any) -> Report:
    return prepare(
        [str(source)], DiskStorage(out), Profile(), where=Where("inline"), policy=SourcePolicy(**policy),
        importing=importing_of(None, fps),
    )  # fmt: skip


def numbers(dataset: Path, video: str | int = 0) -> list[int]:
    return [read_number(frame) for frame in shortgop.open(dataset)[video]]


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", ["png", "jpg", "webp"])
@pytest.mark.parametrize("fps", ["30", "29.97", "12"])
def test_a_folder_of_numbered_pictures_is_a_video_at_the_rate_that_is_given(
    suffix: str, fps: str, tmp_path: Path
) -> None:
    write_images(tmp_path / "shot", range(8, 50), f"{{}}.{suffix}")
    assert prepared(tmp_path / "shot", tmp_path / "out", fps).failures == ()
    (video,) = shortgop.open(tmp_path / "out")
    assert (video.id, len(video)) == ("shot", 42)
    # By number: 8, 9, 10, ..., not 10, 11, ..., 8, 9.
    assert numbers(tmp_path / "out") == list(range(8, 50))
    assert video.metadata.fps == {"30": 30, "29.97": Fraction(30000, 1001), "12": 12}[fps]
    assert video.source_seconds([0, 41]).tolist() == pytest.approx([0, 41 / float(video.metadata.fps)])
    assert (video.changes.dropped, video.changes.repeated) == (0, 0)


def test_each_folder_of_pictures_is_a_video_beside_the_videos(tmp_path: Path) -> None:
    for number, name in enumerate(["a/left", "a/right", "b"]):
        write_images(tmp_path / "all" / name, range(100 * number, 100 * number + 5))
    prepared(tmp_path / "all", tmp_path / "out")
    assert [video.id for video in shortgop.open(tmp_path / "out")] == ["a/left", "a/right", "b"]
    assert numbers(tmp_path / "out", "a/right") == list(range(100, 105))


def test_without_a_rate_a_folder_of_pictures_names_the_option(tmp_path: Path) -> None:
    write_images(tmp_path / "shot", range(3))
    with pytest.raises(
        UsageError, match=r"holds pictures and no videos; give their rate with --image-fps.* list that has an id"
    ):
        find_sources([str(tmp_path / "shot")])
    for wrong in ("0", "-1", "source", "fast"):
        with pytest.raises(UsageError, match="--image-fps is"):
            importing_of(None, wrong)


@pytest.mark.parametrize(("gaps", "expected"), [("close", [1, 2, 5, 6]), ("keep", [1, 2, 2, 2, 5, 6])])
def test_a_missing_number_is_an_error_unless_gaps_says_otherwise(
    gaps: str, expected: list[int], tmp_path: Path
) -> None:
    write_images(tmp_path / "shot", [1, 2, 5, 6])
    (failure,) = prepared(tmp_path / "shot", tmp_path / "out").failures
    assert "picture 3 is missing, after 'frame_00002.png', 2 in all; --gaps close" in failure.reason
    assert prepared(tmp_path / "shot", tmp_path / "out", gaps=gaps).failures == ()
    assert numbers(tmp_path / "out") == expected


def test_names_that_make_no_sequence_are_refused(tmp_path: Path) -> None:
    write_images(tmp_path / "all/two", range(2), "left_{}.png")
    write_images(tmp_path / "all/two", range(2), "right_{}.png")
    write_images(tmp_path / "all/twice", [1], "{}.png")
    write_images(tmp_path / "all/twice", [1], "{:03d}.png")
    write_images(tmp_path / "all/unnumbered", [1], "cover.png")
    reasons = {failure.id: failure.reason for failure in prepared(tmp_path / "all", tmp_path / "out").failures}
    assert "'left_0.png' and 'right_0.png' do not belong to one sequence" in reasons["two"]
    assert "'001.png' and '1.png' do not belong to one sequence" in reasons["twice"]
    assert "'cover.png' has no number in its name" in reasons["unnumbered"]


def test_pictures_of_several_sizes_or_kinds_are_refused(tmp_path: Path) -> None:
    write_images(tmp_path / "all/sizes", range(3))
    write_images(tmp_path / "all/sizes", [3], size=(128, 64))
    write_images(tmp_path / "all/kinds", range(3))
    Image.fromarray(burn(3, 96, 64)).save(tmp_path / "all/kinds/frame_00003.png", format="jpeg")
    (write_images(tmp_path / "all/broken", range(3)) / "frame_00001.png").write_bytes(b"nothing")
    reasons = {failure.id: failure.reason for failure in prepared(tmp_path / "all", tmp_path / "out").failures}
    assert "frame_00000.png is PNG of 96x64, but " in reasons["sizes"]
    assert "frame_00003.png is PNG of 128x64; the pictures of a video" in reasons["sizes"]
    assert "frame_00003.png is JPEG of 96x64" in reasons["kinds"]
    assert "frame_00001.png cannot be read as a picture" in reasons["broken"]


def test_pictures_that_may_not_be_read_and_pipes_fail_alone_and_say_why(tmp_path: Path) -> None:
    """The pictures are not damaged, and nobody writes to the pipe: copying them again would not help."""
    (write_images(tmp_path / "all/locked", range(3)) / "frame_00001.png").chmod(0)
    os.mkfifo(write_images(tmp_path / "all/pipe", range(3)) / "frame_00003.png")
    write_images(tmp_path / "all/sound", range(3))
    with modes_count():
        report = prepared(tmp_path / "all", tmp_path / "out")
    reasons = {failure.id: failure.reason for failure in report.failures}
    assert "frame_00001.png cannot be read: permission denied; change its permissions" in reasons["locked"]
    assert "frame_00003.png is a pipe, but pictures are files; take it out" in reasons["pipe"]
    assert shortgop.open(tmp_path / "out").ids == ["sound"]


def test_a_list_of_pictures_is_a_video_in_the_order_of_its_lines(tmp_path: Path) -> None:
    write_images(tmp_path / "shot", range(5))
    listed = tmp_path / "order.txt"
    listed.write_text("".join(f"shot/frame_{number:05d}.png\n" for number in (4, 0, 3, 3, 1)))
    prepared(listed, tmp_path / "out")
    assert shortgop.open(tmp_path / "out")[0].id == "order"
    assert numbers(tmp_path / "out") == [4, 0, 3, 3, 1]


def test_a_list_of_pictures_with_ids_is_a_video_for_each(tmp_path: Path) -> None:
    write_images(tmp_path / "shot", range(6))
    listed = tmp_path / "order.csv"
    lines = [f"shot/frame_{n:05d}.png,{'b' if n % 2 else 'a'},{'wave' if n % 2 else 'jump'},{n}" for n in range(6)]
    listed.write_text("\n".join(["path,id,label,number", *lines]) + "\n")
    said: list[str] = []
    find_sources([str(listed)], importing=Importing(image_fps=Fraction(30), tell=said.append))
    assert said == [f"{listed}: a list of 6 pictures that are 2 videos"]
    prepared(listed, tmp_path / "out")
    assert numbers(tmp_path / "out", "a") == [0, 2, 4]
    assert numbers(tmp_path / "out", "b") == [1, 3, 5]
    # Only what is the same in all lines of a video says something of the video.
    assert [video.attributes for video in shortgop.open(tmp_path / "out")] == [{"label": "jump"}, {"label": "wave"}]


@pytest.mark.parametrize("others", ["", "c.mp4,7,008\n"])
def test_the_columns_of_a_list_of_pictures_have_the_types_that_are_given(others: str, tmp_path: Path) -> None:
    """They were refused, since the list counted as none. Of a list with other files, which is read twice, the types are
    told once."""
    listed = tmp_path / "order.csv"
    listed.write_text("path,code,other\na.png,7,008\nb.png,7,008\n" + others)
    told: list[Mapping[str, str]] = []
    sources = find_sources(
        [str(listed)], importing=Importing(image_fps=Fraction(30)), types={"code": "text"},
        on_types=lambda _, types: told.append(types),
    )  # fmt: skip
    assert {source.attributes for source in sources} == {'{"code": "7", "other": "008"}'}
    assert told == [{"code": "text", "other": "text"}]


def test_images_are_trained_on_beside_videos(tmp_path: Path) -> None:
    """Images of several sizes and formats in a list of videos, each a video of one frame with the columns of its line,
    also where videos get another rate."""
    images = {"1.png": (96, 64), "2.jpg": (128, 64), "3.webp": (64, 80)}
    for number, (name, size) in enumerate(images.items(), 1):
        Image.fromarray(burn(number, *size)).save(tmp_path / name, quality=95)
    pts = constant_rate_pts(Fraction(10), 40)
    make_video(tmp_path / "v.mp4", pts=pts, timebase=Fraction(1, 10), first_number=100)
    rows = [{"path": name, "caption": f"of {name}"} for name in (*images, "v.mp4")]
    (tmp_path / "both.jsonl").write_text("\n".join(map(json.dumps, rows)))
    prepare(
        [str(tmp_path / "both.jsonl")], DiskStorage(tmp_path / "out"), Profile(fps=Fraction(10)),
        where=Where("inline"), importing=importing_of(None, "1"),
    )  # fmt: skip
    videos, outputs = shortgop.open(tmp_path / "out"), {"frames": shortgop.Output(size=(64, 96))}
    assert videos.columns["num_frames"].tolist() == [1, 1, 1, 40]
    buckets = [
        shortgop.ClipDataset(
            videos.where(lambda columns, image=image: (columns.built_in["num_frames"] == 1) == image),
            shortgop.RandomClips(1 if image else 8), outputs=outputs, metadata=["caption"],
        )
        for image in (True, False)
    ]  # fmt: skip
    mixed = shortgop.MixedClips(buckets)
    found: dict[str, list[int]] = {}
    for batch in shortgop.ClipLoader(mixed, shortgop.BucketSampler(mixed, [3, 1]), workers=0):
        found |= {
            caption: [read_number(frame) for frame in clip]
            for caption, clip in zip(batch["caption"], batch["frames"], strict=True)
        }
    first = found.pop("of v.mp4")
    assert first == list(range(first[0], first[0] + 8))
    assert found == {"of 1.png": [1], "of 2.jpg": [2], "of 3.webp": [3]}
    padded = shortgop.ClipDataset(videos, shortgop.RandomClips(8, ends="repeat_last"), outputs=outputs)
    assert [int(item["mask"].sum()) for item in padded] == [1, 1, 1, 8]


def test_an_image_in_a_list_of_videos_is_known_by_its_path(tmp_path: Path) -> None:
    """A list at another place, with other paths to the same files, changes their labels, and so does annotate."""
    write_images(tmp_path / "shot", [1], "{}.png")
    make_video(tmp_path / "v.mp4", pts=constant_rate_pts(Fraction(10), 5), timebase=Fraction(1, 10))
    (tmp_path / "list.csv").write_text("path,label\nshot/1.png,a\nv.mp4,b\n")
    prepared(tmp_path / "list.csv", tmp_path / "out", "1")
    other = tmp_path / "lists" / "list.csv"
    other.parent.mkdir()
    other.write_text("path,label\n../shot/1.png,c\n../v.mp4,d\n")
    report = prepared(other, tmp_path / "out", "1")
    assert (report.already_there, report.relabelled) == (2, 2)
    assert shortgop.open(tmp_path / "out").columns["label"].tolist() == ["c", "d"]
    other.write_text("path,label\n../shot/1.png,e\n")
    shortgop.annotate(tmp_path / "out", other)
    assert shortgop.open(tmp_path / "out").columns["label"].tolist() == ["e", "d"]


def test_an_image_in_a_list_of_videos_needs_a_rate_and_a_disk(tmp_path: Path) -> None:
    write_images(tmp_path, [1], "{}.png")
    make_video(tmp_path / "v.mp4", pts=constant_rate_pts(Fraction(10), 5), timebase=Fraction(1, 10))
    listed = tmp_path / "list.txt"
    listed.write_text("v.mp4\n1.png\n")
    (failure,) = prepare(
        [str(listed)], DiskStorage(tmp_path / "out"), Profile(), where=Where("inline")
    ).failures  # fmt: skip
    assert "with --image-fps a folder or a list" in failure.reason
    assert prepared(listed, tmp_path / "out", "1").failures == ()
    listed.write_text("v.mp4\ns3://bucket/1.png\n")
    with pytest.raises(UsageError, match="line 2 of .*pictures are read from disks"):
        prepared(listed, tmp_path / "out", "1")


def test_a_second_job_makes_nothing_again_and_notices_a_picture_that_changed(tmp_path: Path) -> None:
    write_images(tmp_path / "shot", range(5))
    prepared(tmp_path / "shot", tmp_path / "out")
    assert prepared(tmp_path / "shot", tmp_path / "out").already_there == 1
    write_images(tmp_path / "shot", [5])
    (failure,) = prepared(tmp_path / "shot", tmp_path / "out").failures
    assert "has changed" in failure.reason


def png_of_16_bits(picture: Any) -> bytes:
    """A PNG of 16 bits; Pillow writes none in colour."""
    encoder: Any = av.CodecContext.create("png", "w")
    encoder.height, encoder.width = picture.shape[:2]
    encoder.pix_fmt, encoder.time_base = "rgb48be", Fraction(1, 30)
    frame = av.VideoFrame.from_ndarray(picture.astype(np.uint16) * 257, format="rgb48le").reformat(format="rgb48be")
    frame.pts = 0
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])


def test_what_is_given_up_of_pictures_is_listed(tmp_path: Path) -> None:
    write_images(tmp_path / "all/alpha", [])
    write_images(tmp_path / "all/deep", [])
    for number in range(3):
        picture = burn(number, 96, 64)
        opaque = np.full((64, 96, 1), 255, np.uint8)
        Image.fromarray(np.concatenate([picture, opaque], axis=2)).save(tmp_path / f"all/alpha/{number}.png")
        (tmp_path / f"all/deep/{number}.png").write_bytes(png_of_16_bits(picture))
    prepared(tmp_path / "all", tmp_path / "out")
    dataset = shortgop.open(tmp_path / "out")
    assert numbers(tmp_path / "out", "alpha") == numbers(tmp_path / "out", "deep") == [0, 1, 2]
    assert dataset["alpha"].changes.given_up == ("alpha over black", "RGB to 4:2:0")
    assert dataset["deep"].changes.given_up == ("16 bits to 8", "RGB to 4:2:0")


def test_names_with_quotes_spaces_and_percent_signs(tmp_path: Path) -> None:
    write_images(tmp_path / "it's %02d [one]", range(3), "a b'%d_{}.png")
    assert prepared(tmp_path / "it's %02d [one]", tmp_path / "out").failures == ()
    assert numbers(tmp_path / "out") == [0, 1, 2]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=200),
    st.sampled_from([Fraction(30), Fraction(30000, 1001), Fraction(7), Fraction(240)]),
)
def test_the_times_of_a_script_are_right_to_half_a_microsecond(lengths: list[int], fps: Fraction) -> None:
    script = concat_script([ShownPicture(f"{place}", length) for place, length in enumerate(lengths)], fps)
    durations = [int(text) for text in re.findall(r"duration (\d+)us", script)]
    for frames, microseconds in zip(itertools.accumulate(lengths), itertools.accumulate(durations), strict=True):
        assert abs(microseconds - frames / fps * 1_000_000) <= Fraction(1, 2)


def test_a_folder_of_pictures_keeps_its_id_whatever_folder_is_given(tmp_path: Path) -> None:
    write_images(tmp_path / "all" / "many" / "a", range(5))
    write_images(tmp_path / "all" / "many" / "b", range(10, 15))
    for folder in ("all/many/a", "all/many", "all"):
        assert prepared(tmp_path / folder, tmp_path / "out").failures == ()
    assert list(shortgop.open(tmp_path / "out").ids) == ["a", "b"]
    shortgop.prepare(
        tmp_path / "all" / "many", tmp_path / "rooted", image_fps=30, id_root=tmp_path / "all", runner="inline"
    )
    assert list(shortgop.open(tmp_path / "rooted").ids) == ["many/a", "many/b"]
