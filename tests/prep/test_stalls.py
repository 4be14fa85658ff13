"""What hangs is ended, tried again and named; what is only slow is left to its work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from datasets import current_manifest
from shortgop.jobs.prepare import Where, prepare
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.tables import Manifest
from shortgop.prep.encode import prepare_video
from shortgop.prep.manifest_rows import Identity
from shortgop.prep.options import Options, SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import find_ffmpeg, running
from shortgop.prep.running.stalls import (
    Activity,
    StalledError,
    Watch,
    activity_of_group,
    given_up_when,
    in_time,
    stall_limit,
)
from shortgop.prep.shards import ShardWriter
from shortgop.storage.disk import DiskStorage
from started_processes import first_line
from synthetic import SyntheticVideo

pytestmark = pytest.mark.long

# A machine that is busy with other tests may give even a new process no time at all for a second.
LIMIT = Fraction(2)


def hanging_ffmpeg(folder: Path, hang: str, *, times: int) -> Path:
    """Write an ffmpeg that hangs in this way whenever it is to encode, so often, and works from then on."""
    script = folder / "ffmpeg"
    script.write_text(
        f"""#!/bin/sh
        case "$*" in *-copyts*) ;; *) exec "{find_ffmpeg().path}" "$@" ;; esac
        echo attempt >> {folder}/attempts
        [ $(wc -l < {folder}/attempts) -gt {times} ] && exec "{find_ffmpeg().path}" "$@"
        {hang.format(ffmpeg=find_ffmpeg().path)}
        """
    )
    script.chmod(0o755)
    return script


HANGS = {
    "before it does anything": "exec sleep 1000",
    "stopped, as a child of a script": '"{ffmpeg}" "$@" & kill -STOP $!; wait',
    "when all is written": 'trap "" PIPE; "{ffmpeg}" "$@"; exec >&- 2>&-; exec sleep 1000',
    "in a child that keeps the pipes": "sleep 1000 & exec sleep 1000",
}


def prepared(video: SyntheticVideo, folder: Path, ffmpeg: Path) -> Manifest:
    create(DiskStorage(folder / "dataset"), {})
    shards = ShardWriter(DiskStorage(folder / "dataset"), "unit", 10**9)
    identity = Identity("a", str(video.path), str(video.path), "{}", 0)
    options = Options(Profile(), SourcePolicy(max_stall_seconds=LIMIT))
    try:
        return prepare_video(str(video.path), identity, options, str(ffmpeg), shards)
    finally:
        shards.close()


def test_an_ffmpeg_that_hangs_once_is_ended_and_the_next_one_succeeds(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    def check(hang: str) -> None:
        folder = tmp_path / hang.partition(",")[0].replace(" ", "-")
        folder.mkdir()
        manifest = prepared(constant_video, folder, hanging_ffmpeg(folder, HANGS[hang], times=1))
        assert manifest.video(0).num_frames == 100, hang
        assert len((folder / "attempts").read_text().split()) in (2, 3), hang
        assert not left_of(folder), hang

    at_the_same_time(check, HANGS)


def at_the_same_time(check: Callable[[str], None], cases: Iterable[str]) -> None:
    """Each case is seconds of waiting. An error of one of them is raised."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(check, cases))


def test_an_ffmpeg_that_always_hangs_is_a_failure_with_that_reason(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    script = hanging_ffmpeg(tmp_path, HANGS["stopped, as a child of a script"], times=99)
    with pytest.raises(shortgop.EncodeError, match=r"ffmpeg made no progress for .* s, 3 times over: a disk.*--max-st"):
        prepared(constant_video, tmp_path, script)
    assert (tmp_path / "attempts").read_text().split() == ["attempt"] * 3
    assert not left_of(tmp_path)
    assert [file for file in (tmp_path / "dataset").rglob("*") if file.is_file()] == [tmp_path / "dataset/zarr.json"]


def test_the_pass_that_only_decodes_is_ended_and_tried_again_as_well(tmp_path: Path, late_b_frames: Path) -> None:
    script = tmp_path / "ffmpeg"
    script.write_text(
        f"""#!/bin/sh
        case "$*" in *wrapped_avframe*) ;; *) exec "{find_ffmpeg().path}" "$@" ;; esac
        echo attempt >> {tmp_path}/attempts
        [ $(wc -l < {tmp_path}/attempts) -gt 2 ] && exec "{find_ffmpeg().path}" "$@"
        [ $(wc -l < {tmp_path}/attempts) -gt 1 ] && kill -9 $$
        exec sleep 1000
        """
    )
    script.chmod(0o755)
    video = SyntheticVideo(late_b_frames, 96, 64, Fraction(1, 30), (), (), 0, 0)
    assert prepared(video, tmp_path, script).video(0).num_frames > 0
    assert (tmp_path / "attempts").read_text().split() == ["attempt"] * 3


@pytest.fixture
def late_b_frames(tmp_path: Path) -> Path:
    """Make a source whose packets have no timestamps, so that it is decoded once before it is planned."""
    from synthetic import constant_rate_pts, make_video

    file = make_video(tmp_path / "a.avi", pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30))
    return file.path


