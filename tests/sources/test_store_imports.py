"""Datasets of other tools, pictures and tars below URLs: what they are on a disk, or an error that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shortgop
from lerobot_files import CAMERAS, with_pictures, write_lerobot, write_lerobot_2
from shortgop.errors import SourceError, UsageError
from shortgop.jobs.finding.importing import PLAIN, Importing
from shortgop.jobs.finding.source import Source
from shortgop.jobs.named_options import prepare_without_warning
from shortgop.reporting.source_pictures import source_frames
from shortgop.storage.local_copy import LocalCopy
from shortgop.training.robots import robot_rows
from source_arguments import find_sources
from store_helpers import put, remove
from synthetic import make_video, read_number
from web_server import web_server

PICTURES = Importing(image_fps=Fraction(30))
KINETICS = "label,youtube_id,time_start,time_end,split,is_cc"


def put_folder(folder: Path, url: str) -> str:
    for path in folder.rglob("*"):
        if path.is_file():
            put(f"{url}/{path.relative_to(folder)}", path)
    return url


def prepare(sources: Any, out: Path, **options: Any) -> shortgop.Report:
    return prepare_without_warning(sources, out, runner="inline", **options)


def shown(dataset: Path) -> dict[str, tuple[list[int], dict[str, Any]]]:
    """Of each video the numbers in its frames, and its columns."""
    return {
        video.id: ([read_number(frame) for frame in video], dict(video.attributes)) for video in shortgop.open(dataset)
    }


def complaint(url: str, importing: Importing = PLAIN) -> str:
    with pytest.raises(UsageError) as caught:
        find_sources([url], importing=importing)
    return str(caught.value)


def sources_of(url: str) -> dict[str, Source]:
    return {source.id: source for source in find_sources([url])}


def prepared_from_both(
    root: Path, url: str, out: Path, *, num_videos: int
) -> dict[str, tuple[list[int], dict[str, Any]]]:
    """Prepare a folder into `on_disk` and its copy in a store into `in_store`. Returns what is shown, which is the
    same in both."""
    prepare(root, out / "on_disk")
    report = prepare(url, out / "in_store")
    assert (report.videos_added, report.failures) == (num_videos, ())
    in_store = shown(out / "in_store")
    assert in_store == shown(out / "on_disk")
    return in_store


@pytest.mark.first_case_short
@pytest.mark.parametrize("write", [write_lerobot, write_lerobot_2])
def test_a_lerobot_dataset_in_a_store_is_the_one_on_the_disk(
    write: Callable[..., Path], s3_url: str, tmp_path: Path
) -> None:
    root = write(tmp_path / "robot", [37, 51, 1, 40])
    url = put_folder(root, f"{s3_url}/robot")
    in_store = prepared_from_both(root, url, tmp_path, num_videos=8)
    assert in_store[f"{CAMERAS[1]}/episode_000001"][0] == list(range(10_037, 10_088))
    assert prepare(f"{url}/", tmp_path / "in_store").already_there == 8
    read = [shortgop.LeRobotClips(tmp_path / name, robot) for name, robot in (("on_disk", root), ("in_store", url))]
    assert read[0].rows.keys() == read[1].rows.keys()
    assert read[0].rows["action"].tolist() == read[1].rows["action"].tolist()
    assert read[0][50]["task"] == read[1][50]["task"]


def test_the_job_says_what_it_takes_a_url_for(s3_url: str, tmp_path: Path) -> None:
    put_folder(write_lerobot(tmp_path / "robot", [3, 4]), s3_url)
    said: list[str] = []
    found = find_sources([s3_url], importing=Importing(tell=said.append))
    assert said == [f"{s3_url}: a LeRobot dataset of 2 episodes and 2 cameras"]
    assert {source.path for source in found} == {f"{s3_url}/videos/{name}/chunk-000/file-000.mp4" for name in CAMERAS}
    assert all(source.in_store and source.in_store.stored for source in found), "no request for each episode"


def test_episodes_in_a_store_have_ids_below_the_id_root(s3_url: str, tmp_path: Path) -> None:
    url = put_folder(write_lerobot(tmp_path / "robot", [3]), f"{s3_url}/all/robot")
    found = find_sources([url], [s3_url])
    assert [source.id for source in found] == [f"all/robot/{camera}/episode_000000" for camera in CAMERAS]


def test_what_is_wrong_with_a_lerobot_dataset_in_a_store_names_urls(s3_url: str, tmp_path: Path) -> None:
    root = write_lerobot(tmp_path / "robot", [3, 4, 5, 6])
    url = put_folder(root, f"{s3_url}/robot")
    remove(f"{url}/videos/{CAMERAS[0]}/chunk-000/file-001.mp4")
    report = prepare(url, tmp_path / "out")
    assert report.videos_added == 7
    (failure,) = report.failures
    assert failure.id == f"{CAMERAS[0]}/episode_000003"
    assert failure.reason.startswith(f"{url}/videos/{CAMERAS[0]}/chunk-000/file-001.mp4 does not exist")
    episodes = "meta/episodes/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(root / episodes).drop_columns(["length"]), root / episodes)
    put(f"{url}/{episodes}", root / episodes)
    assert complaint(url).startswith(f"'{url}/{episodes}' has no column 'length'")
    put(f"{url}/{episodes}", b"no table")
    assert complaint(url).startswith(f"cannot read '{url}/{episodes}'")
    remove(f"{url}/{episodes}")
    assert complaint(url) == f"the LeRobot dataset '{url}' has no episodes"


@pytest.mark.first_case_short
@pytest.mark.parametrize("write", [write_lerobot, write_lerobot_2])
def test_pictures_in_the_rows_of_a_lerobot_dataset_in_a_store(
    write: Callable[..., Path], s3_url: str, tmp_path: Path
) -> None:
    root = with_pictures(write(tmp_path / "robot", [7, 12, 1], fps=10))
    url = put_folder(root, f"{s3_url}/robot")
    in_store = prepared_from_both(root, url, tmp_path, num_videos=6)
    assert in_store[f"{CAMERAS[1]}/episode_000001"][0] == list(range(10_007, 10_019))
    assert prepare(url, tmp_path / "in_store").already_there == 6
    with pytest.raises(SourceError, match="the source is pictures in a Parquet file; only videos are shown here"):
        source_frames(shortgop.open(tmp_path / "in_store")[0].source_path, [0])


@pytest.mark.long
def test_of_the_rows_of_other_episodes_little_is_fetched(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes share a file, of which each would bring all of the others."""
    root = with_pictures(write_lerobot(tmp_path / "robot", [5] * 8))
    (file,) = (root / "data").rglob("*.parquet")
    table, noise = pq.read_table(file), np.random.default_rng(0)
    # Behind each camera's pictures lies a column that is not read.
    table = table.append_column("more", pa.array([noise.bytes(60_000) for _ in range(40)]))
    pq.write_table(table, file, row_group_size=5, compression="none")
    whole = file.stat().st_size
    assert whole > 2_400_000
    url = put_folder(root, f"{s3_url}/robot")
    fetched: list[int] = []
    put_bytes = LocalCopy._put

    def count(copy: LocalCopy, where: tuple[int, int], data: bytes) -> None:
        fetched.append(len(data))
        put_bytes(copy, where, data)

    monkeypatch.setattr(LocalCopy, "_put", count)
    report = prepare(url, tmp_path / "out")
    assert (report.videos_added, report.failures) == (16, ())
    # Each of the 16 fetches the end, 256 KiB, and blocks of 64 KiB around its columns.
    assert sum(fetched) < 16 * 0.3 * whole
    monkeypatch.setattr(robot_rows, "_LARGE_BYTES", 1)
    fetched.clear()
    clips = shortgop.LeRobotClips(tmp_path / "out", url)
    assert [int(item["index"]) for item in clips] == list(range(40))
    assert 0 < sum(fetched) < whole / 2


