"""prep reads what ffmpeg reports as fast as it comes, and still sees at once that it hangs."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shortgop.prep.running.ffmpeg import find_ffmpeg, running
from shortgop.prep.running.stalls import StalledError, stall_limit
from synthetic import SyntheticVideo

PLACE = "<stats>"
NUM_FRAMES = 20_000
LINE = "frame {ni} " + 500 * "."
GREY = ("-v", "error", "-f", "rawvideo", "-pixel_format", "gray", "-i", "/dev/zero")
# 10 MB of lines, and no output.
ARGUMENTS = [
    *("-video_size", "16x16", *GREY, "-frames:v", str(NUM_FRAMES)),
    *("-stats_enc_pre", PLACE, "-stats_enc_pre_fmt", LINE, "-f", "null", "-"),
]


@pytest.mark.long
def test_an_ffmpeg_that_reports_many_frames_before_it_has_output_is_not_held_up() -> None:
    ffmpeg = find_ffmpeg().path
    start = time.monotonic()
    subprocess.run([ffmpeg, *("/dev/null" if each == PLACE else each for each in ARGUMENTS)], check=True)
    alone_seconds = time.monotonic() - start

    start = time.monotonic()
    with running(ffmpeg, ARGUMENTS, PLACE) as run:
        assert run.stdout.read() == b""
    assert run.returncode == 0
    assert run.stats.decode().splitlines() == [LINE.format(ni=number) for number in range(NUM_FRAMES)]
    # A full pipe holds 64 KiB. Read five times a second, these lines would take 30 s.
    assert time.monotonic() - start < 3 * alone_seconds + 10


def test_an_ffmpeg_with_much_output_is_not_held_up() -> None:
    ffmpeg = find_ffmpeg().path
    num_bytes = 100 * 1000 * 1000
    arguments = ["-video_size", "1000x1000", *GREY, "-frames:v", "100", "-f", "rawvideo", "pipe:1"]
    start = time.monotonic()
    assert len(subprocess.run([ffmpeg, *arguments], check=True, capture_output=True).stdout) == num_bytes
    alone_seconds = time.monotonic() - start

    start = time.monotonic()
    with running(ffmpeg, arguments, PLACE) as run:
        read_bytes = 0
        # As a GOP is read: its header, then the rest.
        while run.stdout.read(8):
            read_bytes += 8 + len(run.stdout.read(999_992))
    assert (run.returncode, read_bytes) == (0, num_bytes)
    # The pipe holds 128 KiB at most. Read five times a second, this output would take 150 s.
    assert time.monotonic() - start < 3 * alone_seconds + 30


def test_the_end_of_the_output_is_not_waited_for() -> None:
    ffmpeg = find_ffmpeg().path
    arguments = ["-video_size", "16x16", *GREY, "-frames:v", "1", "-f", "rawvideo", "pipe:1"]

    def seconds_alone() -> float:
        start = time.monotonic()
        subprocess.run([ffmpeg, *arguments], check=True, capture_output=True)
        return time.monotonic() - start

    def seconds_with_prep() -> float:
        start = time.monotonic()
        with running(ffmpeg, arguments, PLACE) as run:
            assert len(run.stdout.read()) == 256
        return time.monotonic() - start

    # Output is gathered for 0.2 s. As the machine may be busy, it is tried more often than once.
    alone_seconds = min(seconds_alone() for _ in range(5))
    assert any(seconds_with_prep() - alone_seconds < 0.1 for _ in range(50))


BURSTS = """
import os, sys, time
waited = 0.0
for _ in range(6):
    time.sleep(0.35)
    start = time.monotonic()
    left = memoryview(bytes(400_000))
    while left:
        left = left[os.write(1, left):]
    waited += time.monotonic() - start