def left_of(folder: Path) -> list[str]:
    """Those that live on. What was killed is waited for: a grandchild that has its SIGKILL may still be listed."""
    end = time.monotonic() + 60
    while (found := processes_of(folder)) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def processes_of(folder: Path) -> list[str]:
    """Those whose command line names the folder, and that are not on their way out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in line:
            found.append(line.decode(errors="replace"))
    return found


# What is only slow

COMPUTES = "import time\nend = time.monotonic() + 2.5\nwhile time.monotonic() < end: pass"
PYTHON = {
    "that computes": COMPUTES,
    "that reads": "import time\nfor _ in range(25): open('/proc/self/stat').read(); time.sleep(0.1)",
    "whose child computes": f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {COMPUTES!r}], check=True)",
}


def test_a_process_is_not_ended() -> None:
    """Nothing comes from it for more than twice the limit."""

    def check(kind: str) -> None:
        with stall_limit(1.0), running(sys.executable, ["-c", f"{PYTHON[kind]}\nprint('done')"], "<none>") as run:
            assert run.stdout.read() == b"done\n", kind
        assert run.returncode == 0, kind

    at_the_same_time(check, PYTHON)


def test_time_in_which_nobody_waited_does_not_count(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """A disk that is slow to write to makes ffmpeg wait for its reader."""
    out = ["-v", "error", "-i", str(constant_video.path), "-vf", "scale=640:480", "-f", "rawvideo", "pipe:1"]
    with stall_limit(0.5), running(find_ffmpeg().path, out, "<none>") as run:
        first = run.stdout.read(1000)
        time.sleep(1.5)
        rest = run.stdout.read()
    assert len(first + rest) == 100 * 640 * 480 * 3 // 2


def test_a_process_that_spins_without_a_byte_is_ended_in_the_end() -> None:
    """Some drivers wait in a loop."""
    started = time.monotonic()
    with (
        pytest.raises(StalledError, match="no progress"),
        stall_limit(0.2),
        running(sys.executable, ["-c", "while True: pass"], "<none>") as run,
    ):
        run.stdout.read()
    assert time.monotonic() - started >= 2


def looks(activities: Sequence[Activity | None], limit: float = 8.0) -> list[str]:
    """What a watch says to each of these, a second apart."""
    answers = []
    with stall_limit(limit):
        upcoming = iter(activities)
        watch = Watch("it", lambda: next(upcoming))
        for _ in activities:
            try:
                watch.look(1.0)
                answers.append("")
            except StalledError as error:
                answers.append(error.message)
                break
    return answers


def test_the_limit_counts_from_the_last_sign_of_life() -> None:
    still = [Activity(1.0, 100)] * 20
    assert looks(still) == [""] * 8 + ["it made no progress for 8 s"]
    assert looks([*still[:8], Activity(1.0, 101), *still]) == [""] * 17 + ["it made no progress for 8 s"]
    assert len(looks([*still[:8], Activity(1.5, 100), *[Activity(1.5, 100)] * 20])) == 9 + 8
    # A clock that only shows that the process is there is no progress.
    assert looks([Activity(1 + number / 2000, 100) for number in range(20)]) == looks(still)
    assert len(looks([Activity(float(number), 100) for number in range(100)])) == 1 + 80
    assert len(looks([None] * 100)) == 80


def test_only_as_much_as_was_waited_for_counts() -> None:
    """A job that was stopped and goes on an hour later has not waited for an hour."""
    with stall_limit(8.0):
        watch = Watch("it", lambda: Activity(1.0, 100))
        for _ in range(8):
            watch.look(3600.0)


def test_what_was_done_so_far_is_that_of_all_processes_of_a_group() -> None:
    mine = activity_of_group(os.getpgrp())
    assert mine is not None
    assert mine.cpu_seconds > 0
    assert mine.moved_bytes > 0
    assert activity_of_group(1 << 30) is None


# Mounts that went away


def test_a_job_goes_on_beside_a_mount_that_does_not_answer(
    dead: Path, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    (tmp_path / "list.txt").write_text(f"{dead}/a.mp4\n{constant_video.path}\n")
    policy = SourcePolicy(max_stall_seconds=LIMIT / 4)
    dataset = tmp_path / "dataset"
    report = prepare(
        [str(tmp_path / "list.txt")], DiskStorage(dataset), Profile(), policy=policy, where=Where("inline")
    )
    assert (report.videos_added, len(report.failures)) == (1, 1)
    assert "a.mp4: reading it made no progress for" in report.failures[0].reason
    assert "a disk, network or driver does not answer" in report.failures[0].reason
    assert len(current_manifest(dataset).videos) == 1


def test_a_folder_that_does_not_answer_ends_the_job_before_anything_is_written(dead: Path, tmp_path: Path) -> None:
    policy = SourcePolicy(max_stall_seconds=LIMIT / 4)
    with pytest.raises(shortgop.SourceError, match=f"looking for sources in {dead} made no progress for .*: a disk"):
        prepare([str(dead)], DiskStorage(tmp_path / "dataset"), Profile(), policy=policy, where=Where("inline"))
    assert not (tmp_path / "dataset").exists()


def test_a_corpus_that_moved_away_from_a_mount_that_does_not_answer_is_known_again(
    dead: Path, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    corpus, moved, dataset = tmp_path / "corpus", tmp_path / "moved", tmp_path / "dataset"
    moved.mkdir()
    for number in range(8):
        (moved / f"{number}.mp4").write_bytes(constant_video.path.read_bytes() + bytes(8 + number))
    corpus.symlink_to(moved)
    policy, inline = SourcePolicy(max_stall_seconds=LIMIT / 4), Where("inline")
    prepare([str(corpus / "*.mp4")], DiskStorage(dataset), Profile(), policy=policy, where=inline)
    corpus.unlink()
    corpus.symlink_to(dead)
    for number in range(7):
        (moved / f"{number}.mp4").write_bytes(constant_video.path.read_bytes() + bytes(20 + number))
    started = time.monotonic()
    report = prepare([str(moved)], DiskStorage(dataset), Profile(), policy=policy, where=inline)
    assert (report.already_there, len(report.outdated)) == (1, 7)
    # Only one of the files is waited for, which takes about five seconds.
    assert time.monotonic() - started < 30


def test_an_ffmpeg_that_cannot_be_killed_is_left_behind(dead: Path) -> None:
    argv = ["-v", "error", "-nostdin", "-f", "mov", "-i", f"file:{dead}/a.mp4", "-f", "null", "-"]
    started = time.monotonic()
    with (
        pytest.raises(StalledError, match="ffmpeg made no progress"),
        stall_limit(0.5),
        running(find_ffmpeg().path, argv, "<none>") as run,
    ):
        run.stdout.read()
    assert time.monotonic() - started < 30
    # It is really one of those: it was killed and it is still there.
    (left,) = [entry for entry in Path("/proc").glob("[0-9]*") if _waits_for(entry, dead)]
    os.kill(int(left.name), signal.SIGKILL)


def test_a_program_that_waits_for_a_mount_while_it_starts_is_left_behind(dead: Path) -> None:
    """It closes the file that it inherited, which this mount never answers. Most of what /proc has of it waits too."""
    code = (
        "import os, sys\n"
        "from shortgop.prep.running.ffmpeg import running\n"
        "from shortgop.prep.running.stalls import StalledError, stall_limit\n"
        "file = os.open(sys.argv[1], os.O_RDONLY)\n"
        "try:\n"
        "    with stall_limit(1.0), running(sys.executable, ['-c', ''], '<none>') as run:\n"
        "        run.stdout.read()\n"
        "except StalledError as error:\n"
        "    print(error, flush=True)\n"
    )
    started = time.monotonic()
    assert b"made no progress for" in first_line(code, str(dead / "a.mp4"))
    assert time.monotonic() - started < 60


def _waits_for(process: Path, folder: Path) -> bool:
    try:
        return os.fsencode(folder) in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_what_a_thread_returns_or_raises_is_passed_on() -> None:
    assert in_time(lambda: 3, "it") == 3
    with pytest.raises(ZeroDivisionError):
        in_time(lambda: 1 // 0, "it")
    with pytest.raises(TimeoutError, match="mine"):
        in_time(lambda: _raise(TimeoutError("mine")), "it")
    with pytest.raises(StalledError, match="it made no progress"), stall_limit(0.3):
        in_time(lambda: time.sleep(5), "it")


def test_nobody_waits_any_more_for_what_is_given_up() -> None:
    ended = threading.Event()
    threading.Timer(0.5, ended.set).start()
    started = time.monotonic()
    with pytest.raises(CancelledError), given_up_when(ended.is_set):
        in_time(lambda: time.sleep(60), "it")
    assert time.monotonic() - started < 20
    assert in_time(lambda: 3, "it") == 3, "what is waited for outside is not given up"


def _raise(error: Exception) -> None:
    raise error