def test_what_is_wrong_with_pictures_in_rows_in_a_store_names_the_url(s3_url: str, tmp_path: Path) -> None:
    root = with_pictures(write_lerobot_2(tmp_path / "robot", [3, 4, 5, 6]), cameras=[CAMERAS[1]])
    url = put_folder(root, f"{s3_url}/robot")
    rows = [f"{url}/data/chunk-000/episode_{index:06d}.parquet" for index in range(4)]
    table = pq.read_table(root / "data/chunk-000/episode_000001.parquet")
    pq.write_table(table.slice(0, 3), tmp_path / "short.parquet")
    remove(rows[0])
    put(rows[1], tmp_path / "short.parquet")
    put(rows[2], b"no table")
    report = prepare(url, tmp_path / "out")
    reasons = {failure.id: failure.reason for failure in report.failures}
    assert report.videos_added == 5
    assert sorted(reasons) == [f"{CAMERAS[1]}/episode_{index:06d}" for index in range(3)]
    said = list(reasons.values())
    assert said[0].startswith(f"{rows[0]} does not exist")
    assert f"episode 1 of '{url}' has 4 frames, and 3 rows in {rows[1]}; copy the dataset again" in said[1]
    assert f"cannot read the pictures in '{CAMERAS[1]}' of {rows[2]}: " in said[2]


