"""The command line: exit statuses, messages, JSON, and what it does not wait for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import av
import pytest
import typer
from typer.testing import CliRunner, Result

import shortgop
from datasets import make_dataset
from shortgop.__main__ import main
from shortgop.cli import app
from shortgop.cli.app import errors
from shortgop.prep.profile import PROFILES, Profile
from synthetic import SyntheticVideo, frame_to_rgb, read_number


@pytest.fixture(scope="module")
def dataset(
    constant_video: SyntheticVideo, variable_video: SyntheticVideo, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    dataset = tmp_path_factory.mktemp("cli") / "dataset"
    make_dataset([constant_video.path, variable_video.path], dataset)
    return dataset


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run_json(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_prep_makes_a_dataset_and_does_nothing_the_second_time(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    arguments = ("prep", constant_video.path, "--out", tmp_path / "dataset", "--runner", "inline")
    first = run_json(*arguments)
    assert (first["videos_added"], first["frames_added"], first["failures"]) == (1, 100, [])
    second = run_json(*arguments)
    assert (second["videos_added"], second["already_there"], second["snapshot"]) == (0, 1, first["snapshot"])


def test_options_left_out_are_those_of_the_dataset(
    constant_video: SyntheticVideo, variable_video: SyntheticVideo, tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "dataset", "--runner", "inline")
    options = ("--fps", "15", "--size", "64", "--gop", "8", "--b-frames", "1", "--crf", "30", "--preset", "veryfast")
    more = ("--upscale", "--deinterlace", "never", "--no-fastdecode", "--segment-seconds", "1", "--shard-mb", "1")
    run_json("prep", constant_video.path, *out, *options, *more)
    run_json("prep", variable_video.path, *out)
    info = run_json("info", tmp_path / "dataset")
    assert info["profile"] == {
        "fps": "15", "size": "64", "fit": "within", "upscale": True, "deinterlace": "never", "gop_frames": 8,
        "b_frames": 1, "codec": "h264", "encoder": "auto", "crf": 30, "preset": "veryfast", "fastdecode": False,
        "segment_seconds": "1", "shard_bytes": 1_000_000,
    }  # fmt: skip
    assert [video["fps"] for video in info["videos"]] == ["15", "15"]
    assert {(video["width"], video["height"]) for video in info["videos"]} == {(96, 64)}
    conflict = run("prep", variable_video.path, *out, "--gop", "16")
    assert conflict.exit_code == 2
    assert "gop_frames 8 there and 16 here" in conflict.stderr


def test_a_named_profile_stands_for_options_that_others_override(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    arguments = ("prep", constant_video.path, "--out", tmp_path / "dataset", "--runner", "inline")
    run_json(*arguments, "--profile", "fast", "--gop", "8")
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(picture) for picture in video.get_frames_at([2, 50, 99]).data] == [2, 50, 99]
    profile = run_json("info", tmp_path / "dataset")["profile"]
    assert profile == Profile(**PROFILES["fast"] | {"gop_frames": 8}).to_json()
    conflict = run(*arguments, "--profile", "balanced")
    assert conflict.exit_code == 2
    assert "gop_frames 8 there and 16 here, fastdecode True there and False here" in conflict.stderr


@pytest.mark.parametrize("codec", [("--codec", "av1"), ("--encoder", "libsvtav1")])
def test_a_named_profile_takes_another_codec(
    codec: tuple[str, str], constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    """As docs/performance.md has it of `fast`. Options that are given beside both count."""
    out = ("--out", tmp_path / "dataset", "--runner", "inline")
    run_json("prep", constant_video.path, *out, "--profile", "small", *codec, "--preset", "12", "--crf", "40")
    profile = run_json("info", tmp_path / "dataset")["profile"]
    assert [profile[name] for name in ("codec", "gop_frames", "b_frames", "crf")] == ["av1", 32, 1, 40]
    again = run("prep", constant_video.path, *out, "--profile", "small", *codec)
    assert again.exit_code == 0
    refused = run("prep", constant_video.path, *out, "--profile", "small", *codec, "--b-frames", "3")
    assert "--b-frames is 3; it takes from 0 to 1 with --codec av1" in refused.stderr


def test_an_encoder_brings_its_codec(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    run_json("prep", constant_video.path, "--out", tmp_path / "d", "--runner", "inline", "--encoder", "libx265")
    assert run_json("info", tmp_path / "d")["videos"][0]["codec"] == "hevc"


@pytest.mark.parametrize(("codec", "is_said"), [("h264", False), ("hevc", True), ("av1", True)])
def test_videos_too_small_for_a_gpu_are_said_once(
    codec: str, is_said: bool, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    command = ("prep", constant_video.path, "--out", tmp_path / "dataset", "--codec", codec, "--size", "64x64")
    first, again = (run(*command, "--fit", "stretch", "--runner", "inline") for _ in range(2))
    assert first.exit_code == again.exit_code == 0
    said = f"1 video of the dataset cannot be decoded by a GPU, as NVDEC takes other sizes ({codec} of 64x64"
    assert (said in first.stderr) == is_said
    assert "GPU" not in again.stderr


def test_some_sources_missing_is_exit_status_3(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_text("no video")
    arguments = ("prep", constant_video.path, tmp_path / "bad.mp4", "--out", tmp_path / "dataset", "--runner", "inline")
    result = run(*arguments)
    assert result.exit_code == 3
    assert "not in the dataset: bad.mp4" in result.stderr
    assert "does not open as a video" in result.stderr
    assert run_json("info", tmp_path / "dataset")["failures"][0]["id"] == "bad.mp4"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prep", "nowhere.mp4", "--out", "OUT"), "nowhere.mp4"),
        (("prep", "VIDEO", "--out", "OUT", "--fps", "fast"), "--fps is 'fast'"),
        (("prep", "VIDEO", "--out", "OUT", "--size", "3x3"), "--size is '3x3'"),
        (("prep", "VIDEO", "--out", "OUT", "--size", "64x64", "--fit", "fill"), "--fit is fill"),
        (("prep", "VIDEO", "--out", "OUT", "--size", "64", "--fit", "pad"), "--fit pad needs a --size"),
        (("prep", "VIDEO", "--out", "OUT", "--deinterlace", "yes"), "--deinterlace is yes"),
        (("prep", "VIDEO", "--out", "OUT", "--profile", "tiny"), "--profile is 'tiny'"),
        (("prep", "VIDEO", "--out", "OUT", "--gop", "0"), "--gop is 0"),
        (
            ("prep", "VIDEO", "--out", "OUT", "--preset", "ultrafats"),
            "--preset is 'ultrafats'; it takes, with libx264 ultrafast, superfast, ",
        ),
        (
            ("prep", "VIDEO", "--out", "OUT", "--preset", "fast", "--encoder", "libsvtav1"),
            "--preset is 'fast'; it takes, with libsvtav1 0 (slowest) to 13",
        ),
        (("prep", "VIDEO", "--out", "OUT", "--runner", "slurm"), "--runner is 'slurm'"),
        (
            ("prep", "VIDEO", "--out", "OUT", "--runner", "inline", "--address", "head:6379"),
            "--address head:6379 names",
        ),
        (("prep", "VIDEO", "--out", "OUT", "--address", "ray://head:10001"), "an address for a Ray Client"),
        (("prep", "VIDEO", "--out", "OUT", "--workers", "0"), "--workers"),
        (("prep", "VIDEO", "--out", "OUT", "--codec", "h264", "--encoder", "libx265"), "libx265 writes hevc"),
        (("prep", "VIDEO", "--out", "OUT", "--segment-seconds", "long"), "--segment-seconds is 'long'"),
        (("prep", "VIDEO", "--out", "OUT", "--max-stall", "0"), "--max-stall is 0"),
        (("prep", "VIDEO", "--out", "OUT", "--max-stall", "soon"), "--max-stall is 'soon'"),
        (("read", "DATASET", "constant.mp4", "--frames", "a", "--out", "OUT"), "--frames is 'a'"),
        (("export", "DATASET", "constant.mp4", "OUT", "--start", "soon"), "--start is 'soon'"),
    ],
)
def test_wrong_usage_is_exit_status_2_and_makes_nothing(
    arguments: tuple[str, ...], message: str, dataset: Path, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    places = {"OUT": str(tmp_path / "out"), "VIDEO": str(constant_video.path), "DATASET": str(dataset)}
    result = run(*(places.get(argument, argument) for argument in arguments))
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "option"), [("-a.mp4", "-a"), ("--json.mp4", "--json.mp4"), ("-x/a.mp4", "-x")])
def test_a_name_that_begins_with_a_dash_goes_last(
    name: str, option: str, constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    shutil.copy(constant_video.path, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    prep = ["prep", "--out", tmp_path / "dataset", "--runner", "inline"]
    refused = run(*prep, name)
    assert refused.exit_code == 2
    assert f"No such option: {option}; if '{name}' is a file or an id, give it last, behind `--`" in refused.stderr
    for misspelt in ("--jsn", "--fsp=29.97", "--outptu=/data/x"):
        assert "is a file or an id" not in run(*prep, misspelt).stderr
    assert run(*prep, "--", name).exit_code == 0


@pytest.mark.parametrize("command", ["info", "verify"])
def test_a_folder_that_is_no_dataset_is_exit_status_1(command: str, tmp_path: Path) -> None:
    result = run(command, tmp_path)
    assert result.exit_code == 1
    assert f"{tmp_path} holds no dataset" in result.stderr


@pytest.mark.parametrize(
    "command", ["prep", "annotate", "drop", "gc", "rollback", "copy", "merge", "compact", "verify"]
)
def test_the_help_of_each_command_that_writes_names_the_status_of_a_dataset_in_use(command: str) -> None:
    said = " ".join(run(command, "--help").stdout.split())
    assert "5 another job is writing to the dataset" in said.replace("5:", "5")


def test_a_variable_that_no_shell_replaced_is_told(dataset: Path, tmp_path: Path) -> None:
    for command in (["info", "$HOME/nowhere"], ["prep", "${HOME}/nowhere", "--out", str(tmp_path / "new")]):
        assert "$HOME in it is not replaced: leave single quotes away, or write" in run(*command).stderr


def test_info_lists_videos_with_their_exact_rates(dataset: Path, constant_video: SyntheticVideo) -> None:
    info = run_json("info", dataset)
    assert info["num_videos"] == 2
    video = info["videos"][0]
    assert (video["id"], video["fps"], video["num_frames"]) == ("constant.mp4", "30", 100)
    assert (video["width"], video["height"]) == (constant_video.width, constant_video.height)
    assert "constant.mp4" in run("info", dataset).stdout


def test_verify_finds_a_flipped_bit_and_says_where(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    make_dataset([constant_video.path], dataset)
    assert run_json("verify", dataset, "--decode") == {
        "gops": 7, "decoded": True, "problems": [], "damaged": [], "unread": [], "undecoded": []
    }  # fmt: skip
    shard = next((dataset / "shards").iterdir())
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 0x10
    shard.write_bytes(data)
    result = run("verify", dataset)
    # 1 is for a dataset that could not be checked.
    assert result.exit_code == 3
    assert "constant.mp4" in result.stderr
    assert shard.name in result.stderr
    assert f"damaged: 1 of 1 video: constant.mp4; `shortgop verify {dataset} --repair SOURCES` makes" in result.stdout


def test_verify_says_few_things_of_a_shard_that_was_cut(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """Its seven GOPs are gone, and so might be thousands."""
    dataset = tmp_path / "dataset"
    make_dataset([constant_video.path], dataset)
    shard = next((dataset / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:1000])
    *first, last = run("verify", dataset).stderr.splitlines()
    assert (len(first), last) == (5, f"{shard}: 3 more problems: --json lists all")
    assert len(json.loads(run("verify", dataset, "--json").stdout)["problems"]) == 8


def test_read_writes_a_contact_sheet(dataset: Path, constant_video: SyntheticVideo, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    result = run_json("read", dataset, "constant.mp4", "--frames", "7,42", "--out", sheet)
    assert result["frames"] == [7, 42]
    assert result["source_pts"] == [constant_video.pts[7], constant_video.pts[42]]
    with av.open(str(sheet)) as container:
        picture = frame_to_rgb(next(container.decode(video=0)))
    width = constant_video.width
    assert read_number(picture[: constant_video.height, :width]) == 7
    assert read_number(picture[-constant_video.height :, -width:]) == 42


def test_frames_may_be_a_range(dataset: Path, tmp_path: Path) -> None:
    assert run_json("read", dataset, "0", "--frames", "90::4", "--out", tmp_path / "a.png")["frames"] == [90, 94, 98]


def test_reading_past_the_end_says_how_long_the_video_is(dataset: Path, tmp_path: Path) -> None:
    result = run("read", dataset, "constant.mp4", "--frames", "100", "--out", tmp_path / "sheet.png")
    assert result.exit_code == 1
    assert "constant.mp4" in result.stderr
    assert "100" in result.stderr


def test_export_writes_an_ordinary_mp4(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "whole.mp4"
    assert run_json("export", dataset, "constant.mp4", out)["stop_frame"] == 100
    assert run_json("export", dataset, "0", tmp_path / "first.mp4")["video"] == "constant.mp4"
    with av.open(str(out)) as container:
        assert [read_number(frame_to_rgb(frame)) for frame in container.decode(video=0)] == list(range(100))


def test_an_id_that_looks_like_markup_is_printed_as_it_is(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    folder = tmp_path / "[red]"
    folder.mkdir()
    (folder / "b[x].mp4").write_bytes(constant_video.path.read_bytes())
    make_dataset([tmp_path], tmp_path / "dataset")
    assert "[red]/b[x].mp4" in run("info", tmp_path / "dataset").stdout


@pytest.mark.parametrize(
    ("frames", "out"), [("5:2", "sheet.png"), ("0:10:-1", "sheet.png"), (str(10**20), "sheet.png"), ("0", ".")]
)
def test_sheets_that_cannot_be_made(frames: str, out: str, dataset: Path, tmp_path: Path) -> None:
    result = run("read", dataset, "constant.mp4", "--frames", frames, "--out", tmp_path / out)
    assert result.exit_code in {1, 2}
    assert "error: " in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_video_that_is_not_there_is_named(dataset: Path, tmp_path: Path) -> None:
    result = run("export", dataset, "nothing.mp4", tmp_path / "out.mp4")
    assert result.exit_code == 1
    assert "no video 'nothing.mp4'" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "{}", "0", "s3://corpus/a.mp4"),
        ("read", "{}", "0", "--frames", "0", "--out", "s3://corpus/a.png"),
        ("annotate", "{}", "gs://corpus/labels.csv"),
        ("drop", "{}", "--from", "s3://corpus/ids.txt"),
    ],
)
def test_files_of_commands_are_not_in_stores(
    arguments: tuple[str, ...], dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of such a name would have got the file."""
    monkeypatch.chdir(tmp_path)
    for name in ("s3:", "gs:"):
        (tmp_path / name / "corpus").mkdir(parents=True)
    result = run(*(each.format(dataset) for each in arguments))
    assert result.exit_code == 2
    assert "is a URL; give a file of this host" in " ".join(result.output.replace("\u2502", " ").split())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_doctor_says_what_would_be_used() -> None:
    diagnosis = run_json("doctor")
    assert {trial["name"]: trial["works"] for trial in diagnosis["trials"]}["libx264"] is True
    assert diagnosis["choices"]["h264"].split(":")[0] in {"libx264", "h264_nvenc"}
    assert any("pyav" in decoder["name"] and decoder["works"] for decoder in diagnosis["decoders"])


