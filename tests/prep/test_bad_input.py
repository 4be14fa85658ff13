"""Whatever is given to the job: a clear error that names it, and nothing lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import broken
import shortgop
from datasets import current_manifest, make_dataset, rows_of
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.profile import Profile, Size
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, constant_rate_pts, make_video


@pytest.fixture
def folder(constant_video: SyntheticVideo, tmp_path: Path) -> Path:
    """Return a folder with one good video, to which a test adds something bad."""
    folder = tmp_path / "videos"
    folder.mkdir()
    (folder / "good.mp4").write_bytes(constant_video.path.read_bytes())
    return folder


def assert_only_good_is_in(dataset: Path, report: Report) -> None:
    manifest = current_manifest(dataset)
    assert manifest.ids == ["good.mp4"]
    assert manifest.video(0).num_frames == 100
    # What is on screen is in the dataset as well.
    assert [(failure.id, failure.reason) for failure in report.failures] == [
        (manifest.failures.id.text(row), manifest.failures.reason.text(row)) for row in range(len(manifest.failures))
    ]
    assert not (dataset / ".tmp").exists()


BROKEN: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "empty.mp4": (lambda good, bad: broken.empty_file(bad), "is an empty file"),
    "text.mp4": (lambda good, bad: broken.text_file(bad), "does not open as a video"),
    "cut.mp4": (broken.cut_in_the_middle, "its index is cut off"),
    "sound.mp4": (lambda good, bad: broken.audio_only(bad), "has no video stream"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_source_that_is_no_video_is_reported_and_the_others_are_prepared(folder: Path, name: str) -> None:
    make, reason = BROKEN[name]
    make(folder / "good.mp4", folder / name)
    report = make_dataset([folder], folder.parent / "dataset")
    assert [failure.id for failure in report.failures] == [name]
    assert reason in report.failures[0].reason
    assert str(folder / name) in report.failures[0].reason
    assert_only_good_is_in(folder.parent / "dataset", report)


def test_a_video_whose_index_calls_for_what_is_cut_off_is_reported(folder: Path) -> None:
    whole = make_video(
        folder.parent / "x.mp4", pts=constant_rate_pts(Fraction(30), 90), timebase=Fraction(1, 30), gop=15,
        container_options={"movflags": "faststart"},
    )  # fmt: skip
    broken.cut_in_the_middle(whole.path, folder / "x.mp4")
    report = make_dataset([folder], folder.parent / "dataset")
    assert [failure.id for failure in report.failures] == ["x.mp4"]
    assert "its index lists bytes up to" in report.failures[0].reason
    assert "--salvage" in report.failures[0].reason
    assert_only_good_is_in(folder.parent / "dataset", report)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_a_video_with_noise_in_it_is_reported(folder: Path, suffix: str) -> None:
    whole = make_video(
        folder.parent / f"noise{suffix}", pts=constant_rate_pts(Fraction(30), 90), timebase=Fraction(1, 30),
        size=(192, 128), options={"qp": "15"},
    )  # fmt: skip
    broken.corrupted_payload(whole.path, folder / f"noise{suffix}", n_bytes=3000)
    report = make_dataset([folder], folder.parent / "dataset")
    assert [failure.id for failure in report.failures] == [f"noise{suffix}"]
    assert_only_good_is_in(folder.parent / "dataset", report)


def test_a_file_that_a_list_names_and_that_is_missing_is_reported(folder: Path) -> None:
    (folder / "list.txt").write_text("good.mp4\nnowhere.mp4\n")
    report = make_dataset([folder / "list.txt"], folder.parent / "dataset")
    assert [failure.id for failure in report.failures] == ["nowhere.mp4"]
    assert "does not exist" in report.failures[0].reason
    assert_only_good_is_in(folder.parent / "dataset", report)


def test_a_failure_goes_away_when_its_source_is_mended(folder: Path, constant_video: SyntheticVideo) -> None:
    dataset = folder.parent / "dataset"
    (folder / "late.mp4").write_text("still being copied")
    assert len(make_dataset([folder], dataset).failures) == 1
    (folder / "late.mp4").write_bytes(constant_video.path.read_bytes())
    report = make_dataset([folder], dataset)
    assert (report.already_there, report.videos_added, report.failures) == (1, 1, ())
    assert len(current_manifest(dataset).failures) == 0


def test_failing_again_changes_nothing(folder: Path) -> None:
    dataset = folder.parent / "dataset"
    (folder / "bad.mp4").write_text("no video")
    first = make_dataset([folder], dataset)
    rows = rows_of(dataset)
    files = sorted(dataset.rglob("*"))
    assert make_dataset([folder], dataset).failures == first.failures
    assert rows_of(dataset) == rows
    assert sorted(dataset.rglob("*")) == files


def test_a_source_that_changed_is_reported_and_its_frames_stay(folder: Path) -> None:
    dataset = folder.parent / "dataset"
    make_dataset([folder], dataset)
    rows = rows_of(dataset)
    make_video(folder / "good.mp4", pts=constant_rate_pts(Fraction(30), 30), timebase=Fraction(1, 30))
    report = make_dataset([folder], dataset)
    assert "has changed since it was prepared" in report.failures[0].reason
    assert rows_of(dataset) == rows


def test_a_missing_path_a_folder_without_videos_and_an_empty_glob_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source in ("missing.mp4", "empty", "*.mp4"):
        with pytest.raises(shortgop.UsageError, match=str(tmp_path / source).replace("*", r"\*")):
            make_dataset([tmp_path / source], tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


def test_an_output_path_that_is_a_file_or_holds_something_else_is_refused(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(shortgop.OutputError, match="is a file"):
        make_dataset([folder], file)
    with pytest.raises(shortgop.OutputError, match="a part of that path is a file"):
        make_dataset([folder], file / "below")
    with pytest.raises(shortgop.OutputError, match="holds files but no dataset"):
        make_dataset([folder], folder)
    assert file.read_text() == "precious"
    assert [entry.name for entry in folder.iterdir()] == ["good.mp4"]


def test_other_options_than_the_datasets_are_refused(folder: Path) -> None:
    dataset = folder.parent / "dataset"
    make_dataset([folder], dataset)
    with pytest.raises(shortgop.UsageError, match="size source there and 64 here"):
        make_dataset([folder], dataset, size=Size(short_side=64))


def test_options_that_prepared_nothing_do_not_bind_the_dataset(folder: Path) -> None:
    dataset = folder.parent / "dataset"
    with pytest.raises(shortgop.ToolError, match="runs with --preset nosuch"):
        prepare([str(folder)], DiskStorage(dataset), Profile(preset="nosuch"), where=Where("inline"))
    (folder / "good.mp4").rename(folder.parent / "good.mp4")
    (folder / "bad.mp4").write_text("no video")
    make_dataset([folder], dataset, crf=30)
    (folder.parent / "good.mp4").rename(folder / "good.mp4")
    assert_only_good_is_in(dataset, make_dataset([folder], dataset, crf=20))


def test_two_jobs_at_a_time_on_one_dataset_are_refused(folder: Path) -> None:
    dataset = folder.parent / "dataset"
    make_dataset([folder], dataset)
    with DiskStorage(dataset).lock(), pytest.raises(shortgop.DatasetBusyError, match="another job"):
        make_dataset([folder], dataset)


def test_an_encoder_that_does_not_run_here_is_refused_before_anything_is_encoded(folder: Path) -> None:
    trial = subprocess.run(["nvidia-smi"], capture_output=True, check=False) if _on_path("nvidia-smi") else None
    if trial and trial.returncode == 0:
        pytest.skip("there is a GPU here, on which the encoder may run")
    with pytest.raises(shortgop.ToolError, match=r"h264_nvenc does not run here.*shortgop doctor"):
        make_dataset([folder], folder.parent / "dataset", encoder="h264_nvenc")


def _on_path(program: str) -> bool:
    return any(os.access(Path(entry) / program, os.X_OK) for entry in os.environ["PATH"].split(os.pathsep))


@pytest.mark.long
def test_a_full_disk_ends_the_job_and_keeps_what_was_finished(tmp_path: Path, small_disk: Path) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    for number in range(8):
        make_video(
            folder / f"{number}.mp4", pts=constant_rate_pts(Fraction(30), 90), timebase=Fraction(1, 30),
            size=(320, 256), first_number=1000 * number, options={"qp": "1"},
        )  # fmt: skip
    dataset = small_disk / "dataset"
    with pytest.raises(shortgop.OutputError, match=r"No space left on device; free some space and run the same"):
        make_dataset([folder], dataset, crf=1, preset="ultrafast")
    finished = current_manifest(dataset).ids
    assert 0 < len(finished) < 8
    assert not (dataset / ".tmp").exists()

    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    report = make_dataset([folder], dataset, crf=1, preset="ultrafast")
    assert report.already_there == len(finished)

    make_dataset([folder], tmp_path / "undisturbed", crf=1, preset="ultrafast")
    assert rows_of(dataset) == rows_of(tmp_path / "undisturbed")
