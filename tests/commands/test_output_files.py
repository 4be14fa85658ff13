"""Files that users name: what is never written over, what only when asked, and what the suffix decides."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

import shortgop
from datasets import make_dataset
from shortgop.cli import app
from shortgop.comparison.chart import Bar, Group, write_chart
from shortgop.comparison.estimates import Estimate
from shortgop.errors import UsageError
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.export import export
from shortgop.manifests.operations.output_files import check_output, new_file
from shortgop.readers.picture_files import FORMATS, write_picture
from shortgop.readers.sheet import check_sheet, write_sheet
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, burn, frame_to_rgb, read_number

OLD = b"what was there before"


@pytest.fixture(scope="module")
def made(constant_video: SyntheticVideo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source and its dataset, side by side in a folder."""
    folder = tmp_path_factory.mktemp("written")
    shutil.copy(constant_video.path, folder / "source.mp4")
    make_dataset([folder / "source.mp4"], folder / "dataset")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "dataset", tmp_path / "dataset")
    # The dataset names this one.
    return tmp_path


def write_export(dataset: Path, out: Path, **options: Any) -> object:
    return export(DiskStorage(dataset), open_current(DiskStorage(dataset))[1], 0, out, stop_frame=16, **options)


def write_a_sheet(dataset: Path, out: Path, **options: Any) -> None:
    write_sheet(torch.from_numpy(np.stack([burn(number, 96, 64) for number in (3, 4)])), out, **options)


def write_a_chart(dataset: Path, out: Path, **options: Any) -> None:
    bar = Bar("shortgop", Estimate(1.0, 1.0, 1.0), "1 ms", ours=True)
    write_chart([Group("clips", (bar,))], out, title="Time", note="here", **options)


WRITERS: dict[str, tuple[Callable[..., object], str]] = {
    "an exported video": (write_export, "out.mp4"),
    "a sheet": (write_a_sheet, "out.png"),
    "a chart": (write_a_chart, "out.png"),
}
each_writer = pytest.mark.parametrize(("write", "name"), WRITERS.values(), ids=WRITERS)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@each_writer
def test_an_existing_file_is_replaced_only_when_asked(write: Callable[..., object], name: str, folder: Path) -> None:
    out = folder / name
    out.write_bytes(OLD)
    with pytest.raises(shortgop.UsageError, match="exists; write somewhere else, or replace it with --overwrite"):
        write(folder / "dataset", out)
    assert out.read_bytes() == OLD
    write(folder / "dataset", out, overwrite=True)
    assert out.read_bytes() != OLD
    assert sorted(file.name for file in folder.iterdir()) == ["dataset", name]


@each_writer
def test_nothing_within_any_dataset_is_written(
    write: Callable[..., object], name: str, folder: Path, made: Path
) -> None:
    suffix = Path(name).suffix
    (folder / "link").symlink_to(made / "dataset" / "shards")
    (folder / f"alias{suffix}").symlink_to(folder / "dataset" / f"new{suffix}")
    shard = next((folder / "dataset" / "shards").iterdir())
    named_like_a_picture = shard.with_suffix(suffix)
    named_like_a_picture.symlink_to(folder / f"outside{suffix}")
    before = sorted(folder.rglob("*"))
    for out in (
        folder / "dataset" / name,
        folder / "dataset" / "shards" / name,
        folder / "dataset" / "manifest" / "000001" / name,
        made / "dataset" / name,
        folder / "link" / name,
        folder / "dataset" / "shards" / ".." / ".." / "dataset" / name,
        folder / f"alias{suffix}",
        named_like_a_picture,
    ):
        for overwrite in (False, True):
            with pytest.raises(shortgop.UsageError, match="lies within the dataset"):
                write(folder / "dataset", out, overwrite=overwrite)
    assert sorted(folder.rglob("*")) == before
    assert not list((made / "dataset").rglob(name))


def test_a_dataset_whose_root_is_damaged_is_one_still(folder: Path) -> None:
    root = folder / "dataset" / "zarr.json"
    root.write_text(root.read_text()[:-40])
    with pytest.raises(shortgop.UsageError, match="lies within the dataset"):
        write_a_sheet(folder / "dataset", folder / "dataset" / "out.png")


