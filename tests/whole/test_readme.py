"""What README.md shows runs as it stands there: the commands, and then the snippets, on videos of a test."""

from __future__ import annotations

import re
import shlex
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import shortgop
from shortgop.cli import app
from synthetic import constant_rate_pts, make_video, read_number

README = (Path(__file__).parents[2] / "README.md").read_text()
NAMES = ("kitchen/000", "kitchen/001", "kitchen/002", "street/003")
FRAMES = 150


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Videos, the list of them, and the dataset that the README's commands make, in one folder."""
    root = tmp_path_factory.mktemp("readme")
    lines = ["path,label,split"]
    for number, name in enumerate(NAMES):
        file = root / f"{name}.mp4"
        file.parent.mkdir(exist_ok=True)
        pts = constant_rate_pts(Fraction(30), FRAMES)
        make_video(file, pts=pts, timebase=Fraction(1, 30), size=(128, 96), first_number=1000 * number)
        lines.append(f"{name}.mp4,{number},{'train' if number % 2 else 'test'}")
    (root / "labels.csv").write_text("\n".join(lines))
    (root / "corrected.csv").write_text("id,label\nstreet/003.mp4,7\n")
    return root


@pytest.fixture
def names(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the first snippet, after the commands on labels."""
    monkeypatch.chdir(corpus)
    if not (corpus / "DATASET").exists():
        found = re.findall(r"^    shortgop (prep labels.*|annotate.*)$", README, re.MULTILINE)
        assert len(found) == 2
        for command in found:
            argv = [*shlex.split(command), *(["--runner", "inline"] if command.startswith("prep") else [])]
            done = CliRunner().invoke(app, argv)
            assert done.exit_code == 0, done.output
    made: dict[str, Any] = {}
    # There are fewer videos in a test.
    text = snippets()[0].replace("global_batch_size=32", "global_batch_size=4")
    exec(compile(text, "README.md", "exec"), made)
    return made


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_first_snippet(names: dict[str, Any]) -> None:
    assert [read_number(frame) for frame in names["clip"].data] == [1120, 1124, 1128, 1132]
    assert torch.equal(names["clip"].pts_seconds, torch.tensor([120, 124, 128, 132], dtype=torch.float64) / 30)
    assert names["batch"].data.shape == (2, 16, 3, 224, 224)
    assert list(names["train"].ids) == ["kitchen/001.mp4", "street/003.mp4"]
    assert names["dataset"].columns["label"].tolist() == [0, 1, 2, 7]
    assert len(names["loader"]) >= 1
    batch = next(iter(names["loader"]))
    assert batch["frames"].shape[1:] == (16, 3, 224, 224)
    assert set(batch["label"].tolist()) <= {0, 1, 2, 7}
    names["loader"].close()


def test_a_dataset_of_ones_own(names: dict[str, Any]) -> None:
    made: dict[str, Any] = {}
    exec(compile(snippets()[1], "README.md", "exec"), made)
    clips = made["Clips"]("DATASET")
    assert len(clips) == len(NAMES)
    frames, label = clips[3]
    assert frames.shape == (16, 3, 224, 224)
    assert label == 7
    batch, labels = next(iter(torch.utils.data.DataLoader(clips, batch_size=4)))
    assert batch.shape == (4, 16, 3, 224, 224)
    assert labels.tolist() == [0, 1, 2, 7]
    # Ten lines, but for what Python asks for around them.
    body = [line for line in snippets()[1].splitlines() if line.strip() and "import" not in line]
    assert len(body) <= 11


def test_the_commands_exist() -> None:
    listed = re.findall(r"^\| `shortgop (\w+)", README, re.MULTILINE)
    registered = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert set(listed) == registered
    assert shortgop.__version__
