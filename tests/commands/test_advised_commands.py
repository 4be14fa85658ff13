"""Commands that messages advise can be given to a shell as they stand, also where the dataset's path has a space."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from labelled_videos import run
from shortgop.manifests.dataset_files.layout import snapshots
from shortgop.storage.disk import DiskStorage


@pytest.fixture
def dataset(three_videos: Path, tmp_path: Path) -> Path:
    """Copy a dataset into a folder such as people have."""
    return Path(shutil.copytree(three_videos, tmp_path / "my data/it's here"))


def advised(said: str, command: str) -> list[str]:
    """The arguments of the command that a message advises."""
    (found,) = set(re.findall(rf"`(shortgop {command} .*?)`", " ".join(said.split())))
    return shlex.split(found)[1:]


def test_that_removes_the_bytes_of_what_was_dropped(dataset: Path) -> None:
    done = run("drop", dataset, "film.mkv")
    assert run(*advised(done.stdout, "gc")).exit_code == 0
    assert len(snapshots(DiskStorage(dataset))) == 1


def test_that_gives_a_column_one_type(dataset: Path) -> None:
    labels = dataset.parent / "labels.tsv"
    labels.write_text("id\tshot size\nfilm.mkv\t1\n")
    assert run("annotate", dataset, labels).exit_code == 0
    labels.write_text("id\tshot size\nntsc.mp4\tx\n")
    said = " ".join(run("annotate", dataset, labels).stderr.split())
    (option,) = re.findall("--types '.*?'", said)
    assert run("annotate", dataset, labels, *shlex.split(option.replace("...", "text"))).exit_code == 0


@pytest.mark.parametrize("lost", ["zarr.json", "manifest"])
def test_that_makes_again_what_was_lost(dataset: Path, lost: str) -> None:
    for file in [dataset / lost] if lost == "zarr.json" else (dataset / lost).iterdir():
        file.unlink()
    failed = run("info", dataset)
    assert failed.exit_code == 1
    assert run(*advised(failed.stderr, "verify")).exit_code == 0
    assert run("info", dataset).exit_code == 0
