"""The commands of docs/labels.md, imports.md and stores.md run as they stand there, on videos of a test."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
import webdataset
from PIL import Image
from typer.testing import CliRunner

import shortgop
from documents import blocks
from lerobot_files import write_lerobot
from s3_server import BUCKET
from shortgop.cli import app
from synthetic import burn, constant_rate_pts, make_video, read_number

DOCS = Path(__file__).parents[2] / "docs"
RATE = Fraction(5)


def commands(page: str) -> list[str]:
    return re.findall(r"^    shortgop (.*)$", (DOCS / page).read_text(), re.MULTILINE)


def example(page: str, header: str) -> str:
    """The indented block that begins with this line."""
    found = re.search(rf"^    {re.escape(header)}\n(?:    .*\n)+", (DOCS / page).read_text(), re.MULTILINE)
    assert found is not None, header
    return re.sub(r"^    ", "", found[0], flags=re.MULTILINE)


def run(command: str) -> str:
    inline = ["--runner", "inline"] if command.startswith("prep ") else []
    done = CliRunner().invoke(app, [*shlex.split(command), *inline])
    assert done.exit_code == 0, (command, done.output)
    return done.output


def film(path: Path, first_number: int, seconds: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pts = constant_rate_pts(RATE, int(seconds * RATE))
    make_video(path, pts=pts, timebase=1 / RATE, first_number=first_number)
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attributes() -> dict[str, dict[str, object]]:
    return {video.id: dict(video.attributes) for video in shortgop.open("DATASET")}


def test_labels(folder: Path) -> None:
    for number, name in enumerate(("kitchen/001.mp4", "kitchen/002.mp4")):
        film(folder / name, 100 * number)
    (folder / "labels.csv").write_text(example("labels.md", "path,label,split"))
    (folder / "corrected.csv").write_text("path,label\nkitchen/001.mp4,7\n")
    (folder / "ids.txt").write_text("kitchen/001.mp4\n")
    prep, elsewhere, typed, again, annotate, remove, drop, drop_fitting, drop_dry, gc, snapshots, back, back_one = (
        commands("labels.md")
    )

    run(prep)
    assert attributes()["kitchen/001.mp4"] == {"label": 3, "split": "train"}
    run(again)
    assert attributes()["kitchen/001.mp4"] == {"label": 7, "split": "train"}
    run(annotate)
    run(remove)
    assert attributes()["kitchen/002.mp4"] == {"split": "test"}
    assert run(snapshots).count("00000") >= 3
    assert "in snapshot 00000" in run(back_one)
    run(back)
    assert "kitchen/001.mp4, kitchen/002.mp4" in run(drop_fitting)
    run(drop_dry)
    assert len(shortgop.open("DATASET")) == 2
    run(drop)
    assert len(shortgop.open("DATASET")) == 0
    run(gc)
    assert list((folder / "DATASET" / "shards").iterdir()) == []

    (folder / "lists").mkdir()
    (folder / "lists/train.csv").write_text("path,label\n001.mp4,3\n")
    run(elsewhere.replace("videos", "kitchen").replace("DATASET", "ELSEWHERE"))
    assert shortgop.open("ELSEWHERE")["001.mp4"].attributes == {"label": 3}

    (folder / "labels.csv").write_text("path,code,score\nkitchen/001.mp4,0070,3\n")
    run(typed.replace("DATASET", "TYPED"))
    assert shortgop.open("TYPED")[0].attributes == {"code": "0070", "score": 3.0}


def cuts(folder: Path) -> None:
    (folder / "clips.csv").write_text(example("imports.md", "path,start,end,label"))
    film(folder / "kitchen/001.mp4", 0, seconds=13)
    film(folder / "kitchen/002.mp4", 1000, seconds=33)


def kinetics(folder: Path) -> None:
    film(folder / "kinetics/videos/abc.mp4", 500)
    (folder / "kinetics/train.csv").write_text("label,youtube_id,time_start,time_end,split\nwash,abc,1,3,train\n")


def lerobot(folder: Path) -> None:
    write_lerobot(folder / "my_robot_dataset", [12, 9])


def tars(folder: Path) -> None:
    data = film(folder / "made.mp4", 300).read_bytes()
    (folder / "shards").mkdir()
    with (folder / "shards/000.tar").open("wb") as stream, webdataset.TarWriter(stream) as writer:
        writer.write({"__key__": "clip7", "mp4": data, "cls": 4})


def captions(folder: Path) -> None:
    film(folder / "videos/walk.mp4", 800)
    run("prep videos --out DATASET")
    (folder / "videos/walk.txt").write_text("A walk.")


def captioned_pictures(folder: Path) -> None:
    captions(folder)
    shutil.rmtree(folder / "DATASET")
    Image.fromarray(burn(62, 96, 64)).save(folder / "videos/1.jpg", quality=95)
    (folder / "videos/1.txt").write_text("One picture.")
    (block,) = (block.text for block in blocks(DOCS / "imports.md") if block.language)
    exec(block, {"Path": Path, "json": json})


def pictures(folder: Path) -> None:
    (folder / "frames/walk").mkdir(parents=True)
    for number in range(20):
        Image.fromarray(burn(40 + number, 96, 64)).save(folder / f"frames/walk/{number}.png")


def images_among_videos(folder: Path) -> None:
    film(folder / "walk.mp4", 700)
    for number, size in ((60, (96, 64)), (61, (64, 64))):
        Image.fromarray(burn(number, *size)).save(folder / f"{number}.png")
    (folder / "both.jsonl").write_text("\n".join(f'{{"path": "{name}"}}' for name in ("60.png", "walk.mp4", "61.png")))


# Of each command what makes its sources, and the first number of each video.
IMPORTS: list[tuple[Callable[[Path], None], list[int]]] = [
    (cuts, [0, 23, 1156]),
    (kinetics, [505]),
    (lerobot, [0, 12, 10_000, 10_012]),
    (tars, [300]),
    (captions, [800]),
    (captioned_pictures, [62, 800]),
    (pictures, [40]),
    (images_among_videos, [60, 61, 700]),
]


@pytest.mark.parametrize(
    ("command", "make", "numbers"),
    [(command, *each) for command, each in zip(commands("imports.md"), IMPORTS, strict=True)],
    ids=[make.__name__ for make, _ in IMPORTS],
)
def test_imports(command: str, make: Callable[[Path], None], numbers: list[int], folder: Path) -> None:
    make(folder)
    run(command)
    videos = shortgop.open("DATASET")
    assert sorted(read_number(video[0]) for video in videos) == numbers
    if make in {captions, captioned_pictures}:
        texts = {"walk.mp4": "A walk.", "1.jpg": "One picture."}
        assert [{*video.attributes.values()} for video in videos] == [{texts[video.id]} for video in videos]


def test_stores(folder: Path, s3_url: str) -> None:
    film(folder / "VIDEOS/a.mp4", 30)
    prep, copy = (command.replace("s3://bucket", s3_url) for command in commands("stores.md"))
    assert s3_url.startswith(f"s3://{BUCKET}/")
    run(prep)
    run(copy.replace("/mnt/disk", str(folder)))
    (video,) = shortgop.open(folder / "dataset")
    assert read_number(video[0]) == 30