def test_older_versions_and_folders_around_are_ordinary_folders_in_a_store(s3_url: str, tmp_path: Path) -> None:
    put_folder(write_lerobot(tmp_path / "old", [3], codebase_version="v1.6"), f"{s3_url}/old")
    put_folder(write_lerobot(tmp_path / "new", [3]), f"{s3_url}/all/new")
    for url in (f"{s3_url}/old", f"{s3_url}/all"):
        assert {source.part for source in find_sources([url])} == {None}
    put(f"{s3_url}/old/meta/info.json", b"[1]")
    with pytest.raises(UsageError, match=r"old/meta/info\.json' does not say which version .*; copy the file again"):
        sources_of(f"{s3_url}/old")


def make(path: Path, first_number: int, count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make_video(path, pts=range(count), timebase=Fraction(1, 10), first_number=first_number, b_frames=0)


def test_a_kinetics_list_in_a_store_finds_the_files_below_it(s3_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "kinetics"
    make(folder / "videos/aaaaaaaaaaa.mp4", 0, 200)
    make(folder / "train/clapping/-bbbbbbbbbb_000012_000022.mp4", 1000, 100)
    rows = ["clapping,-bbbbbbbbbb,12,22,train,0", "dancing,aaaaaaaaaaa,3,13,train,1", "dancing,gone,0,10,train,0"]
    (folder / "train.csv").write_text("\n".join([KINETICS, *rows]) + "\n")
    url = put_folder(folder, f"{s3_url}/kinetics")
    prepare(folder / "train.csv", tmp_path / "on_disk")
    report = prepare(f"{url}/train.csv", tmp_path / "in_store")
    in_store = shown(tmp_path / "in_store")
    assert in_store == shown(tmp_path / "on_disk")
    assert in_store["aaaaaaaaaaa_000003_000013"][0] == list(range(30, 130))
    (failure,) = report.failures
    assert failure.reason.startswith(f"{url}/gone_000000_000010.mp4 does not exist")
    said: list[str] = []
    find_sources([f"{url}/train.csv"], importing=Importing(tell=said.append))
    assert said == [f"{url}/train.csv: a Kinetics list of 3 videos"]
    put(f"{url}/wrong.csv", f"{KINETICS}\nx,a,2,1,train,0\n".encode())
    assert complaint(f"{url}/wrong.csv").startswith(f"line 2 of '{url}/wrong.csv' has no `youtube_id`")


def test_of_two_files_with_a_name_a_list_in_a_store_takes_the_one_that_it_takes_on_a_disk(
    s3_url: str, tmp_path: Path
) -> None:
    for name in ("a.webm", "a.mp4", "x/a.mkv", "x/a.mp4", "x/y/b.mp4", "b.mkv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"content")
    (tmp_path / "list.csv").write_text(f"{KINETICS}\nl,a,0,1,train,0\nl,b,0,1,train,0\n")
    put_folder(tmp_path, s3_url)
    on_disk = [source.path.removeprefix(str(tmp_path)) for source in find_sources([str(tmp_path / "list.csv")])]
    assert on_disk == [source.path.removeprefix(s3_url) for source in find_sources([f"{s3_url}/list.csv"])]


def test_a_kinetics_list_on_a_web_server_names_another_way(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(f"{KINETICS}\nl,a,0,1,train,0\n")
    with web_server(tmp_path, "") as server:
        assert "in a column `path`, and --cuts time_start,time_end" in complaint(f"{server.root}/train.csv")


def test_pictures_in_a_store_are_refused(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/in/a.mp4", b"content")
    put(f"{s3_url}/in/frames/1.jpg", b"content")
    put(f"{s3_url}/list.txt", b"in/frames/1.jpg\n")
    for name in ("in", "in/", "list.txt"):
        said = complaint(f"{s3_url}/{name}", PICTURES)
        assert f"{s3_url}/{name.rstrip('/')} is in a store; copy it to a disk" in said
        assert "leave --image-fps out" in said
    assert list(sources_of(f"{s3_url}/in")) == ["a.mp4"]
    (tmp_path / "here.txt").write_text(f"{s3_url}/in/frames/1.jpg\n")
    assert "names the picture s3://" in complaint(str(tmp_path / "here.txt"), PICTURES)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["x/1.jpg", "x/2.jpg"], "holds pictures and no videos, and pictures are read from disks; .* with --image-fps"),
        (["x/0.tar", "notes.txt"], "holds tars and no videos, and tars are read from disks; copy it to one"),
        (["notes.txt"], r"holds no videos by their names, such as \.mp4: the only file there is 'notes\.txt'; give"),
    ],
)
def test_a_folder_in_a_store_without_videos_says_what_it_holds(s3_url: str, names: list[str], words: str) -> None:
    for name in names:
        put(f"{s3_url}/in/{name}", b"content")
    with pytest.raises(UsageError, match=words):
        find_sources([f"{s3_url}/in"])
