"""Names that are not UTF-8, on Ray, which takes UTF-8 alone: of sources, in the command of a job, and of folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import shortgop
from ray_heads import BIN
from shortgop.errors import OutputError
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.progress.tally import Progress
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo

pytestmark = pytest.mark.long

ODD = os.fsdecode(b"caf\xe9")


def prep(sources: Path, dataset: Path, current: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [str(BIN / "shortgop"), "prep", str(sources), "--out", str(dataset), "--workers", "1"]
    return subprocess.run(command, cwd=current, env=os.environ | environment, capture_output=True, check=False)


def test_sources_and_folders_may_have_names_that_are_no_text(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    (tmp_path / ODD / "t").mkdir(parents=True)
    for name in (f"{ODD}.mp4", "two\nlines.mp4"):
        (tmp_path / ODD / name).symlink_to(constant_video.path)
    done = prep(tmp_path / ODD, tmp_path / ODD / "out", tmp_path, TMPDIR=str(tmp_path / ODD / "t"))
    assert done.returncode == 0, done.stderr
    assert shortgop.open(tmp_path / ODD / "out").ids == [r"caf\udce9.mp4", "two\nlines.mp4"]


def test_an_error_that_names_such_a_folder_ends_the_job_and_not_its_workers(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    """It was said that a worker had died four times, most often for lack of memory."""
    dataset = tmp_path / ODD

    def hinder(progress: Progress) -> None:
        # Workers write into a folder of this name, and the driver does not.
        if progress.note.startswith("encoding"):
            (dataset / "shards").touch()

    sources, out, where = [str(constant_video.path)], DiskStorage(dataset), Where(workers=1)
    with pytest.raises(OutputError, match=r"cannot write .*/shards"):
        prepare(sources, out, Profile(), where=where, on_update=hinder)


def test_a_current_folder_that_ray_does_not_take_is_named(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    (tmp_path / ODD).mkdir()
    done = prep(constant_video.path, tmp_path / "out", tmp_path / ODD)
    assert done.returncode == 1
    assert b"Ray takes no folder whose name is not UTF-8" in done.stderr
    assert b"run the command in another one" in done.stderr
