"""What is printed for people: names as they are, but for what would command the terminal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from datasets import make_dataset
from shortgop.cli import app
from shortgop.cli.printing import PlainConsole, video_table
from shortgop.manifests.operations.summary import VideoSummary
from shortgop.wording import counted, plain
from synthetic import SyntheticVideo

SHORTGOP = (sys.executable, "-m", "shortgop")


@pytest.mark.parametrize("text", ["a.mp4", "a b [red].mp4", "é 日本 🎬.mp4", "a\\b.mp4", ""])
def test_what_shows_as_itself_is_printed_as_it_is(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\x7f\x9b\u202e\u2028", r"\x7f\x9b\u202e\u2028"),
        ("\udce9", r"\udce9"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_file_names_cannot_command_the_terminal(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """On a terminal these would clear the screen, write a line of their own, and turn the text around."""
    folder, dataset = tmp_path / "videos", tmp_path / "dataset"
    folder.mkdir()
    name = "\x1b[2J\x1b]0;title\x07a\nnot in the dataset: fake\r\u202egood\x9b31m"
    (folder / f"{name}.mp4").write_bytes(constant_video.path.read_bytes())
    (folder / f"{name} bad.mp4").write_text("no video")
    shown = plain(name)
    for command, status, *arguments in (
        ("prep", 3, folder, "--out", dataset, "--runner", "inline"),
        ("info", 0, dataset),
        ("read", 1, dataset, f"{name}?", "--frames", "0", "--out", tmp_path / "x.png"),
        ("export", 0, dataset, f"{name}.mp4", tmp_path / f"{name}.mp4"),
        ("verify", 3, dataset),
    ):
        if command == "verify":
            shard = next((dataset / "shards").iterdir())
            shard.write_bytes(bytes(shard.stat().st_size))
        done = CliRunner().invoke(app, [str(command), *map(str, arguments)])
        text = done.stdout + done.stderr
        assert done.exit_code == status, text
        assert shown in text.replace("\\\\", "\\"), command
        assert not [one for one in text if not one.isprintable() and one != "\n"], command
        assert not [line for line in text.splitlines() if line.startswith("not in the dataset: fake")], command
    as_json = CliRunner().invoke(app, ["info", str(dataset), "--json"])
    assert json.loads(as_json.stdout)["videos"][0]["id"] == f"{name}.mp4"


def test_file_names_that_look_like_codes_of_emoji_are_printed_as_they_are(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    """Otherwise what is printed could not be given to another command."""
    folder, dataset = tmp_path / "videos", tmp_path / "dataset"
    folder.mkdir()
    (folder / ":dog:.mp4").write_bytes(constant_video.path.read_bytes())
    (folder / ":cat:.mp4").write_text("no video")
    done = CliRunner().invoke(app, ["prep", str(folder), "--out", str(dataset), "--runner", "inline"])
    assert "not in the dataset: :cat:.mp4: " in done.stderr
    assert "not in the dataset: :cat:.mp4: " in CliRunner().invoke(app, ["info", str(dataset)]).stdout
    dropped = CliRunner().invoke(app, ["drop", str(dataset), "*"])
    assert ":cat:.mp4" in dropped.stdout
    assert ":dog:.mp4" in dropped.stdout


def test_of_many_failures_some_of_each_kind_are_printed(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """Of a list whose paths are wrong all fail, and the one that fails for another reason would not be seen."""
    (tmp_path / "a.mp4").write_bytes(constant_video.path.read_bytes())
    (tmp_path / "z.mp4").write_text("no video")
    lines = ["a.mp4", *(f"folder {number}/{number}.mp4" for number in range(300)), "z.mp4"]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    dataset = tmp_path / "dataset"
    done = CliRunner().invoke(app, ["prep", str(tmp_path / "list.txt"), "--out", str(dataset), "--runner", "inline"])
    told = [line for line in done.stderr.splitlines() if line.startswith(("not in the dataset", "and "))]
    assert len(told) == 7
    assert all("does not exist" in line for line in told[:5])
    assert told[5].startswith("not in the dataset: z.mp4: ")
    remedy = f"`shortgop info {dataset}` lists those that are not in the dataset, --json lists all"
    assert told[6] == f"and 295 more: {remedy}"
    assert "301 could not be prepared" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_letters_are_printed_and_those_that_the_encoding_lacks_written_out(
    encoding: str, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    """As in a locale that is not UTF-8: the list of the videos ended in a traceback."""
    source = tmp_path / "caf\xe9 \u65e5.mp4"
    shutil.copy(constant_video.path, source)
    make_dataset([source], tmp_path / "dataset")
    command = [*SHORTGOP, "info", str(tmp_path / "dataset")]
    done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": encoding})
    shown = source.name.encode(encoding, "backslashreplace")
    assert (done.returncode, done.stderr, shown in done.stdout) == (0, b"", True)


def test_many_lines_are_printed_as_one_is() -> None:
    lines = ["a[x].mp4 :dog:", "\x1b[2Ja\nb", "", "x" * 300, *(f"{number}.mp4" for number in range(1200))]
    console = PlainConsole(width=80)
    with console.capture() as one_by_one:
        for line in lines:
            console.print_line(line)
    with console.capture() as at_once:
        console.print_lines(lines)
    assert at_once.get() == one_by_one.get()
    assert at_once.get().splitlines()[:2] == ["a[x].mp4 :dog:", "\\x1b[2Ja\\nb"]


def summary(name: str, *given_up: str, dropped: int | None = 0, salvaged: int = 0) -> VideoSummary:
    return VideoSummary(
        name, name, f"/videos/{name}", 300, "30000/1001", 10.01, 1920, 1080, "h264", {}, {}, given_up, dropped, 0,
        salvaged, lost=False,
    )  # fmt: skip


def printed(videos: list[VideoSummary], width: int = 120) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(video_table(videos))
    return captured.get().splitlines()


@pytest.mark.parametrize(("count", "text"), [(0, "0 videos"), (1, "1 video"), (2, "2 videos")])
def test_a_noun_agrees_with_its_count(count: int, text: str) -> None:
    assert counted(count, "video") == text


def test_what_differs_from_the_source_stands_beside_each_video() -> None:
    lines = printed([
        summary("a.mp4"),
        summary("b.mp4", "deinterlaced", "audio dropped", dropped=3, salvaged=2),
        summary("c.mp4", dropped=None),
    ], width=160)  # fmt: skip
    row = {name: next(line for line in lines if name in line) for name in ("a.mp4", "b.mp4", "c.mp4")}
    assert "deinterlaced, audio dropped, frames: 3 dropped, 2 in place of lost ones" in row["b.mp4"]
    assert "frames:" not in row["a.mp4"] + row["c.mp4"]


def test_twenty_videos_take_a_line_each() -> None:
    lines = printed([summary(f"folder/video-{number:04}.mp4", "audio dropped", dropped=12) for number in range(20)])
    assert (
        len([line for line in lines if "folder/video-" in line and "audio dropped, frames: 12 dropped" in line]) == 20
    )
    assert len(lines) == 20 + 4


def test_a_column_without_anything_in_it_is_left_out() -> None:
    assert "differs" not in "".join(printed([summary("a.mp4"), summary("b.mp4")]))


@pytest.mark.long
def test_a_job_goes_on_where_its_messages_cannot_be_written(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """A log on a full disk, and one whose reader has ended."""
    for name in ("full", "unread"):
        prep = [*SHORTGOP, "prep", str(constant_video.path), "--out", str(tmp_path / name), "--runner", "inline"]
        with unwritable(name) as log:
            done = subprocess.run(prep, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
        assert (done.returncode, done.stdout.startswith("1 video, 100 frames, ")) == (0, True), name


def test_the_exit_status_is_that_of_the_work_where_nobody_reads_the_results(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    """`shortgop prep ... | head -1` had the status of a job that could not go on."""
    (tmp_path / "empty.mp4").touch()
    dataset = str(tmp_path / "dataset")
    prep = ["prep", str(constant_video.path), str(tmp_path / "empty.mp4"), "--runner", "inline", "--out", dataset]
    for command, status in ((prep, 3), (["info", dataset], 0), ([*prep, "--json"], 3)):
        with unwritable("unread") as unread:
            done = subprocess.run([*SHORTGOP, *command], stdout=unread, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, "Error" in done.stderr) == (status, False), (command, done.stderr)


def test_a_repair_goes_on_where_nobody_reads_its_first_line(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """It says at once that it made zarr.json again, and ended there."""
    dataset = tmp_path / "dataset"
    make_dataset([constant_video.path], dataset)
    (dataset / "zarr.json").unlink()
    shard = next((dataset / "shards").iterdir())
    shard.write_bytes(bytes(shard.stat().st_size))
    repair = ["verify", str(dataset), str(constant_video.path), "--repair", "--runner", "inline"]
    with unwritable("unread") as unread:
        done = subprocess.run([*SHORTGOP, *repair], stdout=unread, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert CliRunner().invoke(app, ["verify", str(dataset)]).exit_code == 0


def test_results_that_cannot_be_written_are_an_error(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    prep = ["prep", str(constant_video.path), "--out", str(tmp_path), "--runner", "inline"]
    assert CliRunner().invoke(app, prep).exit_code == 0
    for options in ([], ["--json"]):
        with unwritable("full") as full:
            command = [*SHORTGOP, "info", str(tmp_path), *options]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        told = "error: cannot write what is printed: No space left on device; the command itself has done its work\n"
        assert (done.returncode, done.stderr) == (1, told)


@pytest.mark.first_case_short
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_job_goes_on_where_its_streams_are_closed(
    closed: str, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    """The first files that it opens would get their numbers, and what is printed."""
    (tmp_path / "empty.mp4").touch()
    prep = [*SHORTGOP, "prep", str(constant_video.path), str(tmp_path / "empty.mp4"), "--runner", "inline"]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *prep, "--out", str(tmp_path / "dataset")]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert ("1 video, 100 frames" in done.stdout, "empty.mp4 is an empty file" in done.stderr) == (
        closed == "2>&-",
        closed == ">&-",
    )


def test_a_second_ctrl_c_ends_what_python_does_at_its_end_without_a_traceback() -> None:
    """Ray takes seconds there."""
    program = (
        "import atexit, os, signal, sys; from shortgop.__main__ import main; sys.argv = ['shortgop', '--version'];"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT); main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


@contextmanager
def unwritable(kind: str) -> Iterator[int]:
    """A file on a full disk, or the writing end of a pipe that nobody reads."""
    if kind == "full":
        file = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, file = os.pipe()
        os.close(reader)
    try:
        yield file
    finally:
        os.close(file)