def test_another_zarr_group_is_no_dataset(folder: Path) -> None:
    (folder / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group"}))
    write_a_sheet(folder / "dataset", folder / "out.png")


def test_the_source_is_never_written_over_under_whatever_name(
    constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "source.mp4"
    shutil.copy(constant_video.path, source)
    dataset = tmp_path / "dataset"
    make_dataset([Path("source.mp4")], dataset)
    (tmp_path / "soft.mp4").symlink_to(source)
    (tmp_path / "hard.mp4").hardlink_to(source)
    (tmp_path / "sub").mkdir()
    content = source.read_bytes()
    for out in (source, "source.mp4", "soft.mp4", tmp_path / "hard.mp4", "sub/../source.mp4"):
        with pytest.raises(shortgop.UsageError, match="is the source of a video of the dataset and is never replaced"):
            write_export(dataset, Path(out), overwrite=True)
        result = run("export", dataset, "0", out, "--overwrite")
        assert (result.exit_code, "is the source of a video" in result.stderr) == (2, True)
    assert source.read_bytes() == content
    assert (tmp_path / "soft.mp4").is_symlink()
    # Pictures are named after pictures, but the rule is one.
    picture = tmp_path / "source.png"
    picture.hardlink_to(source)
    for write in (write_a_sheet, write_a_chart):
        with pytest.raises(shortgop.UsageError, match="is the source of a video"):
            write(dataset, picture, overwrite=True, sources=["source.mp4"])
    for command in (["read", dataset, "0", "--frames", "0", "--out"], ["bench", dataset, "--peers", "pyav", "--chart"]):
        result = run(*command, picture, "--overwrite")
        assert (result.exit_code, "is the source of a video" in result.stderr) == (2, True), result.output
    assert source.read_bytes() == content


def test_a_source_that_could_not_be_prepared_is_one_as_well(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_bytes(OLD)
    make_dataset([constant_video.path, tmp_path / "broken.mp4"], tmp_path / "dataset")
    with pytest.raises(shortgop.UsageError, match="is the source of a video"):
        write_export(tmp_path / "dataset", tmp_path / "broken.mp4", overwrite=True)
    assert (tmp_path / "broken.mp4").read_bytes() == OLD


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_suffix_decides_the_format_of_a_picture(suffix: str, tmp_path: Path) -> None:
    out = tmp_path / f"sheet{suffix.upper() if suffix == '.bmp' else suffix}"
    write_a_sheet(tmp_path, out)
    magic = {
        ".png": b"\x89PNG", ".jpg": b"\xff\xd8\xff", ".jpeg": b"\xff\xd8\xff", ".webp": b"RIFF", ".bmp": b"BM",
        ".tif": b"II*\0", ".tiff": b"II*\0",
    }  # fmt: skip
    assert out.read_bytes().startswith(magic[suffix])
    with av.open(str(out)) as container:
        picture = frame_to_rgb(next(container.decode(video=0)))
    assert picture.shape == (64, 2 * 98 - 2, 3)
    assert (read_number(picture[:, :96]), read_number(picture[:, 98:])) == (3, 4)
    if not suffix.startswith(".jp"):
        assert np.array_equal(picture[:, :96], burn(3, 96, 64))


@pytest.mark.parametrize("name", ["out", "out.mkv", "out.mov", "out.mp4.part", "out.gif", ".png", "out.png.txt"])
def test_an_unknown_suffix_is_an_error(name: str, folder: Path) -> None:
    for write, _ in WRITERS.values():
        with pytest.raises(shortgop.UsageError, match=r"give a name that ends in one of \."):
            write(folder / "dataset", folder / name, overwrite=True)
    for command in (
        ["export", folder / "dataset", "0", folder / name],
        ["read", folder / "dataset", "0", "--frames", "0", "--out", folder / name],
        ["bench", folder / "dataset", "--chart", folder / name],
    ):
        assert run(*command).exit_code == 2
    assert [file.name for file in folder.iterdir()] == ["dataset"]


def test_an_m4v_is_an_mp4(folder: Path) -> None:
    write_export(folder / "dataset", folder / "out.M4V")
    with av.open(str(folder / "out.M4V"), format="mp4") as container:
        numbers = [read_number(frame_to_rgb(frame)) for frame in container.decode(video=0)]
    assert numbers == list(range(16))


def test_commands_refuse_what_exists_and_what_is_within_a_dataset(folder: Path) -> None:
    dataset = folder / "dataset"
    for command, name in (
        (["export", dataset, "0"], "out.mp4"),
        (["read", dataset, "0", "--frames", "0,5", "--out"], "out.jpg"),
    ):
        out = folder / name
        assert run(*command, out).exit_code == 0
        again = run(*command, out)
        assert (again.exit_code, "--overwrite" in again.stderr) == (2, True)
        assert run(*command, out, "--overwrite").exit_code == 0
        inside = run(*command, dataset / name, "--overwrite")
        assert (inside.exit_code, "lies within the dataset" in inside.stderr) == (2, True)
    # Before anything is measured.
    for out in (folder / "out.jpg", dataset / "chart.png", folder / "chart.mp4"):
        result = run("bench", dataset, "--chart", out)
        assert (result.exit_code, "looking at the sources" in result.stderr) == (2, False), result.output


def test_a_file_that_comes_to_exist_meanwhile_is_not_lost(tmp_path: Path) -> None:
    out = tmp_path / "out.png"

    def write_while_somebody_else_does() -> None:
        with new_file(out, overwrite=False) as temporary:
            temporary.write_bytes(b"new")
            out.write_bytes(OLD)

    with pytest.raises(shortgop.UsageError, match="was created meanwhile"):
        write_while_somebody_else_does()
    assert out.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [out]


def test_a_new_file_appears_whole_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out.png"
    with new_file(out, overwrite=False) as temporary:
        temporary.write_bytes(b"new")
        assert not out.exists()
    assert out.read_bytes() == b"new"
    assert out.stat().st_nlink == 1

    def fail_midway() -> None:
        with new_file(out, overwrite=True) as temporary:
            temporary.write_bytes(b"half")
            raise ValueError("meant")

    with pytest.raises(ValueError, match="meant"):
        fail_midway()
    assert out.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [out]


def test_no_room_for_links_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems have no hard links."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with new_file(tmp_path / "out.png", overwrite=False) as temporary:
        temporary.write_bytes(b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["out.png"]


def test_places_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for out, complaint in ((tmp_path / "folder.png", "is a folder"), (Path("/dev/null"), "is not an ordinary file")):
        with pytest.raises(shortgop.OutputError, match=complaint):
            check_output(out, suffixes=[".png"], overwrite=True)


def test_a_sheet_too_large_for_its_format_is_refused_before_its_frames_are_read(tmp_path: Path) -> None:
    check_sheet(300, 64, 96, tmp_path / "sheet.webp")
    for suffix, count in ((".webp", 40_000), (".png", 120_000)):
        with pytest.raises(shortgop.UsageError, match=f"{count} frames of 96x64 make .* on a side: ask for fewer"):
            check_sheet(count, 64, 96, tmp_path / f"sheet{suffix}")
    for columns in (0, -1, True, 1.5):
        with pytest.raises(shortgop.UsageError, match="columns is"):
            check_sheet(4, 64, 96, tmp_path / "sheet.png", columns=columns)  # type: ignore[arg-type]


def test_pictures_of_odd_sizes_come_back_as_they_were(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (7, 13, 3), dtype=np.uint8)
    for suffix in (".png", ".webp", ".bmp", ".tif"):
        write_picture(picture, tmp_path / f"odd{suffix}")
        with av.open(str(tmp_path / f"odd{suffix}")) as container:
            assert np.array_equal(frame_to_rgb(next(container.decode(video=0))), picture)


def test_a_source_whose_name_is_not_utf8_is_one_as_well(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    source = tmp_path / "sources" / os.fsdecode(b"caf\xe9.mp4")
    source.parent.mkdir()
    shutil.copy(constant_video.path, source)
    make_dataset([source], tmp_path / "dataset")
    with pytest.raises(UsageError, match="is the source of a video"):
        write_export(tmp_path / "dataset", source, overwrite=True)


def test_a_file_that_is_called_like_a_source_in_another_folder_is_none(
    constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exported videos are called like their sources, and sources are given by paths from the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(constant_video.path, "source.mp4")
    assert run("prep", "source.mp4", "--out", "dataset", "--runner", "inline").exit_code == 0
    (tmp_path / "exported").mkdir()
    for options in ([], ["--overwrite"]):
        done = run("export", "dataset", "source.mp4", "exported/source.mp4", *options)
        assert done.exit_code == 0, done.output
    assert run("export", "dataset", "source.mp4", "source.mp4", "--overwrite").exit_code == 2


def test_a_source_that_was_given_in_another_folder_is_one_as_well(
    constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In datasets of version 1, which kept it only as it was given."""
    (tmp_path / "videos").mkdir()
    shutil.copy(constant_video.path, tmp_path / "videos" / "a.mp4")
    out = tmp_path / "videos" / "a.mp4"
    monkeypatch.chdir(tmp_path / "videos")
    with pytest.raises(UsageError, match="is the source of a video"):
        check_output(out, suffixes=[".mp4"], overwrite=True, sources=["videos/a.mp4"])
    check_output(out, suffixes=[".mp4"], overwrite=True, sources=["others/a.mp4"])


@pytest.fixture
def made_here(constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset in the current folder, and beside it its source, which was given by a relative path."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    shutil.copy(constant_video.path, "source.mp4")
    assert run("prep", "source.mp4", "--out", "dataset", "--runner", "inline").exit_code == 0
    return tmp_path / "here"


def test_a_source_that_was_moved_with_its_folder_is_one_still(made_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path that the dataset has leads nowhere then."""
    monkeypatch.chdir(made_here.parent)
    moved = made_here.rename("moved") / "source.mp4"
    footage = moved.read_bytes()
    done = run("export", "moved/dataset", "source.mp4", moved, "--overwrite")
    assert (done.exit_code, "is the source of a video" in done.output) == (2, True), done.output
    done = run("export", "moved/dataset", "--all", "--out", moved.parent, "--overwrite")
    assert (done.exit_code, "is the source of a video" in done.output) == (3, True), done.output
    assert moved.read_bytes() == footage


def test_a_file_is_replaced_from_a_current_folder_that_was_removed(
    made_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, removed = made_here / "out.mp4", made_here / "removed"
    out.write_bytes(OLD)
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    write_export(made_here / "dataset", out, overwrite=True)
    assert out.read_bytes() != OLD
    with pytest.raises(UsageError, match="is the source of a video"):
        write_export(made_here / "dataset", made_here / "source.mp4", overwrite=True)
