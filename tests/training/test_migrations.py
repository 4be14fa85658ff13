"""docs/trainers.md, "Coming from other libraries": what code of users was, and what it becomes, are the same frames.

Of libraries that are not installed only the second side runs, against the numbers in the pictures: `make test` installs
PyAV and TorchCodec, `make bench` also decord and OpenCV.
"""

from __future__ import annotations

import re
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

import shortgop
from datasets import make_dataset
from documents import ROOT, blocks, section
from shortgop.prep.running.ffmpeg import find_ffmpeg
from synthetic import constant_rate_pts, decode_rgb, make_video, read_number

PAGE = ROOT / "docs" / "trainers.md"
TRAINING = ROOT / "docs" / "training.md"
RATE, COUNT = Fraction(30), 75


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("migrations")
    make_video(root / "a.mp4", pts=constant_rate_pts(RATE, COUNT), timebase=1 / RATE, first_number=500)
    ticks = np.random.default_rng(0).integers(1, 4, 60).cumsum().tolist()
    make_video(root / "b.mp4", pts=ticks, timebase=1 / RATE, first_number=900)
    assert make_dataset([root / "a.mp4", root / "b.mp4"], root / "dataset").failures == ()
    return root


def lines() -> list[tuple[str, str, str]]:
    """The table of the page: the library, and both sides of each line. Of several spans of a cell the first counts."""
    table = section(PAGE, "Coming from other libraries").partition("| library | before | here |\n")[2]
    library, found = "", []
    for row in table.splitlines()[1:]:
        if not row.startswith("|"):
            break
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        library = cells[0].strip("`") or library
        found.append((library, *(re.findall("`([^`]+)`", cell)[0] for cell in cells[1:])))
    return found


LINES = lines()


def value(code: str, names: dict[str, Any]) -> Any:
    first, _, last = code.rpartition("; ")
    exec(first, names)
    return eval(last, names)


def shown(found: Any) -> list[float]:
    """The numbers in pictures, or the numbers themselves."""
    if isinstance(found, tuple):
        return [float(each) for each in found]
    return [read_number(picture) for picture in ([found] if getattr(found, "ndim", 4) == 3 else found)]


def names_of(library: str, path: Path) -> dict[str, Any]:
    """What the first side of a line takes for granted. The test is skipped where the library is not installed."""
    modules = {
        "TorchCodec": "torchcodec.decoders",
        "OpenCV": "cv2",
        "PyAV": "av",
        "torchvision": "torchvision.io",
    }
    if library == "Hugging Face":
        pytest.skip("its module and one of the tests are both called datasets")
    module = pytest.importorskip(modules.get(library, library))
    names = {**vars(module), module.__name__: module, "path": str(path)}
    if library == "OpenCV":
        names["capture"] = module.VideoCapture(str(path))
    return names


def here(code: str, folder: Path) -> list[float]:
    return shown(value(code, {"video": shortgop.open(folder / "dataset")["a.mp4"]}))


@pytest.mark.parametrize(("library", "before", "after"), LINES, ids=[line[1] for line in LINES])
def test_both_sides_of_each_line_are_the_same_frames(library: str, before: str, after: str, folder: Path) -> None:
    found = here(after, folder)
    names = names_of(library, folder / "a.mp4")
    expected = shown(value(before, names))
    assert found == (expected[:-1] if library == "torchvision" else expected)


def test_the_sides_of_here_are_the_frames_that_were_asked_for(folder: Path) -> None:
    """Also where a library is not installed."""
    expected: dict[str, list[float]] = {
        "get_frames_at([30, 3])": [530, 503],
        "video[7]": [507],
        "video[:30]": list(range(500, 530)),
        "list(video)": list(range(500, 500 + COUNT)),
        "len(video)": [COUNT, float(RATE)],
        "get_frames_played_in_range(1, 2)": list(range(530, 560)),
    }
    for _, _, after in LINES:
        (numbers,) = (numbers for part, numbers in expected.items() if part in after)
        assert here(after, folder) == numbers


