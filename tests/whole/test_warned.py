"""Warnings name the line of the user's that they are about, whatever stands between it and this package."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from torch.utils.data import DataLoader

import shortgop
from shortgop.storage.locate import storage_at
from shortgop.warned import warn
from training_videos import make_videos


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


def data_loader(dataset: shortgop.ClipDataset) -> Any:
    return DataLoader(dataset, batch_size=2)


def clip_loader(dataset: shortgop.ClipDataset) -> Any:
    return shortgop.ClipLoader(dataset, range(6), batch_size=2, workers=0)


@pytest.mark.parametrize("loader_of", [data_loader, clip_loader])
def test_what_a_loader_warns_of_is_at_the_line_of_the_loop(
    folder: Path, loader_of: Callable[[shortgop.ClipDataset], Any]
) -> None:
    loader = loader_of(shortgop.ClipDataset(folder, shortgop.RandomClips(2, clips_per_video=2)))
    for _ in range(2):
        list(loader)
    with pytest.warns(shortgop.DatasetWarning, match="random clips are read for the third time") as caught:
        list(loader)
    assert here(caught[0]) == "list(loader)"


def test_what_a_with_statement_warns_of_is_at_its_line(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    storage = storage_at(s3_url)
    with pytest.warns(shortgop.DatasetWarning, match="stays in the bucket") as caught, storage.lock():
        pass
    assert here(caught[0]).endswith("storage.lock():")


def test_a_thread_without_a_line_of_the_users_names_where_it_began() -> None:
    def warn_in_a_thread() -> None:
        thread = Thread(target=warn, args=("words",))
        thread.start()
        thread.join()

    with pytest.warns(shortgop.DatasetWarning, match="words") as caught:
        warn_in_a_thread()
    assert Path(caught[0].filename).name == "threading.py"


def test_a_command_says_the_words_alone(folder: Path, s3_url: str) -> None:
    (video, *_) = sorted(folder.parent.glob("*.mp4"))
    command = ["shortgop", "prep", str(video), "--out", s3_url, "--runner", "inline"]
    code = f"import sys; sys.modules['boto3'] = None; sys.argv = {command}; from shortgop.__main__ import main; main()"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    (line,) = [line for line in said.splitlines() if "stays in the bucket" in line]
    assert line.startswith("warning: what killed jobs have uploaded")
    assert "warn(" not in said


def here(warning: warnings.WarningMessage) -> str:
    """The line of this file that a warning names."""
    assert warning.filename == __file__
    return Path(__file__).read_text().splitlines()[warning.lineno - 1].strip()