sys.stderr.write(f"{waited:.3f}")
"""


@pytest.mark.long
def test_output_that_comes_in_bursts_is_hardly_waited_for() -> None:
    """The shortest of three times, as the machine may be busy."""

    def seconds_waited() -> float:
        with running(sys.executable, ["-c", BURSTS], PLACE) as run:
            assert len(run.stdout.read()) == 6 * 400_000
        return float(run.stderr)

    # The first burst may wait for 0.2 s. If each did that did not come just before a look, that would be 0.8 s.
    assert min(seconds_waited() for _ in range(3)) < 0.5


def test_a_program_that_is_silent_is_ended_soon_after_a_short_limit() -> None:
    """The time in which prep waits for output counts whole. The shortest of three times, as the machine may be busy."""

    def seconds_until_ended() -> float:
        start = time.monotonic()
        with (
            pytest.raises(StalledError, match="made no progress for 0"),
            stall_limit(0.1),
            running("/bin/sleep", ["1000"], PLACE) as run,
        ):
            run.stdout.read()
        return time.monotonic() - start

    assert min(seconds_until_ended() for _ in range(3)) < 1.5


@pytest.mark.parametrize(
    "title",
    [
        "cuvidDecodePicture(x) failed",
        "\\\n[h264 @ 0x55] cuvidDecodePicture(x) failed",
        "incoming frame - w: 1 h: 1 fmt: 0",
        # An expression that looks for such a message in all of it would take minutes. ffmpeg writes 255 characters of a
        # value and goes on behind the next control character.
        4000 * (31 * "cuvidAB(" + "\b"),
    ],
    ids=["loss", "loss on a line of its own", "change", "much like losses"],
)
def test_a_title_is_no_message_of_ffmpeg(title: str, tmp_path: Path) -> None:
    ffmpeg, named = find_ffmpeg().path, tmp_path / "named.mkv"
    (tmp_path / "tags").write_text(f";FFMETADATA1\ntitle={title}\n")
    picture = ("-video_size", "16x16", *GREY, "-f", "ffmetadata", "-i", str(tmp_path / "tags"), "-frames:v", "1")
    subprocess.run([ffmpeg, *picture, "-map", "0:v", "-map_metadata", "1", "-c:v", "ffv1", str(named)], check=True)
    start = time.monotonic()
    with running(ffmpeg, ["-v", "error", "-i", str(named), "-f", "rawvideo", "pipe:1"], PLACE) as run:
        assert len(run.stdout.read()) == 256
    assert (run.returncode, run.lost, run.changes) == (0, "", [])
    assert time.monotonic() - start < 30


LOGS = """
import os, time
with open(os.environ["FFREPORT"].partition("=")[2].partition(":level")[0], "w") as report:
    for _ in range(100):
        report.write(5000 * "x" + "\\n")
        report.flush()
        time.sleep(0.01)
"""


def test_a_log_that_grows_by_some_kilobytes_at_a_time_seldom_wakes_prep_up() -> None:
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    with running(sys.executable, ["-c", LOGS], PLACE) as run:
        assert run.stdout.read() == b""
    # Read each time that 4 KiB came, it would wake up more than 100 times.
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 60


SAYS = """
import os
with open(os.environ["FFREPORT"].partition("=")[2].partition(":level")[0], "w") as report:
    report.write("[h264 @ 0x55] " + 100_000 * "x" + "\\n")
    report.write("{device}cu->cuMemcpy2DAsync(&cpy, stream) failed -> CUDA_ERROR_UNKNOWN\\n")
    for seconds in (1, 2):
        change = "filter context - w: 2 h: 2 fmt: 0, incoming frame - w: 4 h: 4 fmt: 0"
        report.write("{filter}" + change + f" pts_time: {{seconds}}\\n")
"""


@pytest.mark.parametrize(
    "names",
    [{"device": "[AVHWDeviceContext @ 0x55] ", "filter": "[in @ 0x55] "}, {"device": "", "filter": ""}],
    ids=["with names", "where another thread is in mid-line"],
)
def test_what_ffmpeg_says_of_lost_and_changed_pictures_is_found(names: dict[str, str]) -> None:
    with running(sys.executable, ["-c", SAYS.format(**names)], PLACE) as run:
        assert run.stdout.read() == b""
    assert run.lost == "cuMemcpy2DAsync(&cpy, stream) failed -> CUDA_ERROR_UNKNOWN"
    assert run.changes == ["incoming frame - w: 4 h: 4 fmt: 0"]


def test_what_a_source_is_called_is_not_said_of_its_pictures(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """ffmpeg's log begins with the command line."""
    source = tmp_path / "No decoder surfaces left, incoming frame - w: 4 h: 4 fmt: 0.mp4"
    source.symlink_to(constant_video.path)
    argv = ["-hide_banner", "-nostdin", "-nostats", "-v", "error", "-i", str(source), "-c", "copy", "-f", "null", "-"]
    with running(find_ffmpeg().path, argv, PLACE) as run:
        assert run.stdout.read() == b""
    assert (run.returncode, run.lost, run.changes) == (0, "", [])
