"""What docs/cluster.md says can be copied. The commands of all blocks are parsed by the programs that they call, as far
as these are here. Blocks marked `run` are run as they stand, with Ray and all, on a network and among processes of
their own; those marked `check` need a cloud or a cluster."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from cluster_files import ROOT, lint
from documents import PROGRAMS, parsed
from ray_heads import user_environment
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "cluster.md").read_text()
_FRAMES = 20
# Its own network, processes and mounts: Ray's usual ports are free there, `ray stop` ends nobody else's Ray, and /mnt
# is a folder of the test. What is left in it at the end is killed.
_APART = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_WITHIN = 'ip link set lo up && mount --bind "$1" /mnt && exec bash -euo pipefail "$2"'


def blocks(mark: str) -> list[str]:
    return re.findall(rf"^```bash {mark}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_block_is_run_or_checked() -> None:
    assert len(re.findall(r"^```\w", PAGE, re.MULTILINE)) == len(blocks("run")) + len(blocks("check"))
    assert len(blocks("run")) >= 6
    assert len(blocks("check")) >= 6


@pytest.mark.parametrize("block", blocks("check"))
def test_a_shell_takes_each_block(block: str) -> None:
    assert lint("shellcheck", "--shell=bash", "-", text=block) == ""


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a block, and those that `ray exec` and `ray job submit` bring to the cluster."""
    for line in text.splitlines():
        substituted = re.fullmatch(r"\w+=\$\((.*)\)", line)
        whole = substituted[1] if substituted else line
        for part in [whole] if "'" in whole else re.split(r";|\||&$|> /dev/null", whole):
            words = shlex.split(part)
            while words and re.match(r"\w+=", words[0]):
                words = words[1:]
            if words and words[0] != "export":
                yield words
            if words[:2] == ["ray", "exec"]:
                yield from commands(words[-1])
            if "--" in words:
                yield words[words.index("--") + 1 :]


COMMANDS = [words for mark in ("run", "check") for block in blocks(mark) for words in commands(block)]


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] in PROGRAMS], ids=shlex.join)
def test_ray_and_shortgop_take_each_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    parsed(PROGRAMS[words[0]], words[1:])


def test_a_command_with_an_unknown_option_is_found() -> None:
    for words in (["prep", "videos", "--out", "dataset", "--no-such-option"], ["prepare", "videos"]):
        with pytest.raises(Exception, match="No such option|No such command"):
            parsed(PROGRAMS["shortgop"], words)


def test_the_files_that_commands_name_are_there() -> None:
    named = {word for words in COMMANDS for word in words if re.match(r"jobs/\S+\.\w+$", word)}
    assert {Path(each).parts[1] for each in named} == {"kubernetes", "ray_up", "slurm"}
    assert all((ROOT / each).is_file() for each in named)
    others = {words[0] for words in COMMANDS} - PROGRAMS.keys()
    assert others <= {"date", "docker", "jq", "kubectl", "sbatch", "squeue", "source", "scp", "prometheus"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder with a home and with sources, whose path is short enough for Ray's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="page-", dir="/tmp"))
    (folder / "home").mkdir()
    (folder / "mnt" / "videos").mkdir(parents=True)
    for number in range(2):
        make_video(
            folder / "mnt" / "videos" / f"{number}.mp4", pts=constant_rate_pts(Fraction(30), _FRAMES),
            timebase=Fraction(1, 30), first_number=1000 * number,
        )  # fmt: skip
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_the_commands_for_one_machine_and_for_machines_of_ones_own(folder: Path) -> None:
    if subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a network of its own takes rights that are missing here")
    script = folder / "script"
    # All of it is on one machine here. Each job has a dataset of its own, so that none finds the work done.
    text = "\n".join(blocks("run")).replace("HEAD", "127.0.0.1").replace("--address auto", "--address auto --workers 1")
    first, joined, submitted = re.split(r"(?=ray get-auth|export RAY_API_SERVER)", text)
    script.write_text(
        first.replace("--size 256", "--size 256 --workers 1")
        + joined.replace("/mnt/dataset", "/mnt/joined")
        + submitted.replace("/mnt/dataset", "/mnt/submitted")
    )
    environment = user_environment(folder / "home", RAY_TMPDIR=str(folder))
    done = subprocess.run(
        [*_APART, "bash", "-c", _WITHIN, "bash", str(folder / "mnt"), str(script)],
        env=environment, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 sources done" in done.stdout
    assert "Job 'prep-1' succeeded" in done.stdout
    assert "Stopped all" in done.stdout
    for name in ("dataset", "joined", "submitted"):
        videos = shortgop.open(folder / "mnt" / name)
        assert [read_number(video.get_frame_at(_FRAMES - 1).data) for video in videos] == [19, 1019]