@pytest.mark.first_case_short
@pytest.mark.parametrize("arguments", [["--help"], ["info"], ["verify"], ["export"]])
def test_what_needs_neither_torch_nor_ray_does_not_import_them(
    arguments: list[str], dataset: Path, tmp_path: Path
) -> None:
    # The interpreter lists what it imports on standard error.
    command = [sys.executable, "-X", "importtime", "-m", "shortgop", *arguments]
    if arguments != ["--help"]:
        command += [str(dataset), *(["constant.mp4", str(tmp_path / "out.mp4")] if arguments == ["export"] else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "shortgop" in imported
    assert not imported & {"torch", "ray", "torchcodec", "av"}


def test_prep_without_ray_does_not_import_it(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "shortgop", "prep", str(constant_video.path)]
    command += ["--out", str(tmp_path / "dataset"), "--runner", "inline"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "0 of 100 frames" in done.stderr
    assert not any(line.rpartition("|")[2].strip() in ("ray", "torch") for line in done.stderr.splitlines())


def test_help_names_prep_first_and_says_what_each_command_does() -> None:
    """The order was that of modules, `cache` first, and most of the sentences were cut off."""
    lines = [line for line in run("--help").output.partition("Commands:\n")[2].splitlines() if line]
    assert [line.split()[0] for line in lines[:4]] == ["prep", "status", "report", "info"]
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize(
    ("goes_on", "said"),
    [(True, "interrupted; finished work is kept, and the same command goes on from there\n"), (False, "interrupted\n")],
)
def test_only_a_command_that_goes_on_says_so(goes_on: bool, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, errors(goes_on=goes_on):
        raise KeyboardInterrupt
    assert (capsys.readouterr().err, ended.value.exit_code) == (said, 130)


class _InterruptedImport:
    @property
    def app(self) -> Any:
        raise KeyboardInterrupt


def test_ctrl_c_before_the_commands_are_imported_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shortgop.cli", _InterruptedImport())
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
