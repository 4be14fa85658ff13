"""`shortgop.prepare`: what the command does, from Python."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

import shortgop
from datasets import copied_shards, current_manifest, make_dataset, rows_of
from shortgop.cli import app
from shortgop.errors import WrongTypeError
from shortgop.jobs.named_options import prepare_without_warning
from shortgop.jobs.working import work
from shortgop.manifests.equal_contents import equal_contents
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number, variable_rate_pts

_KEPT = r"^1 source changed and not replaced: a\.mp4: .* \(that is in `failures`"


def test_every_option_of_the_command_is_an_argument_of_the_same_name() -> None:
    command: Any = typer.main.get_command(app)
    options = {option for each in command.commands["prep"].params for option in each.opts}
    named = {option.removeprefix("--").replace("-", "_") for option in options}
    arguments = set(inspect.signature(shortgop.prepare).parameters)
    # The screen is the command's own, what is told meanwhile is Python's own.
    assert named - {"json", "report"} == arguments - {"on_progress", "on_types", "on_recognised"}


def test_it_does_what_the_command_does(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    report = shortgop.prepare(
        constant_video.path, tmp_path / "a", profile="balanced", fps=15, size=(48, 32), fit="pad", gop=8, b_frames=1,
        crf=30, preset="veryfast", segment_seconds=1.5, shard_mb=1, max_gap=5, max_stall=60.0, runner="inline",
    )  # fmt: skip
    options = "--profile balanced --fps 15 --size 48x32 --fit pad --gop 8 --b-frames 1 --crf 30 --preset veryfast"
    more = "--segment-seconds 1.5 --shard-mb 1 --max-gap 5 --max-stall 60 --runner inline --json"
    command = ["prep", str(constant_video.path), "--out", str(tmp_path / "b"), *options.split(), *more.split()]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed == {
        **json.loads(json.dumps(dataclasses.asdict(report))),
        "seconds": printed["seconds"],
        "dataset": str(tmp_path / "b"),
    }
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")
    (video,) = shortgop.open(tmp_path / "a")
    assert [read_number(frame) for frame in video[:3]] == [0, 2, 4]


class _OwnSequence:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 1

    def __getitem__(self, number: int) -> Path:
        return [self.path][number]


@pytest.mark.parametrize("kind", [str, Path, lambda path: [path], lambda path: (str(path),), _OwnSequence])
def test_sources_are_one_or_several_paths(kind: Any, constant_video: SyntheticVideo, tmp_path: Path) -> None:
    report = shortgop.prepare(kind(constant_video.path), str(tmp_path / "dataset"), runner="inline")
    assert (report.videos_added, report.failures, report.snapshot) == (1, (), "000001")
    # What is left out has the dataset's value, and so has nothing to do.
    report = shortgop.prepare(kind(constant_video.path), tmp_path / "dataset", runner="inline", keep_snapshots=0)
    assert report.already_there == 1


def test_booleans_may_be_those_of_numpy(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    flags: Any = {"salvage": np.True_, "check": np.False_}
    report = shortgop.prepare(constant_video.path, tmp_path / "dataset", runner="inline", **flags)
    assert report.videos_added == 1


def test_rates_are_those_that_the_command_takes(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    rates: list[Any] = [29.97, "29.97", Fraction(30000, 1001), "30000/1001"]
    for number, fps in enumerate(rates):
        shortgop.prepare(constant_video.path, tmp_path / str(number), fps=fps, runner="inline")
        assert current_manifest(tmp_path / str(number)).video(0).fps == Fraction(30000, 1001)
    shortgop.prepare(constant_video.path, tmp_path / "own", fps="source", runner="inline")
    assert current_manifest(tmp_path / "own").video(0).fps == 30


def test_progress_says_how_far_the_job_is(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    for number in range(3):
        file = tmp_path / "corpus" / f"{number}.mp4"
        make_video(file, pts=constant_rate_pts(Fraction(25), 40), timebase=Fraction(1, 25))
    (tmp_path / "corpus" / "broken.mp4").write_text("no video")
    seen: list[shortgop.Progress] = []
    report = prepare_without_warning(
        tmp_path / "corpus", tmp_path / "dataset", runner="inline", on_progress=seen.append
    )
    assert seen[0].note == "looking at 4 sources"
    last = seen[-1]
    assert (last.sources_done, last.sources_total, last.sources_failed) == (4, 4, 1)
    assert (last.frames_done, last.frames_planned, last.bytes_done) == (120, 120, report.bytes_added)
    for name in ("sources_done", "frames_done", "bytes_done", "seconds"):
        values = [getattr(each, name) for each in seen]
        assert values == sorted(values)
    with pytest.raises(dataclasses.FrozenInstanceError):
        last.frames_done = 0  # type: ignore[misc]


def test_sources_that_failed_are_a_warning_with_their_number_and_the_first_reason(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / "corpus" / name).write_text("no video")
    words = r"^2 of 2 sources could not be prepared: a\.mp4: .* \(all are in `failures` of the report"
    with pytest.warns(shortgop.DatasetWarning, match=words) as warned:
        report = shortgop.prepare(tmp_path / "corpus", tmp_path / "dataset", runner="inline")
    assert [failure.id for failure in report.failures] == ["a.mp4", "b.mp4"]
    assert report.failures[0].reason in str(warned[0].message)
    assert warned[0].filename == __file__, "it names the line of the caller"


def test_sources_that_changed_and_were_kept_are_a_warning(tmp_path: Path) -> None:
    source = tmp_path / "a.mp4"
    for first, about in ((0, contextlib.nullcontext()), (50, pytest.warns(shortgop.DatasetWarning, match=_KEPT))):
        make_video(source, pts=constant_rate_pts(Fraction(25), 20 + first), timebase=Fraction(1, 25))
        with about:
            shortgop.prepare(source, tmp_path / "dataset", runner="inline")


def test_what_the_callback_raises_ends_the_job_which_goes_on_from_there(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    def stop(progress: shortgop.Progress) -> None:
        if progress.sources_done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shortgop.prepare(constant_video.path, tmp_path / "dataset", runner="inline", on_progress=stop)
    assert shortgop.prepare(constant_video.path, tmp_path / "dataset", runner="inline").already_there == 1


@pytest.mark.parametrize(
    "error", [RuntimeError("stop"), OSError("a closed pipe"), shortgop.SourceError("stop")], ids=repr
)
def test_what_the_callback_raises_while_a_source_is_prepared_is_no_failure_of_that_source(
    constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(work, "_REPORT_EVERY_SECONDS", 0)

    def stop(progress: shortgop.Progress) -> None:
        if 0 < progress.frames_done < progress.frames_planned:
            try:
                int("x")
            except ValueError:
                raise error  # noqa: B904  # as a caller's function may

    with pytest.raises(type(error)) as raised:
        shortgop.prepare(constant_video.path, tmp_path / "dataset", runner="inline", on_progress=stop)
    assert raised.value is error
    assert isinstance(error.__context__, ValueError)
    assert not error.__suppress_context__
    report = shortgop.prepare(constant_video.path, tmp_path / "dataset", runner="inline")
    assert (report.videos_added, report.already_there, report.failures) == (1, 0, ())


def test_what_ends_the_job_is_what_is_raised_also_where_nothing_can_be_published(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    root = tmp_path / "dataset/zarr.json"
    before = []

    def stop(progress: shortgop.Progress) -> None:
        if progress.sources_done:
            before.append(root.read_bytes())
            root.write_text("{")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shortgop.prepare(constant_video.path, tmp_path / "dataset", runner="inline", on_progress=stop)
    root.write_bytes(before[0])
    assert shortgop.prepare(constant_video.path, tmp_path / "dataset", runner="inline").already_there == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"profile": "tiny"}, "--profile is 'tiny'"),
        ({"fps": "fast"}, "--fps is 'fast'"),
        ({"fps": True}, "--fps is True"),
        ({"size": (3, 3)}, "--size is '3x3'"),
        ({"gop": 0}, "--gop is 0"),
        ({"gop": "16"}, "--gop is '16'; it has to be an integer"),
        ({"crf": 2.5}, "--crf is 2.5; it has to be an integer"),
        ({"max_gap": "soon"}, "--max-gap is 'soon'"),
        ({"max_stall": None}, "--max-stall is None"),
        ({"gaps": "leave"}, "--gaps is 'leave'"),
        ({"changed": "no"}, "--changed is 'no'"),
        ({"id_root": "nowhere"}, "--id-root nowhere is not a folder"),
        ({"runner": "slurm"}, "--runner is 'slurm'"),
        ({"workers": 0, "runner": "ray"}, "--workers is 0"),
        ({"keep_snapshots": "long"}, "--keep-snapshots is 'long'"),
        ({"codec": "h264", "encoder": "libx265"}, "libx265 writes hevc"),
        ({"salvage": "no"}, "salvage is 'no'; it has to be True or False"),
        ({"check": np.array([True])}, "check is array([ True]); it has to be True or False"),
        ({"types": "label=text"}, "types is 'label=text'; give a dict"),
        ({"cuts": 5}, "--cuts is 5; it takes two names of columns"),
        ({"list_root": 5}, "5 is no path; give a path, or a URL as text"),
        ({"id_root": b"videos"}, "b'videos' is no path; give a path, or a URL as text"),
        ({"sise": 256}, "prepare has no parameter 'sise'; there is size"),
        ({"gop_frames": 16}, "prepare has no parameter 'gop_frames'; there is gop"),
        ({"verbose": True}, "prepare has no parameter 'verbose'; its docstring names all"),
    ],
)
def test_errors_are_those_of_the_command_and_nothing_is_made(
    options: dict[str, Any], message: str, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    with pytest.raises(shortgop.UsageError) as caught:
        shortgop.prepare(constant_video.path, tmp_path / "dataset", **{"runner": "inline", **options})
    assert message in str(caught.value)
    assert not (tmp_path / "dataset").exists()


@pytest.mark.parametrize("sources", [None, 5, b"a.mp4", [b"a.mp4"], [None]])
def test_sources_that_are_no_paths_are_the_wrong_type(sources: Any, tmp_path: Path) -> None:
    with pytest.raises(WrongTypeError, match="is no path; give a path, or a URL as text"):
        shortgop.prepare(sources, tmp_path / "dataset", runner="inline")


def test_a_table_of_pandas_or_pyarrow_is_no_list_of_sources(tmp_path: Path) -> None:
    """Going over a table gives the names of its columns."""
    for table in (pd.DataFrame({"path": ["a.mp4"]}), pa.table({"path": ["a.mp4"]})):
        message = f"sources is a {type(table).__name__}; write it as a Parquet or CSV list and give its path"
        with pytest.raises(WrongTypeError, match=message):
            shortgop.prepare(table, tmp_path / "dataset", runner="inline")


def test_workers_do_not_get_a_dataset_in_the_memory_of_this_process(constant_video: SyntheticVideo) -> None:
    with pytest.raises(shortgop.UsageError, match="memory://there is in the memory of this .* --runner inline"):
        shortgop.prepare(constant_video.path, "memory://there", runner="ray")
    assert shortgop.prepare(constant_video.path, "memory://there", runner="inline").videos_added == 1
    assert len(shortgop.open("memory://there")) == 1


def test_neither_the_package_nor_a_job_imports_torch(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    code = (
        "import sys, shortgop\n"
        "assert not {'torch', 'ray', 'numpy', 'av'} & set(sys.modules)\n"
        "shortgop.prepare(sys.argv[1], sys.argv[2], runner='inline')\n"
        "assert not {'torch', 'ray'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(constant_video.path), str(tmp_path / "dataset")], check=True)


def test_the_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"shortgop {shortgop.__version__}\n")


def test_equal_contents_are_counted_whatever_lies_between_them(
    constant_video: SyntheticVideo, variable_video: SyntheticVideo, tmp_path: Path
) -> None:
    make_dataset([constant_video.path, variable_video.path], tmp_path / "two")
    copied_shards(tmp_path / "two", tmp_path / "many", 10)
    many = current_manifest(tmp_path / "many")
    assert equal_contents(many).videos == 0

    def with_identities(*identities: int) -> Any:
        column = np.array(identities, dtype="<u8")
        return equal_contents(dataclasses.replace(many, videos=dataclasses.replace(many.videos, identity=column)))

    ids = many.ids
    found = with_identities(7, 8, 7, 2**64 - 1, 7, 8, *range(100, 113), 2**64 - 1)
    assert found.videos == 4
    assert found.pairs == ((ids[0], ids[2]), (ids[0], ids[4]), (ids[1], ids[5]), (ids[3], ids[19]))
    # 0 is the identity of a file that could not be looked at.
    assert with_identities(*[0] * 20).videos == 0
    every = with_identities(*[5] * 20)
    assert (every.videos, len(every.pairs)) == (19, 10)


def test_a_last_frame_that_begins_and_ends_within_a_tick_is_shown(tmp_path: Path) -> None:
    """Phones write such ones. ffmpeg's filter fps leaves out a frame at whose tick the stream ends."""
    timebase = Fraction(1, 90000)
    made = make_video(tmp_path / "a.mp4", pts=variable_rate_pts(1, 40, timebase), timebase=timebase)
    report = shortgop.prepare(made.path, tmp_path / "dataset", gop=8, runner="inline")
    assert report.failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert made.durations[-1] * timebase < 1 / video.metadata.fps
    assert read_number(video[-1]) == 39