def test_numbers_of_frames_are_those_of_a_file_of_a_variable_rate(folder: Path) -> None:
    video = shortgop.open(folder / "dataset")["b.mp4"]
    names = numbered(video)
    assert [read_number(frame) - 900 for frame in video] == names["number_in_file"].tolist()
    (rule,) = re.findall(r"`(np\.searchsorted\(number_in_file, .*?)`", PAGE.read_text())
    frames = eval(rule, names)
    assert shown(video.get_frames_at(frames).data) == [930, 903]
    assert shown(video.get_frames_at([frame - 1 for frame in frames]).data) == [929, 902]


def test_numbers_of_frames_of_a_file_that_was_cut_or_prepared_at_another_rate(folder: Path, tmp_path: Path) -> None:
    """A file that was cut without encoding has packets before its first frame that are not shown."""
    cut = tmp_path / "cut.mp4"
    command = [find_ffmpeg().path, "-v", "error", "-ss", "0.75", "-i", str(folder / "a.mp4"), "-c", "copy", str(cut)]
    subprocess.run(command, check=True)
    expected = [read_number(frame) for frame in decode_rgb(cut)]
    assert 0 < len(expected) < COUNT
    for fps in (None, 8):
        shortgop.prepare(cut, tmp_path / str(fps), fps=fps, runner="inline")
        (video,) = shortgop.open(tmp_path / str(fps))
        assert (fps is None) == (video.changes.dropped == 0)
        item = shortgop.ClipDataset(tmp_path / str(fps), shortgop.AllClips(len(video)))[0]
        names = numbered(video) | {"labels": np.array(expected), "item": item}
        (rule,) = re.findall(r"`(labels\[number_in_file.*?)`", TRAINING.read_text())
        assert eval(rule, names).tolist() == [read_number(frame) for frame in item["frames"]]


def numbered(video: Any) -> dict[str, Any]:
    """What the block says of a video."""
    (block,) = (block.text for block in blocks(TRAINING) if "number_in_file" in block.text)
    names: dict[str, Any] = {"video": video, "np": np, "av": av}
    exec(block, names)
    return names


def test_frames_of_pytorchvideos_clips(folder: Path) -> None:
    """Its UniformTemporalSubsample takes these of the 30 frames that a clip of one second has."""
    (rule,) = re.findall(r"UniformTemporalSubsample\(16\)`[^|]*\| `(Offsets[^`]+)`", PAGE.read_text())
    offsets = eval(rule, {"np": np, "Offsets": shortgop.Offsets, "d": 1, "fps": 30})
    policy = shortgop.AllClips(offsets, step_seconds=1)
    table = shortgop.ClipDataset(folder / "dataset", policy, videos=["a.mp4"]).clip_table()
    taken = torch.linspace(0, 29, 16).clamp(0, 29).long()
    assert table.frames.tolist() == [taken.tolist(), (30 + taken).tolist()]


def test_datasets_have_the_weights_of_v_jepa_2(folder: Path) -> None:
    """With 100 videos of one dataset and 300 of the other in its place, each draws as its weight says."""
    found = re.search(r"\| `datasets_weights=w` \| `(.*?)` over `(.*?)`, with `sizes = (.*?)`", PAGE.read_text())
    assert found is not None
    parts = [shortgop.ClipDataset(folder / "dataset", shortgop.RandomClips(1, clips_per_video=n)) for n in (50, 150)]
    both = shortgop.MixedClips(parts)
    assert found[2] == "both = MixedClips([...])"
    names: dict[str, Any] = {"Weighted": shortgop.Weighted, "np": np, "w": [0.335, 0.665], "both": both}
    names["sizes"] = eval(found[3], names)
    sampler, drawn = shortgop.ElasticSampler(both, 8, order=eval(found[1], names)), []
    for epoch in range(50):
        sampler.set_epoch(epoch)
        drawn += both.clip_index.located(list(sampler))
    assert sum(part == 0 for part, _ in drawn) / len(drawn) == pytest.approx(0.335, abs=0.01)
